"""Save a fitted estimator as a JSON header and named arrays, and restore it from them.

A file may come from an untrusted source, so every field and array is checked before it is used. Classes, optimisers and
activations are looked up by name in tables; nothing is imported, sampled or trained.
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
from anchored.estimators.labels import labels_from_json, labels_to_json
from anchored.estimators.model_choice import as_prior_scale
from anchored.estimators.posteriors import fit_record, posterior_arrays, read_posterior
from anchored.estimators.saved_arguments import (
    METHODS,
    argument_to_json,
    check_sizes,
    read_arguments,
    read_likelihood_class,
    read_settings,
)
from anchored.estimators.saved_attributes import (
    candidate_to_json,
    encoding_arrays,
    read_candidate,
    read_encoding,
    read_guarantee,
    read_shape,
    read_standardisation,
    shape_arrays,
    standardisation_arrays,
)
from anchored.estimators.saved_models import arrays_by_path, model_arrays, read_model, read_noise_model
from anchored.estimators.settings import is_auto, with_placeholder_optimizer
from anchored.estimators.standardisation import INPUT_SCALE_RANGE, TARGET_SCALE_RANGE
from anchored.inference.posterior import Method
from anchored.model.adapters import as_network
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales
from anchored.model.likelihoods import CenteredGaussian, Likelihood
from anchored.model.networks import ACTIVATIONS, MLP
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.storage import archive
from anchored.storage.arrays import Arrays
from anchored.storage.headers import Header, StorageError, as_storage_errors, is_finite_number, is_text, parse

# Fields of the header
HEADER_FIELDS = ("format", "kind", "params", "fitted", "network", "likelihood", "noise_network", "method",
                 "feature_names", "classes", "candidates", "table")  # fmt: skip
OPTIONAL_FIELDS = ("guarantee",)  # missing if `conformalize` was not called
MAX_CANDIDATES = 100
TABLE_FIELDS = ("schema", "target", "held_out")  # fields of "table", whose contents anchored.tables reads

# Fitted attributes in the field "fitted": of every estimator, and further ones of a regressor
FITTED = ("seed_", "fingerprint_", "n_rows_seen_", "weight_seen_", "prior_scale_")
FITTED_OF_REGRESSOR = ("y_is_vector_", "noise_variance_")


class Saveable:
    """Mixin for estimators that can be saved to a file."""

    def save(self, path: str | Path) -> None:
        """Save the fitted estimator to a file, from which `anchored.load` restores it.

        A custom network is code and is not stored. Pass it to `load`.

        Parameters
        ----------
        path : str or Path
            The file. An existing file is replaced in one step.
        """
        check_is_fitted(self)
        assert isinstance(self, BayesianEstimator)
        save(self, path)


def save(estimator: BayesianEstimator, path: str | Path, table: dict[str, object] | None = None) -> None:
    """Save a fitted estimator to a file, from which `anchored.load` restores it.

    A custom network is code and is not stored. Pass it to `load`.

    Parameters
    ----------
    estimator : BayesianEstimator
        The fitted estimator.
    path : str or Path
        The file.
    table : dict or None
        If the estimator was fitted to a table, the description of its columns: a JSON object with TABLE_FIELDS.

    Raises
    ------
    TypeError
        If the class of the estimator or of its method is not defined in anchored.
    ValueError
        If `load` would reject the file. Nothing is written then.
    """
    if not type(estimator).__module__.startswith("anchored."):
        raise TypeError(
            f"cannot save a {type(estimator).__name__}: only the estimators of anchored can be saved, not subclasses"
        )
    method_class = type(fit_record(estimator.posterior_).method)
    if method_class not in METHODS.values():
        raise TypeError(
            f"method: cannot save a {method_class.__name__}: only fits by the methods of anchored.methods can be saved"
        )
    header, arrays = _header(estimator, table), _arrays(estimator)
    try:
        parsed = parse(json.dumps({**header, "format": archive.FORMAT}))
        restore(type(estimator), parsed, Arrays(arrays), estimator.network)
    except StorageError as error:
        raise ValueError(f"cannot save: the file could not be loaded again: {error}") from error
    archive.write(path, header, arrays)


def _header(estimator: BayesianEstimator, table: dict[str, object] | None) -> dict[str, object]:
    """Return the JSON header of a fitted estimator."""
    is_classification, record = is_classifier(estimator), fit_record(estimator.posterior_)
    target = record.target
    params, noise_model = estimator.get_params(deep=False), getattr(estimator, "noise_model_", None)
    fitted = {name: argument_to_json(getattr(estimator, name)) for name in FITTED}
    if not is_classification:
        fitted["y_is_vector_"] = argument_to_json(estimator.y_is_vector_)
        fitted["noise_variance_"] = np.atleast_1d(estimator.noise_variance_).tolist()
    guarantee = estimator.guarantee_
    return {
        "kind": type(estimator).__name__,
        "params": {name: argument_to_json(params[name]) for name in params if name != "network"},
        "fitted": fitted,
        "network": asdict(target.network) if estimator.network is None else None,  # type: ignore[call-overload]  # an MLP
        "likelihood": type(target.likelihood).__name__,
        "noise_network": asdict(noise_model.model.network) if noise_model is not None else None,
        "method": argument_to_json(record.method),
        "feature_names": getattr(estimator, "feature_names_in_", np.zeros(0)).tolist() or None,
        "classes": labels_to_json(estimator.classes_) if is_classification else None,
        "candidates": [candidate_to_json(candidate) for candidate in estimator.candidates_],
        "table": table,
    } | ({} if guarantee is None else {"guarantee": asdict(guarantee)})


def _arrays(estimator: BayesianEstimator) -> dict[str, np.ndarray]:
    """Return the arrays of a fitted estimator, by name."""
    arrays = posterior_arrays(estimator.posterior_)
    arrays |= standardisation_arrays("x", estimator.x_standardisation_) | encoding_arrays(estimator.input_encoding_)
    if not is_classifier(estimator):
        arrays |= standardisation_arrays("y", estimator.y_standardisation_)
        arrays |= shape_arrays(estimator.noise_shape_, len(estimator.y_standardisation_.mean))
    noise_model = getattr(estimator, "noise_model_", None)
    if noise_model is not None:
        arrays |= model_arrays("noise", noise_model.model) | arrays_by_path("noise/members", noise_model.members)
    return arrays


def restore(
    estimator_class: type[BayesianEstimator], header: Header, arrays: Arrays, network: object
) -> BayesianEstimator:
    """Return a fitted estimator, made from the header and arrays of its file.

    Parameters
    ----------
    estimator_class : type
        The class of the estimator.
    header : Header
        The JSON header of the file.
    arrays : Arrays
        The arrays of the file.
    network : object
        The custom network that the estimator was fitted with, or None.

    Returns
    -------
    BayesianEstimator
        The fitted estimator.

    Raises
    ------
    StorageError
        If a field or an array is invalid. The error names it.
    """
    header.require_only(HEADER_FIELDS, OPTIONAL_FIELDS)
    estimator = estimator_class(**read_arguments(header.child("params"), estimator_class), network=network)
    _read_columns(estimator, header, arrays)
    estimator.input_encoding_ = read_encoding(arrays, estimator.n_features_in_)
    estimator.candidates_ = [read_candidate(child) for child in header.children("candidates", MAX_CANDIDATES)]
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
        estimator.noise_shape_ = read_shape(arrays, n_outputs)
    n_margins = 1 if is_classifier(estimator) else n_outputs
    estimator.guarantee_ = read_guarantee(header.child("guarantee"), n_margins) if "guarantee" in header else None
    if header.value("table") is not None:
        _check_table(header.child("table"))
    arrays.require_no_more()
    estimator._after_loading()
    return estimator


def _check_arguments(estimator: BayesianEstimator, method: Method, target: BayesianModel, n_outputs: int) -> None:
    """Raise a StorageError if `fit` would reject an argument of the loaded `estimator`.

    Parameters
    ----------
    estimator : BayesianEstimator
        The estimator. Its arguments and the attributes that describe the columns of X and y are set.
    method : Method
        The inference method that it was fitted with.
    target : BayesianModel
        The model that it was fitted with.
    n_outputs : int
        Number of outputs of the network.
    """
    checked = copy(estimator)
    # An optimiser given as a function is not stored, and is None here. "adam" takes its place in the checks.
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
        with suppress(ImportError):  # an optional package that is needed only to fit may be missing
            scale = 1.0 if is_auto(checked.prior_scale) else as_prior_scale(checked.prior_scale)
            make_model(scale, target.likelihood)
        checked._given_likelihood(*(() if is_classifier(checked) else (n_outputs,)))


def _check_table(table: Header) -> None:
    """Raise a StorageError unless the fields of `table` are TABLE_FIELDS, and each is a JSON object.

    `anchored.tables` checks the contents of these objects.
    """
    table.require_only(TABLE_FIELDS)
    for name in TABLE_FIELDS:
        table.child(name)


def _read_columns(estimator: BayesianEstimator, header: Header, arrays: Arrays) -> None:
    """Set the attributes of `estimator` that describe the columns of X and y.

    They are the standardisations, the number and names of the features, and the classes.
    """
    estimator.x_standardisation_ = read_standardisation(arrays, "x", INPUT_SCALE_RANGE)
    estimator.n_features_in_ = len(estimator.x_standardisation_.mean)
    if header.value("feature_names") is not None:
        names = header.listed("feature_names", is_text, "names", longest=10**6)
        if len(names) != estimator.n_features_in_:
            header.refuse(f"must have {estimator.n_features_in_} names, not {len(names)}", "feature_names")
        estimator.feature_names_in_ = np.array(names, object)
    if is_classifier(estimator):
        estimator.classes_ = labels_from_json(header.child("classes"))
        return
    if header.value("classes") is not None:
        header.refuse("must be null for a regressor", "classes")
    estimator.y_standardisation_ = read_standardisation(arrays, "y", TARGET_SCALE_RANGE)


def _read_target(estimator: BayesianEstimator, header: Header, arrays: Arrays, n_outputs: int) -> BayesianModel:
    """Return the model that the estimator was fitted with: its network, prior and likelihood."""
    predictive = CategoricalPredictive if is_classifier(estimator) else Predictive

    def is_allowed(likelihood: type[Likelihood]) -> bool:
        return likelihood.predictive is predictive and likelihood.outputs_per_target == 1

    likelihood_class = read_likelihood_class(header, "likelihood", is_allowed)
    is_custom = header.value("network") is None
    if is_custom and estimator.network is None:
        raise StorageError("it was fitted with a custom network; pass that network: load(path, network=...)")
    if not is_custom and estimator.network is not None:
        raise StorageError("it was not fitted with a custom network; load it without the argument network")
    network = as_network(estimator.network) if is_custom else _read_mlp(header.child("network"), n_outputs)
    return read_model("model", network, likelihood_class, arrays, estimator._n_features(), n_outputs, is_custom)


def _read_mlp(header: Header, n_outputs: int) -> MLP:
    """Return the MLP that `header` describes; it must have `n_outputs` outputs."""
    network = header.as_dataclass(MLP)
    check_sizes(header, network.hidden_layer_sizes)
    header.text("activation", ACTIVATIONS)  # called only for its check
    header.whole("n_outputs", n_outputs, n_outputs)  # called only for its check
    return network


def _read_fitted(estimator: BayesianEstimator, fitted: Header, target: BayesianModel, n_outputs: int) -> None:
    """Set the fitted attributes of `estimator` that are numbers or text, from the header's field `fitted`.

    `target` is the model that the estimator was fitted with, and `n_outputs` the number of its network's outputs.
    """
    fitted.require_only(FITTED + (() if is_classifier(estimator) else FITTED_OF_REGRESSOR))
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
