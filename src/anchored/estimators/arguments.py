"""Constructor arguments, methods and solvers as JSON, and back: types by a table, values by the checks of `fit`."""

from contextlib import suppress
from copy import copy
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from anchored.estimators import selection
from anchored.estimators.settings import with_optimizer
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
from anchored.storage.headers import Header, as_storage_errors
from anchored.storage.json_values import JsonObject, JsonValue, json_value

NOT_STORED: JsonObject = {"not stored": True}  # stands for an argument that is code: an optimiser, a generator
METHODS: dict[str, type[Method]] = {  # that can be saved
    kind.__name__: kind
    for kind in (
        AnchoredEnsemble, UnregularizedEnsemble, RegularizedEnsemble, BootstrapEnsemble, DeepEnsemble, RandomizedPrior,
        EarlyStoppedEnsemble, MCDropout, VariationalInference, HMC, GaussianProcess,
    )
}  # fmt: skip
SOLVERS: dict[str, type[FirstOrder] | type[GaussNewton]] = {kind.__name__: kind for kind in (FirstOrder, GaussNewton)}
MOST_LAYERS, MOST_UNITS = 100, 2**24
MOST_DRAWS = 10**6  # or whatever a method counts
TYPES: dict[str, object] = {  # of all but method, optimizer and random_state
    "n_estimators": int,
    "hidden_layer_sizes": tuple[int, ...],
    "activation": str,
    "noise_variance": str | float | tuple[float, ...],
    "temperature": str | float,
    "prior_scale": str | float | tuple[float, ...],
    "anchoring": Anchoring,
    "trainable": str,
    "learning_rate_init": float,
    "max_iter": int,
    "batch_size": str | int,
    "early_stopping": bool,
    "validation_fraction": float,
    "n_iter_no_change": int,
    "warm_start": bool,
    "n_jobs": int | None,
    "verbose": bool | int | float,
}


def plain(value: object) -> JsonValue:
    """JSON's types, a method or a solver by its fields, or a mark that the value is not stored."""
    if is_dataclass(value) and type(value).__name__ in {**METHODS, **SOLVERS, **Likelihood.kinds}:
        return {"settings": type(value).__name__, **{f.name: plain(getattr(value, f.name)) for f in fields(value)}}
    try:
        return json_value(value)
    except TypeError:
        return NOT_STORED


def read_arguments(params: Header, kind: Any) -> dict[str, Any]:
    """The arguments of an estimator of this class, except for its network. Lists come back as tuples."""
    names = {name for name in kind._get_param_names() if name != "network"}
    params.require_only(names)
    given = {name: params.typed(name, TYPES[name]) for name in names if name in TYPES}
    check_sizes(params, given["hidden_layer_sizes"])
    if "method" in names:
        given["method"] = read_settings(params.child("method"), METHODS)
    if "optimizer" in names:
        given["optimizer"] = _read_optimizer(params)
    if "likelihood" in names:
        given["likelihood"] = _read_likelihood(params)
    is_seed = params.value("random_state") not in (None, NOT_STORED)
    given["random_state"] = params.whole("random_state", 0, 2**32 - 1) if is_seed else None
    return given


def check_sizes(described: Header, sizes: tuple[int, ...]) -> None:
    """Raise unless a network may have such layers."""
    if len(sizes) > MOST_LAYERS or not all(1 <= size <= MOST_UNITS for size in sizes):
        described.refuse(f"must hold at most {MOST_LAYERS} layers of 1 to {MOST_UNITS:,} units", "hidden_layer_sizes")


def read_settings(described: Header, known: dict[str, Any]) -> Any:
    """A method or a solver of one of the classes known."""
    kind = known[described.text("settings", known)]
    described.require_only(["settings", *(field.name for field in fields(kind))])
    given = {}
    for field in fields(kind):
        if field.name == "solver":
            given["solver"] = read_settings(described.child("solver"), SOLVERS)
        elif field.name == "optimizer":
            given["optimizer"] = _read_optimizer(described)
        else:
            given[field.name] = value = described.typed(field.name, field.type)
            if known is METHODS and isinstance(value, int) and value > MOST_DRAWS:
                described.refuse(f"must be at most {MOST_DRAWS:,}, not {value:,}", field.name)
    return kind(**given)


def _read_optimizer(described: Header) -> str | None:
    return None if described.value("optimizer") == NOT_STORED else described.text("optimizer", OPTIMIZERS)


def _read_likelihood(params: Header) -> str | Likelihood:
    if isinstance(params.value("likelihood"), str):
        return params.text("likelihood", ("auto", "heteroscedastic"))
    described = params.child("likelihood")
    known = {name: kind for name, kind in Likelihood.kinds.items() if is_dataclass(kind)}
    kind = known[described.text("settings", known)]
    names = kind.field_names()
    described.require_only(["settings", *names])
    return kind(**{name: np.asarray(described.typed(name, float | tuple[float, ...])) for name in names})


def check_arguments(estimator: Any, method: Method, likelihood: Likelihood, n_outputs: int) -> None:
    """Raise a StorageError where `fit` would complain of an argument."""
    checked = copy(estimator)
    if "optimizer" in estimator.get_params(deep=False):
        checked.optimizer = estimator.optimizer or "adam"
    if "method" in estimator.get_params(deep=False):
        checked.method = with_optimizer(estimator.method)
    with as_storage_errors("params."):
        checked._check_arguments()
        inputs = np.zeros((1, estimator.n_features_in_), np.float32)
        make = checked._model_maker(with_optimizer(method), inputs, n_outputs)
        with suppress(ImportError):  # of a package that a method needs to fit, but not to predict
            make(selection.prior_scale_candidates(checked.prior_scale)[0], likelihood)
        checked._given_likelihood(*(() if is_classifier(checked) else (n_outputs,)))
