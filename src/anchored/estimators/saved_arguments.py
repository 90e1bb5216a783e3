"""Write the constructor arguments of an estimator as JSON, and read them back.

When arguments are read, only their types and sizes are checked here. `persistence` then checks their values as `fit`
does.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from anchored.inference.anchoring import Anchoring
from anchored.inference.posterior import Method
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.solvers.optimizers import OPTIMIZERS
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.bootstrap_ensemble import BootstrapEnsemble
from anchored.methods.deep_ensemble import DeepEnsemble
from anchored.methods.early_stopped_ensemble import EarlyStoppedEnsemble
from anchored.methods.gaussian_process import GaussianProcess
from anchored.methods.hmc import HMC
from anchored.methods.mc_dropout import MCDropout
from anchored.methods.randomized_prior import RandomizedPrior
from anchored.methods.regularized_ensemble import RegularizedEnsemble
from anchored.methods.unregularized_ensemble import UnregularizedEnsemble
from anchored.methods.variational import VariationalInference
from anchored.model.likelihoods import Likelihood
from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject, JsonValue, json_value

NOT_STORED: JsonObject = {"not stored": True}  # stands for an argument that is a function or a random generator
METHODS: dict[str, type[Method]] = {  # classes of inference methods that can be saved, by name
    method.__name__: method
    for method in (
        AnchoredEnsemble, UnregularizedEnsemble, RegularizedEnsemble, BootstrapEnsemble, DeepEnsemble, RandomizedPrior,
        EarlyStoppedEnsemble, MCDropout, VariationalInference, HMC, GaussianProcess,
    )
}  # fmt: skip
SOLVERS: dict[str, type[FirstOrder] | type[GaussNewton]] = {
    solver.__name__: solver for solver in (FirstOrder, GaussNewton)
}
MAX_LAYERS, MAX_UNITS = 100, 2**24  # largest number of hidden layers, and of units in each
MAX_COUNT = 10**6  # largest whole number in the settings of a method, such as its number of members or steps
TYPES: dict[str, object] = {  # types of the constructors' arguments, except for the arguments in READERS
    "n_estimators": int,
    "hidden_layer_sizes": str | tuple[int, ...],
    "input_encoding": str,
    "activation": str,
    "noise_variance": str | float | tuple[float, ...],
    "temperature": str | float,
    "prior_scale": str | float | tuple[float, ...],
    "anchoring": Anchoring,
    "trainable": str,
    "learning_rate_init": float,
    "max_iter": str | int,
    "batch_size": str | int,
    "early_stopping": bool,
    "validation_fraction": float,
    "n_iter_no_change": int,
    "warm_start": bool,
    "n_jobs": int | None,
    "verbose": bool | int | float,
}
Settings = TypeVar("Settings")


def argument_to_json(value: object) -> JsonValue:
    """Return the argument `value` as JSON.

    A method, solver or likelihood becomes an object with its fields, and with the name of its class in the field
    "class". Values that JSON cannot hold become NOT_STORED.
    """
    if is_dataclass(value) and type(value).__name__ in {**METHODS, **SOLVERS, **Likelihood.kinds}:
        values = {field.name: argument_to_json(getattr(value, field.name)) for field in fields(value)}
        return {"class": type(value).__name__, **values}
    try:
        return json_value(value)
    except TypeError:
        return NOT_STORED


def read_arguments(header: Header, estimator_class: type[BaseEstimator]) -> dict[str, object]:
    """Return the arguments of the constructor of `estimator_class`, by name, except for `network`.

    `header` is the JSON object that holds them. Its lists become tuples. A field of the wrong type or size raises a
    StorageError.
    """
    names = [name for name in estimator_class._get_param_names() if name != "network"]
    header.require_only(names)
    arguments = {name: READERS[name](header) if name in READERS else header.typed(name, TYPES[name]) for name in names}
    sizes = arguments["hidden_layer_sizes"]
    check_sizes(header, () if isinstance(sizes, str) else sizes)  # type: ignore[arg-type]  # of the type in TYPES
    return arguments


def check_sizes(header: Header, sizes: tuple[int, ...]) -> None:
    """Raise a StorageError if the field "hidden_layer_sizes" of `header` has too many layers, or too large ones.

    `sizes` is the value of the field: the number of units of each hidden layer.
    """
    if len(sizes) > MAX_LAYERS or not all(1 <= size <= MAX_UNITS for size in sizes):
        header.refuse(f"must hold at most {MAX_LAYERS} layers of 1 to {MAX_UNITS:,} units", "hidden_layer_sizes")


def read_settings(header: Header, known: Mapping[str, type[Settings]]) -> Settings:
    """Return the method or solver that `header` describes; `known` holds the classes that it may name, by name."""
    settings_class = known[header.text("class", known)]
    class_fields = fields(settings_class)  # type: ignore[arg-type]  # methods and solvers are dataclasses
    header.require_only(["class", *(field.name for field in class_fields)])
    values: dict[str, object] = {}
    for field in class_fields:
        if field.name == "solver":
            values["solver"] = read_settings(header.child("solver"), SOLVERS)
        elif field.name == "optimizer":
            values["optimizer"] = _read_optimizer(header)
        else:
            values[field.name] = value = header.typed(field.name, field.type)
            if known is METHODS and isinstance(value, int) and value > MAX_COUNT:
                header.refuse(f"must be at most {MAX_COUNT:,}, not {value:,}", field.name)
    return settings_class(**values)


def _read_method(header: Header) -> Method:
    """Return the argument `method` of a BayesianRegressor or BayesianClassifier."""
    return read_settings(header.child("method"), METHODS)


def _read_optimizer(header: Header) -> str | None:
    """Return the name of the optimiser, or None if it was a function, which is not stored."""
    return None if header.value("optimizer") == NOT_STORED else header.text("optimizer", OPTIMIZERS)


def _read_seed(header: Header) -> int | None:
    """Return the argument `random_state`, or None if it was None or a generator, which is not stored."""
    is_seed = header.value("random_state") not in (None, NOT_STORED)
    return header.whole("random_state", 0, 2**32 - 1) if is_seed else None


def read_likelihood_class(
    header: Header, name: str, is_allowed: Callable[[type[Likelihood]], bool]
) -> type[Likelihood]:
    """Return the class of likelihoods that a field of a file names.

    Parameters
    ----------
    header : Header
        The JSON object with the field.
    name : str
        The name of the field.
    is_allowed : function
        Says whether the field may name a given class. If it names another class, a StorageError is raised.
    """
    known = {class_name: likelihood for class_name, likelihood in Likelihood.kinds.items() if is_allowed(likelihood)}
    value = header.value(name)
    if isinstance(value, str) and value not in Likelihood.kinds:
        header.refuse(
            f"must be one of {sorted(known)}; if it is your own likelihood, import the module that defines it first",
            name,
        )
    return known[header.text(name, known)]


def _read_likelihood(header: Header) -> str | Likelihood:
    """Return the argument `likelihood` of a BayesianRegressor or BayesianClassifier: a string, or a Likelihood."""
    if isinstance(header.value("likelihood"), str):
        return header.text("likelihood", ("auto", "heteroscedastic"))
    child = header.child("likelihood")
    likelihood_class = read_likelihood_class(child, "class", is_dataclass)
    names = likelihood_class.field_names()
    child.require_only(["class", *names])
    return likelihood_class(**{name: np.asarray(child.typed(name, float | tuple[float, ...])) for name in names})


READERS: dict[str, Callable[[Header], object]] = {  # readers of arguments that `Header.typed` cannot read
    "method": _read_method,
    "likelihood": _read_likelihood,
    "optimizer": _read_optimizer,
    "random_state": _read_seed,
}
