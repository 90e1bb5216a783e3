"""What a fitted estimator has learnt, as a JSON header and named arrays, and back.

A file may come from anywhere: all of it is checked before anything is built from it. Classes, optimisers and
activations are looked up in tables, and nothing is imported, called by name, sampled or trained.
"""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.utils.validation import check_is_fitted

from anchored.estimators.arguments import METHODS, check_arguments, check_sizes, plain, read_arguments, read_settings
from anchored.estimators.labels import labels_from_json, labels_to_json
from anchored.estimators.posteriors import (
    model_arrays,
    named,
    posterior_arrays,
    read_model,
    read_noise_model,
    read_posterior,
    record_of,
)
from anchored.estimators.standardisation import FARTHEST, INPUT_RANGE, TARGET_RANGE, Standardisation
from anchored.model.adapters import as_network
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales
from anchored.model.likelihoods import CenteredGaussian, Likelihood
from anchored.model.networks import ACTIVATIONS, MLP
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.storage import archive
from anchored.storage.arrays import Arrays
from anchored.storage.headers import Header, StorageError, is_finite_number, is_text, parse

FIELDS = ("format", "kind", "params", "fitted", "network", "likelihood", "noise_network", "method", "feature_names",
          "classes", "table")  # fmt: skip
OF_TABLES = ("schema", "target", "held_out")  # anchored.tables reads what is in them
FITTED = ("seed_", "fingerprint_", "n_rows_seen_", "weight_seen_", "prior_scale_")
FITTED_REGRESSOR = ("y_is_vector_", "noise_variance_")
FITTED_CLASSIFIER = ()


class Saveable:
    """An estimator that can be written to a file."""

    def save(self, path: str | Path) -> None:
        """Write the fitted estimator to one file, which `anchored.load` reads back.

        Args:
            path: Of the file; one that is there is replaced as a whole.
        """
        check_is_fitted(self)
        save(self, path)


def save(estimator: Any, path: str | Path, table: dict[str, object] | None = None) -> None:
    """Write a fitted estimator. Code is not stored: a network of your own is passed again to `load`.

    `table` says what the columns of a file mean to it, in JSON's types. Arguments and arrays that `load` would refuse
    are not written.
    """
    if not type(estimator).__module__.startswith("anchored."):
        raise TypeError(f"cannot save a {type(estimator).__name__}: only anchored's own classes, not their subclasses")
    kind = type(record_of(estimator.posterior_).method)
    if kind not in METHODS.values():
        raise TypeError(f"method: cannot save a {kind.__name__}: load knows those of anchored.methods only")
    header, arrays = _header(estimator, table), _arrays(estimator)
    try:
        again = parse(json.dumps({**header, "format": archive.FORMAT}))
        restored(type(estimator), again, Arrays(arrays), estimator.network)
    except StorageError as error:
        raise ValueError(f"cannot save, since it could not be loaded: {error}") from error
    archive.write(path, header, arrays)


def _header(estimator: Any, table: dict[str, object] | None) -> dict[str, object]:
    is_class, record = is_classifier(estimator), record_of(estimator.posterior_)
    target = record.target
    noise = getattr(estimator, "noise_model_", None)
    fitted = {name: plain(getattr(estimator, name)) for name in FITTED}
    for name in FITTED_CLASSIFIER if is_class else FITTED_REGRESSOR:
        fitted[name] = plain(getattr(estimator, name))
    if not is_class:
        fitted["noise_variance_"] = np.atleast_1d(estimator.noise_variance_).tolist()
    return {
        "kind": type(estimator).__name__,
        "params": {n: plain(value) for n, value in estimator.get_params(deep=False).items() if n != "network"},
        "fitted": fitted,
        "network": asdict(target.network) if isinstance(target.network, MLP) else None,
        "likelihood": type(target.likelihood).__name__,
        "noise_network": asdict(noise.model.network) if noise is not None else None,
        "method": plain(record.method),
        "feature_names": getattr(estimator, "feature_names_in_", np.zeros(0)).tolist() or None,
        "classes": labels_to_json(estimator.classes_) if is_class else None,
        "table": table,
    }


def _arrays(estimator: Any) -> dict[str, np.ndarray]:
    arrays = posterior_arrays(estimator.posterior_)
    standardised = {"x": estimator.x_standardisation_}
    if not is_classifier(estimator):
        standardised["y"] = estimator.y_standardisation_
    for name, standardisation in standardised.items():
        arrays |= {f"{name}/mean": standardisation.mean, f"{name}/scale": standardisation.scale}
    noise = getattr(estimator, "noise_model_", None)
    if noise is not None:
        arrays |= model_arrays("noise", noise.model) | named("noise/members", noise.members)
    return arrays


def restored(kind: Any, header: Header, arrays: Arrays, network: object) -> Any:
    """A new estimator of this class with what `save` stored of the old one; `network` is the user's own, if any."""
    header.require_only(FIELDS)
    estimator = kind(**read_arguments(header.child("params"), kind), network=network)
    _read_columns(estimator, header, arrays)
    n_features = estimator.n_features_in_
    n_outputs = len(estimator.classes_) if is_classifier(estimator) else len(estimator.y_standardisation_.mean)
    target = _read_target(estimator, header, arrays, n_outputs)
    _read_fitted(estimator, header.child("fitted"), target, n_outputs)
    method = read_settings(header.child("method"), METHODS)
    check_arguments(estimator, method, target.likelihood, n_outputs)
    estimator.posterior_ = read_posterior(method, target, arrays, n_features, network is not None)
    has_noise_model = header.value("noise_network") is not None
    if is_classifier(estimator) and has_noise_model:
        header.refuse("must be null for a classifier", "noise_network")
    if not is_classifier(estimator):
        noise = _read_mlp(header.child("noise_network"), n_outputs) if has_noise_model else None
        estimator.noise_model_ = noise and read_noise_model(noise, CenteredGaussian, arrays, n_features)
    if header.value("table") is not None:
        _check_table(header.child("table"))
    arrays.require_no_more()
    estimator._after_loading()
    return estimator


def _check_table(table: Header) -> None:
    """Raise unless it has the parts of a table, each an object; what they hold needs the packages that read tables."""
    table.require_only(OF_TABLES)
    for name in OF_TABLES:
        table.child(name)


def _read_columns(estimator: Any, header: Header, arrays: Arrays) -> None:
    """What the columns of X and y are, and how they are standardised."""
    estimator.x_standardisation_ = _read_standardisation(arrays, "x", INPUT_RANGE)
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
    estimator.y_standardisation_ = _read_standardisation(arrays, "y", TARGET_RANGE)


def _read_standardisation(arrays: Arrays, name: str, limits: tuple[float, float]) -> Standardisation:
    mean = arrays.take(f"{name}/mean", (None,), ("float64",))
    if len(mean) == 0:
        arrays.refuse(f"{name}/mean", "must have an entry for each column, and has none")
    scale = arrays.take(f"{name}/scale", mean.shape, ("float64",), *limits)
    if np.max(np.abs(mean) / FARTHEST - scale) > 0:  # float64 would not tell such a column's values apart
        arrays.refuse(f"{name}/mean", f"must lie within {FARTHEST:g} scales of zero")
    return Standardisation(mean, scale)


def _read_target(estimator: Any, header: Header, arrays: Arrays, n_outputs: int) -> BayesianModel:
    """The model that the members are to be a posterior of."""
    kind = CategoricalPredictive if is_classifier(estimator) else Predictive
    known = {
        name: likelihood
        for name, likelihood in Likelihood.kinds.items()
        if likelihood.predictive is kind and likelihood.outputs_per_target == 1
    }
    likelihood = known[header.text("likelihood", known)]
    is_own = header.value("network") is None
    if is_own and estimator.network is None:
        raise StorageError("it was fitted with a network of your own: pass it again, load(path, network=...)")
    if not is_own and estimator.network is not None:
        raise StorageError("it was not fitted with a network of your own: load it without network")
    network = as_network(estimator.network) if is_own else _read_mlp(header.child("network"), n_outputs)
    return read_model("model", network, likelihood, arrays, estimator.n_features_in_, n_outputs, is_own)


def _read_mlp(described: Header, n_outputs: int) -> MLP:
    network = described.as_dataclass(MLP)
    check_sizes(described, network.hidden_layer_sizes)
    described.text("activation", ACTIVATIONS)
    described.whole("n_outputs", n_outputs, n_outputs)
    return network


def _read_fitted(estimator: Any, fitted: Header, target: BayesianModel, n_outputs: int) -> None:
    """The attributes that are numbers or text."""
    fitted.require_only(FITTED + (FITTED_CLASSIFIER if is_classifier(estimator) else FITTED_REGRESSOR))
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
        fitted.refuse(f"must be false where there are {n_outputs} outputs", "y_is_vector_")
    name = "noise_variance_"
    values = fitted.listed(name, lambda value: is_finite_number(value) and value > 0, "positive numbers")
    if len(values) != n_outputs:
        fitted.refuse(f"must hold a number for each of {n_outputs} outputs, not {len(values)}", name)
    estimator.noise_variance_ = estimator._per_output(np.array(values, np.float64))
