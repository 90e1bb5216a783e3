"""What a fitted estimator has learnt, as a JSON header and named arrays, and back."""

import json
from dataclasses import fields, is_dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from anchored import methods, storage, trees
from anchored.estimators.standardisation import Standardisation
from anchored.likelihoods import Categorical, CenteredGaussian, Gaussian, HeteroscedasticGaussian
from anchored.methods.gaussian_process import ProcessPosterior
from anchored.methods.method import Posterior
from anchored.methods.randomized_prior import PriorFunctionNetwork
from anchored.model import BayesianModel
from anchored.networks import MLP, CorrectedNetwork, Network, RBFNetwork, as_network
from anchored.priors import Prior
from anchored.solvers.first_order import FirstOrder
from anchored.solvers.gauss_newton import GaussNewton
from anchored.training import Trained
from anchored.types import Data, Params

NOT_STORED = {"not stored": True}  # stands for an argument that is code: an optimiser, a generator
NOTES = "diagnostics/"
NETWORKS: dict[str, Any] = {k.__name__: k for k in (MLP, RBFNetwork, CorrectedNetwork, PriorFunctionNetwork)}
KINDS_OF_LIKELIHOOD = (Gaussian, HeteroscedasticGaussian, CenteredGaussian, Categorical)
LIKELIHOODS: dict[str, Any] = {kind.__name__: kind for kind in KINDS_OF_LIKELIHOOD}
SETTINGS: dict[str, Any] = {kind.__name__: kind for kind in (FirstOrder, GaussNewton, *methods.METHODS)}
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


def save(estimator: Any, path: Any, table: dict[str, Any] | None = None) -> None:
    """Write a fitted estimator. Code is not stored: a network of your own is passed again to `load`.

    `table` says what the columns of a file mean to it, in JSON's types.
    """
    if not type(estimator).__module__.startswith("anchored."):
        raise TypeError(f"cannot save a {type(estimator).__name__}: only anchored's own classes, not their subclasses")
    params = estimator.get_params(deep=False)
    kind = type(estimator.posterior_.diagnostics["method"])
    if kind not in methods.METHODS:
        raise TypeError(f"method: cannot save a {kind.__name__}: load knows those of anchored.methods.METHODS only")
    names = SCALARS + (REGRESSOR_SCALARS if _is_regressor(estimator) else CLASSIFIER_SCALARS)
    has_noise_model = getattr(estimator, "noise_model_", None) is not None
    posterior, own = estimator.posterior_, estimator.network is not None
    asked = posterior.diagnostics.get("model", posterior.model)
    models = {"asked": asked, "posterior": posterior.model}
    if has_noise_model:
        models["noise"] = estimator.noise_model_.model
    header = {
        "kind": type(estimator).__name__,
        "params": {name: _plain(value) for name, value in params.items() if name != "network"},
        "fitted": {name: _plain(getattr(estimator, name)) for name in names if hasattr(estimator, name)},
        "own_network": own,
        "networks": {name: _described(model.network, asked.network if own else None) for name, model in models.items()},
        "likelihoods": {name: type(model.likelihood).__name__ for name, model in models.items()},
        "method": _plain(posterior.diagnostics["method"]),
        "has_noise_model": has_noise_model,
        "feature_names": getattr(estimator, "feature_names_in_", np.zeros(0)).tolist() or None,
        "table": table,
    }
    arrays = _posterior_arrays(posterior)
    for name, model in models.items():
        arrays |= _model_arrays(name, model)
    arrays |= _standardisation_arrays("x", estimator.x_standardisation_)
    if _is_regressor(estimator):
        arrays |= _standardisation_arrays("y", estimator.y_standardisation_)
        if has_noise_model:
            arrays |= _named("noise/members", estimator.noise_model_.members)
    else:
        header["classes"] = _classes_to_json(estimator.classes_)
    storage.write(path, header, arrays)


def restored_params(header: dict, network: Any, path: Any) -> dict[str, Any]:
    """The constructor's arguments, with the network that is passed again."""
    if header["own_network"] and network is None:
        raise ValueError(f"{str(path)!r} was fitted with a network of your own: pass it again, load(path, network=...)")
    if not header["own_network"] and network is not None:
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
    _restore_posterior(estimator, header, arrays, path)


def _is_regressor(estimator: Any) -> bool:
    return hasattr(estimator, "y_standardisation_")


def _described(network: Any, own: Any) -> dict[str, Any]:
    """A network of ours by its class and fields, perhaps about another; one of the user's own by its absence."""
    if own is not None and network == own:
        return {"own": True}
    if type(network).__name__ not in NETWORKS:
        raise TypeError(f"network: cannot save a {type(network).__name__}: load knows {sorted(NETWORKS)} only")
    about = {"network": _described(network.network, own)} if hasattr(network, "network") else {}
    plain = {f.name: _plain(getattr(network, f.name)) for f in fields(network) if f.name != "network"}
    return {"kind": type(network).__name__, "fields": plain, **about}


def _network(description: dict[str, Any], own: Any) -> Network:
    """What was described."""
    if "own" in description:
        return as_network(own)
    settled = {name: _restored(value) for name, value in description["fields"].items()}
    if "network" in description:
        settled["network"] = _network(description["network"], own)
    return NETWORKS[description["kind"]](**settled)


def _restore_regressor(estimator: Any, header: dict, arrays: dict) -> None:
    estimator.y_standardisation_ = Standardisation(arrays["y/mean"], arrays["y/scale"])
    if not estimator.y_is_vector_:
        for name in ("noise_variance_", "training_noise_variance_"):
            setattr(estimator, name, np.array(getattr(estimator, name)))
    estimator.noise_model_ = None
    if header["has_noise_model"]:
        model = _model("noise", header, arrays, None)
        estimator.noise_model_ = Posterior(model, _tree("noise/members", model.network, arrays))


def _restore_posterior(estimator: Any, header: dict, arrays: dict, path: Any) -> None:
    notes = {n.removeprefix(NOTES): _number(a) for n, a in arrays.items() if n.startswith(NOTES)}
    key = jax.random.wrap_key_data(jnp.asarray(notes["key"]))
    method = _restored(header["method"])
    model = _model("posterior", header, arrays, estimator.network, path)
    asked = _model("asked", header, arrays, estimator.network, path)
    if "rows/inputs" in arrays:
        data = Data(*(arrays[f"rows/{part}"] for part in Data._fields))
        estimator.posterior_ = method.fit(key, asked, data)
        return
    members = _tree("posterior/members", model.network, arrays)
    notes |= {"method": method, "model": asked}
    if "trained/loss_curve" in arrays:
        corrected = isinstance(model.network, CorrectedNetwork)
        anchors = _tree("trained/anchors", asked.network if corrected else model.network, arrays)
        curve, n_epochs = arrays["trained/loss_curve"], arrays["trained/n_epochs"]
        params = members["trained"] if corrected else members
        notes["trained"] = Trained(params, anchors, curve, n_epochs, None)
        estimator.anchors_ = anchors
    estimator.posterior_ = Posterior(model, members, notes)


def _posterior_arrays(posterior: Any) -> dict[str, np.ndarray]:
    """Members, how they were trained, and every diagnostic that is a number; of a process, its rows."""
    notes = {name: note for name, note in posterior.diagnostics.items() if name not in ("method", "model", "trained")}
    arrays = {NOTES + name: np.asarray(note) for name, note in notes.items() if _is_number(note)}
    if isinstance(posterior, ProcessPosterior):
        return arrays | {f"rows/{n}": np.asarray(getattr(posterior.data, n)) for n in Data._fields}
    trained = posterior.diagnostics.get("trained")
    if trained is not None:
        arrays |= _named("trained/anchors", trained.anchors)
        arrays |= {"trained/loss_curve": trained.loss_curve, "trained/n_epochs": trained.n_epochs}
    return arrays | _named("posterior/members", posterior.members)


def _is_number(note: Any) -> bool:
    return isinstance(note, bool | int | float | np.ndarray | np.generic) and np.asarray(note).dtype.kind in "biuf"


def _number(array: np.ndarray) -> Any:
    return array.item() if array.ndim == 0 else array


def _model_arrays(name: str, model: BayesianModel) -> dict[str, np.ndarray]:
    arrays = _named(f"{name}/prior_mean", model.prior.mean) | _named(f"{name}/prior_scale", model.prior.scale)
    for leaf in jax.tree.leaves(model.likelihood):
        arrays[f"{name}/likelihood"] = np.asarray(leaf)
    return arrays


def _model(name: str, header: dict, arrays: dict, own: Any, path: Any = None) -> BayesianModel:
    network = _network(header["networks"][name], own)
    _check_shapes(name, network, arrays, path)
    prior = Prior(*(_tree(f"{name}/{part}", network, arrays) for part in ("prior_mean", "prior_scale")))
    kind = LIKELIHOODS[header["likelihoods"][name]]
    likelihood = kind(arrays[f"{name}/likelihood"]) if f"{name}/likelihood" in arrays else kind()
    return BayesianModel(network, prior, likelihood)


def _check_shapes(name: str, network: Network, arrays: dict, path: Any) -> None:
    """A network passed again must be the one that was fitted."""
    prefix = f"{name}/members/"
    stored = {n.removeprefix(prefix): a.shape[1:] for n, a in arrays.items() if n.startswith(prefix)}
    wanted = {n.removeprefix(prefix): a.shape for n, a in _named(prefix[:-1], _template(network, arrays)).items()}
    if stored and stored != wanted:
        raise ValueError(
            f"network: {str(path)!r} was fitted with another network. Its parameters have the shapes {stored}, "
            f"those of the network passed {wanted}."
        )


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
    """JSON's types, a method or a solver by its fields, or a mark that the value is not stored."""
    if is_dataclass(value) and type(value).__name__ in SETTINGS:
        return {"settings": type(value).__name__, **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, tuple | list):
        return {"tuple": [_plain(item) for item in value]} if isinstance(value, tuple) else [_plain(v) for v in value]
    return value if value is None or isinstance(value, bool | int | float | str) else NOT_STORED


def _restored(value: Any) -> Any:
    if isinstance(value, dict) and "settings" in value:
        settled = {name: _restored(item) for name, item in value.items() if name != "settings"}
        return SETTINGS[value["settings"]](**settled)
    if value == NOT_STORED:
        return None
    if isinstance(value, dict):
        return tuple(_restored(item) for item in value["tuple"])
    return value
