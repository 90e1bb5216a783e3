"""What a fitted estimator has learnt, as a JSON header and named arrays, and back."""

import json
from dataclasses import asdict
from typing import Any

import jax
import numpy as np

from anchored import storage, trees
from anchored.estimators import settings
from anchored.estimators.standardisation import Standardisation
from anchored.likelihoods import Categorical, CenteredGaussian, Gaussian
from anchored.methods.method import Posterior
from anchored.model import BayesianModel
from anchored.networks import MLP, Network, as_network
from anchored.priors import Prior
from anchored.training import Trained
from anchored.types import Params

NOT_STORED = {"not stored": True}  # stands for an argument that is code: an optimiser, a generator
MEMBERS = "posterior/members/"
SCALARS = (
    "seed_",
    "fingerprint_",
    "n_rows_seen_",
    "weight_seen_",
    "n_iter_",
    "loss_curve_",
    "prior_scale_",
    "n_features_in_",
)
CLASSIFIER_SCALARS = ("temperature_",)
REGRESSOR_SCALARS = ("y_is_vector_", "noise_variance_", "training_noise_variance_")


def save(estimator: Any, path: Any) -> None:
    """Write a fitted estimator. Code is not stored: a network of your own is passed again to `load`."""
    if not type(estimator).__module__.startswith("anchored."):
        raise TypeError(f"cannot save a {type(estimator).__name__}: only anchored's own classes, not their subclasses")
    params = estimator.get_params(deep=False)
    names = SCALARS + (REGRESSOR_SCALARS if _is_regressor(estimator) else CLASSIFIER_SCALARS)
    header = {
        "kind": type(estimator).__name__,
        "params": {name: _plain(value) for name, value in params.items() if name != "network"},
        "fitted": {name: _plain(getattr(estimator, name)) for name in names},
        "mlp": _mlp(estimator),
        "has_noise_model": getattr(estimator, "noise_model_", None) is not None,
        "feature_names": getattr(estimator, "feature_names_in_", np.zeros(0)).tolist() or None,
    }
    arrays = _posterior_arrays("posterior", estimator.posterior_)
    trained = estimator.posterior_.diagnostics["trained"]
    arrays |= _named("anchors", trained.anchors)
    arrays |= {"loss_curve": trained.loss_curve, "n_epochs": trained.n_epochs}
    arrays |= _standardisation_arrays("x", estimator.x_standardisation_)
    if _is_regressor(estimator):
        arrays |= _standardisation_arrays("y", estimator.y_standardisation_)
        if estimator.noise_model_ is not None:
            arrays |= _posterior_arrays("noise", estimator.noise_model_)
    else:
        header["classes"] = _classes_to_json(estimator.classes_)
    storage.write(path, header, arrays)


def restored_params(header: dict, network: Any, path: Any) -> dict[str, Any]:
    """The constructor's arguments, with the network that is passed again."""
    if header["mlp"] is None and network is None:
        raise ValueError(f"{str(path)!r} was fitted with a network of your own: pass it again, load(path, network=...)")
    if header["mlp"] is not None and network is not None:
        raise ValueError(f"{str(path)!r} was not fitted with a network of your own: load it without network")
    return {name: _restored(value) for name, value in header["params"].items()} | {"network": network}


def restore(estimator: Any, header: dict, arrays: dict, path: Any) -> None:
    """Give a new estimator what `save` stored of the old one."""
    for name, value in header["fitted"].items():
        setattr(estimator, name, _restored(value))
    if header["feature_names"] is not None:
        estimator.feature_names_in_ = np.array(header["feature_names"], object)
    estimator._fitted_with = estimator._configuration()
    estimator.x_standardisation_ = Standardisation(arrays["x/mean"], arrays["x/scale"])
    if "classes" in header:
        estimator.classes_ = np.array(header["classes"]["labels"], header["classes"]["dtype"])
    else:
        _restore_regressor(estimator, header, arrays)
    _restore_posterior(estimator, _network(header["mlp"], estimator.network), arrays, path)


def _is_regressor(estimator: Any) -> bool:
    return hasattr(estimator, "y_standardisation_")


def _mlp(estimator: Any) -> dict[str, Any] | None:
    """The perceptron fitted, which `hidden_layer_sizes` may have left behind; None for a network of one's own."""
    network = estimator.posterior_.model.network
    return asdict(network) if isinstance(network, MLP) and estimator.network is None else None


def _network(mlp: dict[str, Any] | None, network: Any) -> Network:
    """The one passed, or the perceptron that was stored."""
    if mlp is None:
        return as_network(network)
    return MLP(tuple(mlp["hidden_layer_sizes"]), mlp["n_outputs"], mlp["activation"])


def _restore_regressor(estimator: Any, header: dict, arrays: dict) -> None:
    estimator.y_standardisation_ = Standardisation(arrays["y/mean"], arrays["y/scale"])
    if not estimator.y_is_vector_:
        for name in ("noise_variance_", "training_noise_variance_"):
            setattr(estimator, name, np.array(getattr(estimator, name)))
    estimator.noise_model_ = None
    if header["has_noise_model"]:
        width, n_outputs = arrays["noise/members/layer_0/bias"].shape[1], len(estimator.y_standardisation_.mean)
        likelihood = CenteredGaussian(arrays["noise/likelihood"])
        estimator.noise_model_ = _posterior("noise", MLP((width,), n_outputs), likelihood, arrays)


def _restore_posterior(estimator: Any, network: Network, arrays: dict, path: Any) -> None:
    template = _template(network, arrays)
    stored = {n.removeprefix(MEMBERS): a.shape[1:] for n, a in arrays.items() if n.startswith(MEMBERS)}
    wanted = {name.removeprefix(MEMBERS): a.shape for name, a in _named(MEMBERS[:-1], template).items()}
    if stored != wanted:
        raise ValueError(
            f"network: {str(path)!r} was fitted with another network. Its parameters have the shapes {stored}, "
            f"those of the network passed {wanted}."
        )
    kind = Gaussian if _is_regressor(estimator) else Categorical
    posterior = _posterior("posterior", network, kind(arrays["posterior/likelihood"]), arrays)
    anchors = _tree("anchors", network, arrays)
    trained = Trained(posterior.members, anchors, arrays["loss_curve"], arrays["n_epochs"], None)
    method = estimator._method(settings.recipe(estimator, estimator.n_rows_seen_))
    key = np.asarray(jax.random.key_data(jax.random.key(estimator.seed_)))
    diagnostics = {"trained": trained, "method": method, "key": key}
    estimator.posterior_ = Posterior(posterior.model, posterior.members, diagnostics)
    estimator.anchors_ = anchors


def _posterior_arrays(name: str, posterior: Posterior) -> dict[str, np.ndarray]:
    model = posterior.model
    arrays = _named(f"{name}/members", posterior.members)
    arrays |= _named(f"{name}/prior_mean", model.prior.mean) | _named(f"{name}/prior_scale", model.prior.scale)
    for leaf in jax.tree.leaves(model.likelihood):
        arrays[f"{name}/likelihood"] = np.asarray(leaf)
    return arrays


def _posterior(name: str, network: Network, likelihood: Any, arrays: dict) -> Posterior:
    tree = {part: _tree(f"{name}/{part}", network, arrays) for part in ("members", "prior_mean", "prior_scale")}
    model = BayesianModel(network, Prior(tree["prior_mean"], tree["prior_scale"]), likelihood)
    return Posterior(model, tree["members"])


def _named(prefix: str, tree: Params) -> dict[str, np.ndarray]:
    names = ["/".join((prefix, *path)) for path in trees.paths(tree)]
    return {name: np.asarray(leaf) for name, leaf in zip(names, jax.tree.leaves(tree), strict=True)}


def _template(network: Network, arrays: dict) -> Params:
    """Parameters as the network makes them, for as many columns as the estimator was fitted to."""
    n_features = arrays["x/mean"].shape[0]
    return network.init(jax.random.key(0), np.zeros((1, n_features), np.float32))


def _tree(prefix: str, network: Network, arrays: dict) -> Params:
    """Arrays in the network's own structure."""
    template = _template(network, arrays)
    leaves = [arrays["/".join((prefix, *path))] for path in trees.paths(template)]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _standardisation_arrays(name: str, standardisation: Standardisation) -> dict[str, np.ndarray]:
    return {f"{name}/mean": standardisation.mean, f"{name}/scale": standardisation.scale}


def _classes_to_json(classes: np.ndarray) -> dict[str, Any]:
    labels = classes.tolist()
    try:
        same = np.array_equal(np.array(json.loads(json.dumps(labels)), classes.dtype), classes)
    except TypeError:
        same = False
    if not same:
        raise TypeError(f"classes of type {type(labels[0]).__name__} cannot be saved; use numbers or strings as labels")
    return {"labels": labels, "dtype": "object" if classes.dtype == object else classes.dtype.str}


def _plain(value: Any) -> Any:
    """JSON's types, or a mark that the value is not stored."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return {"tuple": [_plain(item) for item in value]} if isinstance(value, tuple) else [_plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float | str) else NOT_STORED


def _restored(value: Any) -> Any:
    if value == NOT_STORED:
        return None
    if isinstance(value, dict):
        return tuple(_restored(item) for item in value["tuple"])
    return value
