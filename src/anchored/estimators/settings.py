"""Read the constructor's arguments: each is checked, and an error names it and the remedy."""

import inspect
from dataclasses import is_dataclass
from numbers import Real
from typing import Any

import numpy as np

from anchored import checks
from anchored.inference import compilation
from anchored.inference.anchoring import Anchored
from anchored.inference.solvers.first_order import FirstOrder, check_optimizer
from anchored.inference.training import Recipe
from anchored.model.networks import ACTIVATIONS


def check(estimator: Any) -> None:
    """Raise if any argument cannot be used, or if this process cannot compute."""
    compilation.check_process()
    params = estimator.get_params(deep=False)
    _check_method(estimator)
    for name in ("n_estimators", "max_iter", "n_iter_no_change"):
        checks.whole(name, params[name])
    for size in _as_tuple("hidden_layer_sizes", params["hidden_layer_sizes"]):
        checks.whole("hidden_layer_sizes", size)
    checks.one_of("activation", params["activation"], ACTIVATIONS)
    checks.one_of("trainable", params["trainable"], ("all", "last_layer"))
    checks.positive("learning_rate_init", params["learning_rate_init"])
    check_prior_scale(params["prior_scale"])
    check_optimizer(params["optimizer"])
    if not isinstance(params["batch_size"], str) or params["batch_size"] != "auto":
        checks.whole("batch_size", params["batch_size"], alternative='or "auto"')
    for name in ("early_stopping", "warm_start"):
        if not isinstance(params[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {params[name]!r}")
    checks.share("validation_fraction", params["validation_fraction"])


# Arguments of the default method, an anchored ensemble; any other has its own.
OF_THE_METHOD = (
    "n_estimators",
    "anchoring",
    "trainable",
    "optimizer",
    "learning_rate_init",
    "max_iter",
    "batch_size",
    "early_stopping",
    "validation_fraction",
    "n_iter_no_change",
    "warm_start",
    "n_jobs",
)


def _check_method(estimator: Any) -> None:
    """A method is an object of `anchored.methods`, and no argument that it would ignore may be set beside it."""
    method = estimator.method
    if method is None:
        return
    is_method = is_dataclass(method) and all(callable(getattr(method, name, None)) for name in ("check", "fit"))
    if isinstance(method, type) or not is_method:
        raise ValueError(f"method must be None or an object of anchored.methods, such as HMC(), got {method!r}")
    defaults = {n: p.default for n, p in inspect.signature(type(estimator).__init__).parameters.items()}
    ignored = (*OF_THE_METHOD, *getattr(method, "ignores", ()))
    for name in ignored:
        value: Any = getattr(estimator, name, None)
        if name in defaults and not np.array_equal(value, defaults[name]):
            raise ValueError(
                f"{name}={value!r} is set, but method={type(method).__name__}(...) would ignore it. Leave it out, or "
                "set the like among the method's own arguments."
            )


def recipe(estimator: Any, n_rows: int) -> Recipe:
    """How to train, for this many rows."""
    anchoring: Any = estimator.anchoring
    return Recipe(
        Anchored(anchoring if np.ndim(anchoring) == 0 else tuple(anchoring)),
        estimator.trainable,
        solver(estimator, n_rows),
    )


def solver(estimator: Any, n_rows: int) -> FirstOrder:
    """The optimiser and how long it runs, for this many rows."""
    return FirstOrder(
        optimizer=estimator.optimizer,
        learning_rate=float(estimator.learning_rate_init),
        max_iter=int(estimator.max_iter),
        batch_size=_batch_size(estimator.batch_size, n_rows),
        early_stopping=bool(estimator.early_stopping),
        patience=int(estimator.n_iter_no_change),
    )


def _batch_size(asked: int | str, n_rows: int) -> int | None:
    """About sixteen batches an epoch, between 16 and 1,024 rows each; None for all rows at once."""
    size = int(np.clip(2 ** round(np.log2(n_rows / 16)), 16, 1024)) if asked == "auto" else int(asked)
    return size if size < n_rows else None


def check_positive_or_auto(name: str, value: Any) -> None:
    """Raise unless `value` is "auto" or a positive number."""
    if not isinstance(value, str) or value != "auto":
        checks.positive(name, value, 'or "auto"')


def _as_tuple(name: str, value: Any) -> tuple:
    if not isinstance(value, tuple | list | np.ndarray):
        raise ValueError(f"{name} must be a tuple with one entry a layer, such as (50,), got {value!r}")
    return tuple(value)


def check_prior_scale(value: Any) -> None:
    """Raise unless `value` is "auto", a positive number, or one for each layer."""
    if isinstance(value, str):
        checks.one_of("prior_scale", value, ("auto",))
        return
    for scale in (value,) if isinstance(value, Real) else _as_tuple("prior_scale", value):
        checks.positive("prior_scale", scale, 'or "auto", or a tuple with one for each layer')
