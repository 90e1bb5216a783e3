"""Check the constructors' arguments, and make solvers from them. An error names the argument and what it must be."""

from dataclasses import is_dataclass, replace
from numbers import Real

import jax
import numpy as np
from sklearn.base import BaseEstimator

from anchored import checks
from anchored.inference import compilation
from anchored.inference.posterior import Method
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.optimizers import check_optimizer
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import ACTIVATIONS
from anchored.model.predictive import CategoricalPredictive

INPUT_ENCODINGS = ("auto", "standard", "piecewise_linear")
N_STEPS, MIN_EPOCHS, MAX_EPOCHS = 4_800, 8, 300  # of a fit with max_iter="auto"
NOISE_FREE_FACTOR = 4  # of the number of epochs for data with hardly any noise, which members follow ever more closely


def check_network(estimator: BaseEstimator) -> None:
    """Raise if an argument of `estimator` about the network or prior is invalid, or JAX cannot run in this process."""
    compilation.check_process()
    params = estimator.get_params(deep=False)
    if not isinstance(params["hidden_layer_sizes"], str) or params["hidden_layer_sizes"] != "auto":
        for size in _as_tuple("hidden_layer_sizes", params["hidden_layer_sizes"]):
            checks.whole("hidden_layer_sizes", size)
    checks.one_of("input_encoding", params["input_encoding"], INPUT_ENCODINGS)
    if params["network"] is not None and params["input_encoding"] == "piecewise_linear":
        raise ValueError(
            'input_encoding="piecewise_linear" changes the columns that a custom network takes; use "auto"'
        )
    checks.one_of("activation", params["activation"], ACTIVATIONS)
    check_prior_scale(params["prior_scale"])


def check_training(estimator: BaseEstimator) -> None:
    """Raise a ValueError if an argument of `estimator` about the ensemble or its training is invalid."""
    params = estimator.get_params(deep=False)
    for name in ("n_estimators", "n_iter_no_change"):
        checks.whole(name, params[name])
    if not isinstance(params["max_iter"], str) or params["max_iter"] != "auto":
        checks.whole("max_iter", params["max_iter"], alternative='or "auto"')
    checks.one_of("trainable", params["trainable"], ("all", "last_layer"))
    checks.positive("learning_rate_init", params["learning_rate_init"])
    check_optimizer(params["optimizer"])
    if not isinstance(params["batch_size"], str) or params["batch_size"] != "auto":
        checks.whole("batch_size", params["batch_size"], alternative='or "auto"')
    for name in ("early_stopping", "warm_start"):
        if not isinstance(params[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {params[name]!r}")
    checks.fraction("validation_fraction", params["validation_fraction"])


def check_method(method: object) -> None:
    """Raise a ValueError unless `method` is an instance of an inference method, rather than a class."""
    is_method = is_dataclass(method) and all(callable(getattr(method, name, None)) for name in ("check", "fit"))
    if isinstance(method, type) or not is_method:
        raise ValueError(f"method must be an instance of a class in anchored.methods, such as HMC(), got {method!r}")


def checked_likelihood(value: object, method: Method, predictive: type, n_outputs: int) -> Likelihood:
    """Return the argument `likelihood` in float64; raise a ValueError if it cannot be used.

    Parameters
    ----------
    value : object
        The argument. Each field must be positive: one number, or one per output.
    method : Method
        The inference method, which must use all fields of the likelihood.
    predictive : type
        The class of predictive distribution that the estimator returns.
    n_outputs : int
        Number of outputs of the network.
    """
    if not isinstance(value, Likelihood) or value.predictive is not predictive:
        kinds = sorted(name for name, kind in Likelihood.kinds.items() if kind.predictive is predictive)
        raise ValueError(f"likelihood must be an instance of {', '.join(kinds)}, got {value!r}")
    if value.outputs_per_target != 1:
        raise ValueError(
            f"likelihood: {type(value).__name__} needs {value.outputs_per_target} network outputs per output of y; "
            'use likelihood="heteroscedastic", or the method DeepEnsemble'
        )
    allowed = ((),) if predictive is CategoricalPredictive else ((), (n_outputs,))
    for name in value.field_names():
        numbers = np.asarray(getattr(value, name))
        if numbers.shape not in allowed or numbers.dtype.kind not in "iuf":
            raise ValueError(f"likelihood: {name} must be one number, or one for each of {n_outputs} outputs")
        if not np.all(np.isfinite(numbers) & (numbers > 0)):
            raise ValueError(f"likelihood: {name} must be positive, got {numbers}")
        if name in getattr(method, "ignores", ()):
            raise ValueError(f"likelihood: {type(method).__name__} does not use {name}; leave likelihood out")
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), value)


def solver(estimator: BaseEstimator, n_rows: int, is_noise_free: bool = False) -> FirstOrder:
    """Return the solver that the arguments of `estimator` describe, with a batch size for `n_rows` rows.

    `is_noise_free` is whether the data have hardly any noise.
    """
    batch_size = _batch_size(estimator.batch_size, n_rows)
    return FirstOrder(
        optimizer=estimator.optimizer,
        learning_rate=float(estimator.learning_rate_init),
        max_iter=_n_epochs(estimator.max_iter, n_rows, batch_size, is_noise_free),
        batch_size=batch_size,
        early_stopping=bool(estimator.early_stopping),
        patience=int(estimator.n_iter_no_change),
    )


def pilot_solver(n_epochs: int, n_rows: int) -> FirstOrder:
    """Return a solver with the default arguments of an anchored estimator, for `n_epochs` epochs and `n_rows` rows."""
    return FirstOrder(max_iter=n_epochs, batch_size=_batch_size("auto", n_rows), patience=20)


def _n_epochs(given: int | str, n_rows: int, batch_size: int | None, is_noise_free: bool) -> int:
    """Return the number of epochs for `n_rows` rows in batches of `batch_size`; `given` is the argument `max_iter`.

    "auto" gives about N_STEPS steps, but not more than MAX_EPOCHS epochs or fewer than MIN_EPOCHS; NOISE_FREE_FACTOR
    times as many if the data have hardly any noise.
    """
    if given != "auto":
        return int(given)
    steps_per_epoch = 1 if batch_size is None else -(-n_rows // batch_size)
    factor = NOISE_FREE_FACTOR if is_noise_free else 1
    return factor * int(np.clip(round(N_STEPS / steps_per_epoch), MIN_EPOCHS, MAX_EPOCHS))


def _batch_size(given: int | str, n_rows: int) -> int | None:
    """Return the number of rows per batch, or None for all `n_rows` rows; `given` is the argument `batch_size`.

    "auto" gives about 16 batches per epoch, of 16 to 1,024 rows each.
    """
    size = int(np.clip(2 ** round(np.log2(n_rows / 16)), 16, 1024)) if given == "auto" else int(given)
    return size if size < n_rows else None


def check_positive_or_auto(name: str, value: object) -> None:
    """Raise an ArgumentError unless `value`, the argument called `name`, is "auto" or a positive number."""
    if not isinstance(value, str) or value != "auto":
        checks.positive(name, value, 'or "auto"')


def check_prior_scale(value: object) -> None:
    """Raise a ValueError unless `value` is "auto", a positive number, or a sequence of them, one per layer."""
    if isinstance(value, str):
        checks.one_of("prior_scale", value, ("auto",))
        return
    for scale in (value,) if isinstance(value, Real) else _as_tuple("prior_scale", value):
        checks.positive("prior_scale", scale, 'or "auto", or a tuple with one for each layer')


def _as_tuple(name: str, value: object) -> tuple:
    """Return `value`, the argument called `name`, as a tuple; raise a ValueError if it is not a sequence."""
    if not isinstance(value, tuple | list | np.ndarray):
        raise ValueError(f"{name} must be a tuple with one entry per layer, such as (50,), got {value!r}")
    return tuple(value)


def with_placeholder_optimizer(method: Method) -> Method:
    """Return `method` with "adam" in place of an optimiser that was code and not stored, so that it can be checked."""
    solver = getattr(method, "solver", None)
    if getattr(solver, "optimizer", "") is not None:
        return method
    return replace(method, solver=replace(solver, optimizer="adam"))  # type: ignore[type-var]
