"""Read the constructor's arguments: each is checked, and an error names it and the remedy."""

import inspect
from dataclasses import is_dataclass
from numbers import Integral, Real
from typing import Any

import jax
import numpy as np
import optax

from anchored.anchoring import Anchored
from anchored.networks import ACTIVATIONS
from anchored.solvers.first_order import FirstOrder
from anchored.training import Recipe


def check(estimator: Any) -> None:
    """Raise if any argument cannot be used."""
    params = estimator.get_params(deep=False)
    _check_method(estimator)
    for name in ("n_estimators", "max_iter", "n_iter_no_change"):
        check_whole(name, params[name])
    for size in _as_tuple("hidden_layer_sizes", params["hidden_layer_sizes"]):
        check_whole("hidden_layer_sizes", size)
    one_of("activation", params["activation"], ACTIVATIONS)
    one_of("trainable", params["trainable"], ("all", "last_layer"))
    _positive("learning_rate_init", params["learning_rate_init"])
    check_prior_scale(params["prior_scale"])
    _check_anchoring(params["anchoring"], estimator._takes_randomized)
    _check_optimizer(params["optimizer"])
    if not isinstance(params["batch_size"], str) or params["batch_size"] != "auto":
        check_whole("batch_size", params["batch_size"], 'or "auto"')
    for name in ("early_stopping", "warm_start"):
        if not isinstance(params[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {params[name]!r}")
    fraction = params["validation_fraction"]
    if not (_is_real(fraction) and 0 < fraction < 1):
        raise ValueError(f"validation_fraction must lie between 0 and 1, got {fraction!r}")


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
    if isinstance(method, type) or not callable(getattr(method, "fit", None)) or not is_dataclass(method):
        raise ValueError(f"method must be None or an object of anchored.methods, such as HMC(), got {method!r}")
    defaults = {n: p.default for n, p in inspect.signature(type(estimator).__init__).parameters.items()}
    ignored = (*OF_THE_METHOD, *getattr(method, "ignores", ()))
    for name in ignored:
        value = getattr(estimator, name, None)
        if name in defaults and not (value is defaults[name] or value == defaults[name]):
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


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and bool(np.isfinite(float(value)))


def check_whole(name: str, value: Any, alternative: str = "") -> None:
    """Raise unless `value` is a whole number of at least 1."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1 {alternative}".rstrip() + f", got {value!r}")


def _positive(name: str, value: Any, alternative: str = "") -> None:
    if not _is_real(value) or value <= 0:
        raise ValueError(f"{name} must be a positive number {alternative}".rstrip() + f", got {value!r}")


def check_positive_or_auto(name: str, value: Any) -> None:
    """Raise unless `value` is "auto" or a positive number."""
    if not isinstance(value, str) or value != "auto":
        _positive(name, value, 'or "auto"')


def one_of(name: str, value: Any, known: Any) -> None:
    """Raise unless `value` is one of the names known."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {sorted(known)}, got {value!r}")


def _as_tuple(name: str, value: Any) -> tuple:
    if not isinstance(value, tuple | list | np.ndarray):
        raise ValueError(f"{name} must be a tuple with one entry a layer, such as (50,), got {value!r}")
    return tuple(value)


def check_prior_scale(value: Any) -> None:
    """Raise unless `value` is "auto", a positive number, or one for each layer."""
    if isinstance(value, str):
        one_of("prior_scale", value, ("auto",))
        return
    for scale in (value,) if isinstance(value, Real) else _as_tuple("prior_scale", value):
        _positive("prior_scale", scale, 'or "auto", or a tuple with one for each layer')


def _check_anchoring(value: Any, takes_randomized: bool) -> None:
    if isinstance(value, str):
        one_of("anchoring", value, ("prior", "randomized"))
        if value == "randomized" and not takes_randomized:
            raise ValueError(
                'anchoring="randomized" perturbs targets by Gaussian noise, which classes do not have, and no '
                'exact route is known for them. Use anchoring="prior" or a number κ.'
            )
        return
    for kappa in (value,) if isinstance(value, Real) else _as_tuple("anchoring", value):
        if not _is_real(kappa) or kappa < 0:
            raise ValueError(f"anchoring: κ must be a number of at least 0, got {kappa!r}")


def _check_optimizer(value: Any) -> None:
    remedy = 'Pass a name ("adam") or a factory that takes a learning rate (optax.adam).'
    if value is None:
        raise ValueError(f"optimizer: there is none; a saved model does not keep a function of your own. {remedy}")
    if isinstance(value, optax.GradientTransformation):
        raise ValueError(f"optimizer: got an optax transformation, which has its learning rate fixed. {remedy}")
    factory = getattr(optax, value, None) if isinstance(value, str) else value
    if not callable(factory):
        raise ValueError(f"optimizer: optax has no {value!r}. {remedy}")
    try:
        made = factory(0.1)
    except Exception as error:
        raise ValueError(f"optimizer: {value!r} failed when called with a learning rate: {error}. {remedy}") from error
    if not isinstance(made, optax.GradientTransformation):
        raise ValueError(f"optimizer: {value!r} does not give an optax transformation. {remedy}")
    try:
        jax.eval_shape(lambda params: made.update(params, made.init(params), params), np.zeros(1, np.float32))
    except TypeError as error:
        raise ValueError(f"optimizer: {value!r} needs more than gradients: {error}") from error
