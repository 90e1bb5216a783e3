"""Write a fitted estimator as a JSON header and named arrays, and restore it from them.

A file may come from an untrusted source: every field and array is checked before anything is built from it. Classes,
optimisers and activations are looked up by name in tables, and nothing is imported, sampled or trained.
"""

import json
from contextlib import suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from anchored.estimators.base import BayesianEstimator
from anchored.estimators.candidates import Candidate
from anchored.estimators.encoding import MIN_WIDTH, N_BINS, PiecewiseLinearEncoding
from anchored.estimators.labels import labels_from_json, labels_to_json
from anchored.estimators.model_choice import as_prior_scale, is_auto
from anchored.estimators.posteriors import (
    arrays_by_path,
    fit_record,
    model_arrays,
    posterior_arrays,
    read_model,
    read_noise_model,
    read_posterior,
)
from anchored.estimators.saved_arguments import (
    METHODS,
    argument_to_json,
    check_sizes,
    known_likelihood,
    read_arguments,
    read_settings,
)
from anchored.estimators.settings import INPUT_ENCODINGS, with_placeholder_optimizer
from anchored.estimators.standardisation import INPUT_SCALE_RANGE, MAX_DISTANCE, TARGET_SCALE_RANGE, Standardisation
from anchored.inference.posterior import Method
from anchored.model.adapters import as_network
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales
from anchored.model.likelihoods import CenteredGaussian
from anchored.model.networks import ACTIVATIONS, MLP
from anchored.model.predictive import SHAPE_RANGES, CategoricalPredictive, Predictive, Shape
from anchored.storage import archive
from anchored.storage.arrays import Arrays
from anchored.storage.headers import Header, StorageError, as_storage_errors, is_finite_number, is_text, parse

# Fields of the header
FIELDS = ("format", "kind", "params", "fitted", "network", "likelihood", "noise_network", "method", "feature_names",
          "classes", "candidates", "table")  # fmt: skip
MAX_CANDIDATES = 100
TABLE_FIELDS = ("schema", "target", "held_out")  # anchored.tables reads their contents
FITTED = ("seed_", "fingerprint_", "n_rows_seen_", "weight_seen_", "prior_scale_")
FITTED_REGRESSOR = ("y_is_vector_", "noise_variance_")


class Saveable:
    """Mixin of estimators that can be saved to a file."""

    def save(self, path: str | Path) -> None:
        """Save the fitted estimator to one file, which `anchored.load` reads.

        Parameters
        ----------
        path : str or Path
            The file; an existing one is replaced in one step.
        """
        check_is_fitted(self)
        assert isinstance(self, BayesianEstimator)
        save(self, path)


def save(estimator: BayesianEstimator, path: str | Path, table: dict[str, object] | None = None) -> None:
    """Save a fitted estimator to a file. Code is not stored: a custom network must be passed to `load`.

    Parameters
    ----------
    estimator : BayesianEstimator
        The fitted estimator.
    path : str or Path
        The file.
    table : dict or None
        For a model of a table, the description of its columns, in JSON's types.

    Raises
    ------
    TypeError
        If the estimator or its method is not a class of anchored.
    ValueError
        If `load` would refuse the file; nothing is written then.
    """
    if not type(estimator).__module__.startswith("anchored."):
        raise TypeError(f"cannot save a {type(estimator).__name__}: only classes of anchored, not subclasses of them")
    kind = type(fit_record(estimator.posterior_).method)
    if kind not in METHODS.values():
        raise TypeError(f"method: cannot save a {kind.__name__}: load knows only the methods of anchored.methods")
    header, arrays = _header(estimator, table), _arrays(estimator)
    try:
        parsed = parse(json.dumps({**header, "format": archive.FORMAT}))
        restore(type(estimator), parsed, Arrays(arrays), estimator.network)
    except StorageError as error:
        raise ValueError(f"cannot save, because the file could not be loaded: {error}") from error
    archive.write(path, header, arrays)


def _header(estimator: BayesianEstimator, table: dict[str, object] | None) -> dict[str, object]:
    """Return the JSON header of a fitted estimator."""
    is_classification, record = is_classifier(estimator), fit_record(estimator.posterior_)
    target = record.target
    noise_model = getattr(estimator, "noise_model_", None)
    fitted = {name: argument_to_json(getattr(estimator, name)) for name in FITTED}
    if not is_classification:
        fitted["y_is_vector_"] = argument_to_json(estimator.y_is_vector_)
        fitted["noise_variance_"] = np.atleast_1d(estimator.noise_variance_).tolist()
    return {
        "kind": type(estimator).__name__,
        "params": {
            n: argument_to_json(value) for n, value in estimator.get_params(deep=False).items() if n != "network"
        },
        "fitted": fitted,
        "network": asdict(target.network) if estimator.network is None else None,  # type: ignore[call-overload]  # an MLP
        "likelihood": type(target.likelihood).__name__,
        "noise_network": asdict(noise_model.model.network) if noise_model is not None else None,
        "method": argument_to_json(record.method),
        "feature_names": getattr(estimator, "feature_names_in_", np.zeros(0)).tolist() or None,
        "classes": labels_to_json(estimator.classes_) if is_classification else None,
        "candidates": [
            {
                **c._asdict(),
                "score": None if np.isnan(c.score) else c.score,
                "noise": None if np.isnan(c.noise) else c.noise,
            }
            for c in estimator.candidates_
        ],
        "table": table,
    }


def _arrays(estimator: BayesianEstimator) -> dict[str, np.ndarray]:
    """Return the arrays of a fitted estimator by name."""
    arrays = posterior_arrays(estimator.posterior_)
    standardisations = {"x": estimator.x_standardisation_}
    if not is_classifier(estimator):
        standardisations["y"] = estimator.y_standardisation_
    for name, standardisation in standardisations.items():
        arrays |= {f"{name}/{field}": getattr(standardisation, field) for field in ("mean", "scale", "lower", "upper")}
    if not is_classifier(estimator):
        shape, n_outputs = estimator.noise_shape_, len(estimator.y_standardisation_.mean)
        arrays |= {f"noise_shape/{name}": _per_output(getattr(shape, name), n_outputs) for name in SHAPE_RANGES}
    encoding = estimator.input_encoding_
    if encoding is not None:
        arrays |= {f"encoding/{field}": getattr(encoding, field) for field in ("column", "lower", "upper")}
    noise_model = getattr(estimator, "noise_model_", None)
    if noise_model is not None:
        arrays |= model_arrays("noise", noise_model.model) | arrays_by_path("noise/members", noise_model.members)
    return arrays


def restore(kind: type[BayesianEstimator], header: Header, arrays: Arrays, network: object) -> BayesianEstimator:
    """Return a new estimator of class `kind` from the fields and arrays that `save` stored.

    An invalid field or array raises a StorageError that names it.

    Parameters
    ----------
    kind : type
        The class of the estimator.
    header : Header
        The fields of the file.
    arrays : Arrays
        The arrays of the file.
    network : object
        The custom network that the estimator was fitted with, or None.
    """
    header.require_only(FIELDS)
    estimator = kind(**read_arguments(header.child("params"), kind), network=network)
    _read_columns(estimator, header, arrays)
    estimator.input_encoding_ = _read_encoding(arrays, estimator.n_features_in_)
    estimator.candidates_ = [_read_candidate(child) for child in header.children("candidates", MAX_CANDIDATES)]
    n_features = estimator._n_features()
    n_outputs = len(estimator.classes_) if is_classifier(estimator) else len(estimator.y_standardisation_.mean)
    target = _read_target(estimator, header, arrays, n_outputs)
    _read_fitted(estimator, header.child("fitted"), target, n_outputs)
    method = read_settings(header.child("method"), METHODS)
    _check_arguments(estimator, method, target, n_outputs)
    estimator.posterior_ = read_posterior(method, target, arrays, n_features, network is not None)
    has_noise_model = header.value("noise_network") is not None
    if is_classifier(estimator) and has_noise_model:
        header.refuse("must be null for a classifier", "noise_network")
    if not is_classifier(estimator):
        noise_network = _read_mlp(header.child("noise_network"), n_outputs) if has_noise_model else None
        noise_model = noise_network and read_noise_model(noise_network, CenteredGaussian, arrays, n_features)
        estimator.noise_model_ = noise_model
        estimator.noise_shape_ = _read_shape(arrays, n_outputs)
    if header.value("table") is not None:
        _check_table(header.child("table"))
    arrays.require_no_more()
    estimator._after_loading()
    return estimator


def _check_arguments(estimator: BayesianEstimator, method: Method, target: BayesianModel, n_outputs: int) -> None:
    """Raise a StorageError if `fit` would reject an argument of a loaded `estimator`.

    Parameters
    ----------
    estimator : BayesianEstimator
        The estimator, whose arguments and `n_features_in_` are set.
    method : Method
        The inference method of its fit.
    target : BayesianModel
        The model that was passed to the method's `fit`.
    n_outputs : int
        Number of outputs of the network.
    """
    checked = copy(estimator)
    # An optimiser that is code is not stored: it is None, and any other passes the check in its place
    if "optimizer" in estimator.get_params(deep=False):
        checked.optimizer = estimator.optimizer or "adam"
    if "method" in estimator.get_params(deep=False):
        checked.method = with_placeholder_optimizer(estimator.method)
    with as_storage_errors("params."):
        checked._check_arguments()
        inputs = np.zeros((1, estimator._n_features()), np.float32)
        if isinstance(target.network, MLP) and is_auto(checked.hidden_layer_sizes):
            checked.hidden_layer_sizes = target.network.hidden_layer_sizes
        sizes = checked._sizes(n_rows=0)  # the number of rows does not matter
        make_model = checked._model_factory(with_placeholder_optimizer(method), inputs, n_outputs, sizes)
        with suppress(ImportError):  # a package that only fitting needs may be missing
            scale = 1.0 if is_auto(checked.prior_scale) else as_prior_scale(checked.prior_scale)
            make_model(scale, target.likelihood)
        checked._given_likelihood(*(() if is_classifier(checked) else (n_outputs,)))


def _check_table(table: Header) -> None:
    """Raise a StorageError unless `table` has TABLE_FIELDS, each an object; `anchored.tables` checks their contents."""
    table.require_only(TABLE_FIELDS)
    for name in TABLE_FIELDS:
        table.child(name)


def _read_columns(estimator: BayesianEstimator, header: Header, arrays: Arrays) -> None:
    """Set the fitted attributes that describe the columns of X and y: standardisations, feature names and classes."""
    estimator.x_standardisation_ = _read_standardisation(arrays, "x", INPUT_SCALE_RANGE)
    estimator.n_features_in_ = len(estimator.x_standardisation_.mean)
    if header.value("feature_names") is not None:
        names = header.listed("feature_names", is_text, "names", longest=10**6)
        if len(names) != estimator.n_features_in_:
            header.refuse(f"must name {estimator.n_features_in_} columns, not {len(names)}", "feature_names")
        estimator.feature_names_in_ = np.array(names, object)
    if is_classifier(estimator):
        estimator.classes_ = labels_from_json(header.child("classes"))
        return
    if header.value("classes") is not None:
        header.refuse("must be null for a regressor", "classes")
    estimator.y_standardisation_ = _read_standardisation(arrays, "y", TARGET_SCALE_RANGE)


def _read_standardisation(arrays: Arrays, name: str, scale_range: tuple[float, float]) -> Standardisation:
    """Return the standardisation whose arrays' names start with `name`; its scales must lie within `scale_range`."""
    mean = arrays.take(f"{name}/mean", (None,), ("float64",))
    if len(mean) == 0:
        arrays.refuse(f"{name}/mean", "must have an entry for each column, but is empty")
    scale = arrays.take(f"{name}/scale", mean.shape, ("float64",), *scale_range)
    if np.max(np.abs(mean) / MAX_DISTANCE - scale) > 0:  # float64 could not distinguish the values of such a column
        arrays.refuse(f"{name}/mean", f"must be at most {MAX_DISTANCE:g} times the scale")
    lower = arrays.take(f"{name}/lower", mean.shape, ("float64",), -np.inf, 0)
    upper = arrays.take(f"{name}/upper", mean.shape, ("float64",), 0, np.inf)
    return Standardisation(mean, scale, lower, upper)


def _read_encoding(arrays: Arrays, n_columns: int) -> PiecewiseLinearEncoding | None:
    """Return the encoding of the inputs, or None if the file has none; there are `n_columns` standardised inputs."""
    if "encoding/column" not in arrays:
        return None
    column = arrays.take("encoding/column", (None,), ("int64",), 0, n_columns - 1)
    if len(column) > N_BINS * n_columns:
        arrays.refuse("encoding/column", f"must hold at most {N_BINS} bins for each of {n_columns} columns")
    lower = arrays.take("encoding/lower", column.shape, ("float64",), -MAX_DISTANCE, MAX_DISTANCE)
    upper = arrays.take("encoding/upper", column.shape, ("float64",), -MAX_DISTANCE, MAX_DISTANCE)
    if np.any(upper - lower < MIN_WIDTH):
        arrays.refuse("encoding/upper", f"must exceed encoding/lower by at least {MIN_WIDTH:g}")
    return PiecewiseLinearEncoding(n_columns, column, lower, upper)


def _read_candidate(header: Header) -> Candidate:
    """Return one of the candidates that arguments set to "auto" were chosen from."""
    header.require_only(Candidate._fields)
    number = float | tuple[float, ...] | None
    scale, noise, score = (header.typed(name, number) for name in ("prior_scale", "noise", "score"))
    for name, value in (("noise", noise), ("score", score)):
        if isinstance(value, tuple):
            header.refuse("must be a number or null", name)
    sizes = header.typed("hidden_layer_sizes", tuple[int, ...] | None)
    return Candidate(
        sizes,
        header.text("trainable", ("all", "last_layer")),
        header.text("input_encoding", INPUT_ENCODINGS),
        scale,
        np.nan if noise is None else noise,
        header.whole("n_epochs"),
        np.nan if score is None else score,
    )


def _per_output(values: np.ndarray | float, n_outputs: int) -> np.ndarray:
    """Return `values` as an array with one entry for each output."""
    return np.array(np.broadcast_to(values, n_outputs), np.float64)


def _read_shape(arrays: Arrays, n_outputs: int) -> Shape:
    """Return the shape of the predictive distribution."""

    def read(name: str) -> np.ndarray:
        return arrays.take(f"noise_shape/{name}", (n_outputs,), ("float64",), *SHAPE_RANGES[name])

    return Shape(**{name: read(name) for name in SHAPE_RANGES})


def _read_target(estimator: BayesianEstimator, header: Header, arrays: Arrays, n_outputs: int) -> BayesianModel:
    """Return the model of the fit, whose posterior is approximated: its network, prior and likelihood."""
    predictive = CategoricalPredictive if is_classifier(estimator) else Predictive
    likelihood = known_likelihood(
        header, "likelihood", lambda kind: kind.predictive is predictive and kind.outputs_per_target == 1
    )
    is_custom = header.value("network") is None
    if is_custom and estimator.network is None:
        raise StorageError("it was fitted with a custom network: pass that network, load(path, network=...)")
    if not is_custom and estimator.network is not None:
        raise StorageError("it was not fitted with a custom network: load it without network")
    network = as_network(estimator.network) if is_custom else _read_mlp(header.child("network"), n_outputs)
    return read_model("model", network, likelihood, arrays, estimator._n_features(), n_outputs, is_custom)


def _read_mlp(header: Header, n_outputs: int) -> MLP:
    """Return the MLP described by `header`, which must have `n_outputs` outputs."""
    network = header.as_dataclass(MLP)
    check_sizes(header, network.hidden_layer_sizes)
    header.text("activation", ACTIVATIONS)  # this call and the next only check the field
    header.whole("n_outputs", n_outputs, n_outputs)
    return network


def _read_fitted(estimator: BayesianEstimator, fitted: Header, target: BayesianModel, n_outputs: int) -> None:
    """Set the fitted attributes of `estimator` that are numbers or text, from the object `fitted` of the header."""
    fitted.require_only(FITTED + (() if is_classifier(estimator) else FITTED_REGRESSOR))
    estimator.seed_ = fitted.whole("seed_", 0, 2**31 - 1)
    estimator.fingerprint_ = fitted.text("fingerprint_", longest=100)
    estimator.n_rows_seen_ = fitted.whole("n_rows_seen_", 1, 2**32 - 1)
    estimator.weight_seen_ = fitted.number("weight_seen_", np.finfo(float).tiny)
    estimator.prior_scale_ = fitted.typed("prior_scale_", float | tuple[float, ...])
    n_layers, shape = len(default_layer_scales(target.network, 1.0)), np.shape(estimator.prior_scale_)
    if np.any(np.asarray(estimator.prior_scale_) <= 0) or shape not in ((), (n_layers,)):
        fitted.refuse(f"must be a positive number, or one for each of {n_layers} layers", "prior_scale_")
    if is_classifier(estimator):
        return
    estimator.y_is_vector_ = fitted.flag("y_is_vector_")
    if estimator.y_is_vector_ and n_outputs != 1:
        fitted.refuse(f"must be false for {n_outputs} outputs", "y_is_vector_")
    name = "noise_variance_"
    values = fitted.listed(name, lambda value: is_finite_number(value) and value > 0, "positive numbers")
    if len(values) != n_outputs:
        fitted.refuse(f"must have one number for each of {n_outputs} outputs, not {len(values)}", name)
    estimator.noise_variance_ = estimator._scalar_or_array(np.array(values, np.float64))
