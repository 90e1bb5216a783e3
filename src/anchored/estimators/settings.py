"""Check the arguments of the estimators' constructors, and make solvers from them."""

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
N_STEPS, MIN_EPOCHS, MAX_EPOCHS = 4_800, 8, 300  # gradient steps and epochs of a fit with max_iter="auto"
NOISE_FREE_FACTOR = 2  # times as many epochs for data with hardly any noise, because the fit keeps improving


def is_auto(value: object) -> bool:
    """Return whether the argument `value` is "auto"."""
    return isinstance(value, str) and value == "auto"


def check_network(estimator: BaseEstimator) -> None:
    """Raise a ValueError if an argument of `estimator` for the network, its inputs or its prior is invalid.

    Also raises an error if JAX cannot run in this process.
    """
    compilation.check_process()
    params = estimator.get_params(deep=False)
    if not is_auto(params["hidden_layer_sizes"]):
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
    """Raise a ValueError if an argument of `estimator` for the ensemble or its training is invalid."""
    params = estimator.get_params(deep=False)
    for name in ("n_estimators", "n_iter_no_change"):
        checks.whole(name, params[name])
    if not is_auto(params["max_iter"]):
        checks.whole("max_iter", params["max_iter"], alternative='or "auto"')
    checks.one_of("trainable", params["trainable"], ("all", "last_layer"))
    checks.positive("learning_rate_init", params["learning_rate_init"])
    check_optimizer(params["optimizer"])
    if not is_auto(params["batch_size"]):
        checks.whole("batch_size", params["batch_size"], alternative='or "auto"')
    for name in ("early_stopping", "warm_start"):
        if not isinstance(params[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {params[name]!r}")
    checks.fraction("validation_fraction", params["validation_fraction"])


def check_method(method: object) -> None:
    """Raise a ValueError unless `method` is an inference method: an instance, not a class."""
    is_method = is_dataclass(method) and all(callable(getattr(method, name, None)) for name in ("check", "fit"))
    if isinstance(method, type) or not is_method:
        raise ValueError(f"method must be an instance of a class in anchored.methods, such as HMC(), got {method!r}")


def checked_likelihood(value: object, method: Method, predictive: type, n_outputs: int) -> Likelihood:
    """Check the argument `likelihood` of an estimator, and raise a ValueError if it cannot be used.

    Parameters
    ----------
    value : object
        The argument. Each field must be positive: one number, or one per output.
    method : Method
        The inference method, which must use all fields of the likelihood.
    predictive : type
        The class of the predictive distributions that the estimator returns.
    n_outputs : int
        Number of outputs of the network.

    Returns
    -------
    Likelihood
        The likelihood, with fields in float64.
    """
    if not isinstance(value, Likelihood) or value.predictive is not predictive:
        known = [name for name, likelihood in Likelihood.kinds.items() if likelihood.predictive is predictive]
        raise ValueError(f"likelihood must be an instance of {' or '.join(sorted(known))}, got {value!r}")
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
            raise ValueError(f'likelihood: {type(method).__name__} does not use {name}; use likelihood="auto"')
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), value)


def solver(estimator: BaseEstimator, n_rows: int, is_nearly_noise_free: bool = False) -> FirstOrder:
    """Return the solver that the arguments of an estimator describe.

    Parameters
    ----------
    estimator : BaseEstimator
        An anchored estimator.
    n_rows : int
        Number of training rows, on which the batch size and the number of epochs depend.
    is_nearly_noise_free : bool
        Whether the data have hardly any noise. Such data need more epochs of training.
    """
    batch_size = _batch_size(estimator.batch_size, n_rows)
    return FirstOrder(
        optimizer=estimator.optimizer,
        learning_rate=float(estimator.learning_rate_init),
        max_iter=_n_epochs(estimator.max_iter, n_rows, batch_size, is_nearly_noise_free),
        batch_size=batch_size,
        early_stopping=bool(estimator.early_stopping),
        patience=int(estimator.n_iter_no_change),
    )


def pilot_solver(n_epochs: int, n_rows: int) -> FirstOrder:
    """Return the solver of pilot members of a method that is not an anchored ensemble.

    It has the default arguments of an anchored estimator, except for the number of epochs, `n_epochs`. `n_rows` is the
    number of training rows, on which the batch size depends.
    """
    return FirstOrder(max_iter=n_epochs, batch_size=_batch_size("auto", n_rows), patience=20)


def _n_epochs(max_iter: int | str, n_rows: int, batch_size: int | None, is_nearly_noise_free: bool) -> int:
    """Return the number of epochs for `n_rows` rows in batches of `batch_size`; None is one batch of all rows.

    `max_iter` is the argument of the estimator. "auto" gives about N_STEPS steps, in MIN_EPOCHS to MAX_EPOCHS epochs,
    and NOISE_FREE_FACTOR times as many if the data have hardly any noise.
    """
    if max_iter != "auto":
        return int(max_iter)
    steps_per_epoch = 1 if batch_size is None else -(-n_rows // batch_size)
    factor = NOISE_FREE_FACTOR if is_nearly_noise_free else 1
    return factor * int(np.clip(round(N_STEPS / steps_per_epoch), MIN_EPOCHS, MAX_EPOCHS))


def _batch_size(batch_size: int | str, n_rows: int) -> int | None:
    """Return the number of rows per batch, or None for one batch of all `n_rows` rows.

    `batch_size` is the argument of the estimator. "auto" gives about 16 batches per epoch, of 16 to 1,024 rows each.
    """
    size = int(np.clip(2 ** round(np.log2(n_rows / 16)), 16, 1024)) if batch_size == "auto" else int(batch_size)
    return size if size < n_rows else None


def check_positive_or_auto(name: str, value: object) -> None:
    """Raise an ArgumentError unless the argument `name` has a `value` that is "auto" or a positive number."""
    if not is_auto(value):
        checks.positive(name, value, 'or "auto"')


def check_prior_scale(value: object) -> None:
    """Raise a ValueError unless the argument `prior_scale` is "auto", a positive number, or a sequence of them."""
    if isinstance(value, str):
        checks.one_of("prior_scale", value, ("auto",))
        return
    for scale in (value,) if isinstance(value, Real) else _as_tuple("prior_scale", value):
        checks.positive("prior_scale", scale, 'or "auto", or a tuple with one for each layer')


def _as_tuple(name: str, value: object) -> tuple:
    """Return `value`, the argument `name`, as a tuple; raise a ValueError if it is not a tuple, list or array."""
    if not isinstance(value, tuple | list | np.ndarray):
        raise ValueError(f"{name} must be a tuple with one entry per layer, such as (50,), got {value!r}")
    return tuple(value)


def with_placeholder_optimizer(method: Method) -> Method:
    """Return a loaded `method` that can be checked, even if its optimiser is missing.

    An optimiser given as a function is not stored, and is None after loading. "adam" takes its place.
    """
    solver = getattr(method, "solver", None)
    if getattr(solver, "optimizer", "") is not None:
        return method
    return replace(method, solver=replace(solver, optimizer="adam"))  # type: ignore[type-var]
