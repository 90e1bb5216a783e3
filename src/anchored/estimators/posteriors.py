"""Write models, members and records of fits as arrays, and read them back.

Every array that is read is checked for its shape, type and range. Nothing is sampled or trained: a Gaussian process is
conditioned on its data at the first prediction.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Required, TypedDict

import jax
import numpy as np

from anchored import trees
from anchored.estimators.bounds import check_outputs
from anchored.estimators.settings import with_placeholder_optimizer
from anchored.estimators.standardisation import MAX_DISTANCE
from anchored.inference.posterior import FitRecord, MemberPosterior, Method, Posterior, Training
from anchored.methods.early_stopped_ensemble import EarlyStoppedEnsemble, EarlyStoppingRecord
from anchored.methods.ensemble import Ensemble
from anchored.methods.gaussian_process import GaussianProcess, ProcessPosterior
from anchored.methods.hmc import HMC, ChainRecord
from anchored.methods.mc_dropout import DropoutRecord, MCDropout
from anchored.methods.variational import VariationalInference, VariationalRecord
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import MLP, Network
from anchored.model.predictive import Predictive
from anchored.model.priors import Prior
from anchored.storage.arrays import WHOLES, Arrays
from anchored.storage.headers import StorageError, as_storage_errors
from anchored.types import Data, Params

MIN_POSITIVE = 1e-45  # about the smallest positive number of float32
MAX_PARAMETER = 1e15  # largest absolute parameter; a row times two such parameters does not overflow in float32
MAX_RATIO = 1e31  # largest noise variance, relative to the variance of the targets, and largest weight
MAX_PROCESS_ROWS = GaussianProcess.max_rows  # even if `max_rows` in a file is larger: memory grows as rows²
MAX_PROCESS_LAYERS = 5  # the time to compile a kernel grows with its layers
MAX_EPOCHS, MAX_LOSSES = 10**6, 5 * 10**7  # largest number of epochs in a loss curve, and of its entries
SCALAR, VECTOR = (), (None,)  # shapes


class ArraySpec(TypedDict, total=False):
    """Arguments of `Arrays.take` that say which shape, type and range a stored array must have."""

    shape: Required[tuple[int | None, ...]]  # None allows any length along that axis
    dtypes: tuple[str, ...]  # names of the data types that it may have
    least: float  # smallest value allowed
    finite: bool  # whether to check that the values are finite and at least `least`


# Methods whose records have more fields than FitRecord: the class of the record, and the arrays in these fields.
RECORDS: dict[type, tuple[type[FitRecord], dict[str, ArraySpec]]] = {
    HMC: (
        ChainRecord,
        {
            "effective_sample_size": {"shape": SCALAR, "least": 0},
            "r_hat": {"shape": SCALAR, "finite": False},  # infinite if a chain does not move
            "divergences": {"shape": SCALAR, "dtypes": WHOLES, "least": 0},
            "acceptance": {"shape": SCALAR},
            "seconds": {"shape": SCALAR, "least": 0},
        },
    ),
    VariationalInference: (VariationalRecord, {"elbo": {"shape": VECTOR, "finite": False}}),  # may have overflowed
    MCDropout: (DropoutRecord, {"loss_curve": {"shape": VECTOR, "finite": False}}),
    EarlyStoppedEnsemble: (
        EarlyStoppingRecord,
        {
            "epochs": {"shape": VECTOR, "dtypes": WHOLES, "least": 0},
            "held_out_log_likelihood": {"shape": VECTOR, "finite": False},  # of pilot members, which may diverge
            "best_epoch": {"shape": SCALAR, "dtypes": WHOLES, "least": 0},
            "learning_rate": {"shape": SCALAR, "least": MIN_POSITIVE},
        },
    ),
}


def posterior_arrays(posterior: Posterior) -> dict[str, np.ndarray]:
    """Return the arrays of `posterior` by name: model, record, and members, or the training rows of a process."""
    record = fit_record(posterior)
    _, specs = RECORDS.get(type(record.method), (FitRecord, {}))
    arrays = {f"record/{name}": np.asarray(getattr(record, name)) for name in ("key", *specs)}
    arrays |= model_arrays("model", record.target)
    if isinstance(posterior, ProcessPosterior):
        return arrays | {f"rows/{name}": np.asarray(getattr(posterior.data, name)) for name in Data._fields}
    assert isinstance(posterior, MemberPosterior)
    if record.training is not None:
        training = record.training
        arrays |= arrays_by_path("training/anchors", training.anchors)
        arrays |= {"training/loss_curve": np.asarray(training.loss_curve), "training/n_epochs": training.n_epochs}
    return arrays | arrays_by_path("posterior/members", posterior.members)


def fit_record(posterior: Posterior) -> FitRecord:
    """Return the record of the fit of `posterior`, or raise a TypeError if it has none."""
    if posterior.record is None:
        raise TypeError("cannot save a posterior without a record of its fit")
    return posterior.record


def model_arrays(name: str, model: BayesianModel) -> dict[str, np.ndarray]:
    """Return the prior of `model` and the fields of its likelihood as arrays, with names that start with `name`."""
    arrays = arrays_by_path(f"{name}/prior_mean", model.prior.mean)
    arrays |= arrays_by_path(f"{name}/prior_scale", model.prior.scale)
    likelihood = model.likelihood
    values = {field: getattr(likelihood, field) for field in likelihood.field_names()}
    return arrays | {f"{name}/likelihood/{field}": np.asarray(value) for field, value in values.items()}


def arrays_by_path(prefix: str, tree: Params) -> dict[str, np.ndarray]:
    """Return the leaves of `tree` as arrays by name; a name is `prefix` and the keys to the leaf, joined by slashes."""
    names = ["/".join((prefix, *path)) for path in trees.paths(tree)]
    return {name: np.asarray(leaf) for name, leaf in zip(names, jax.tree.leaves(tree), strict=True)}


def read_model(
    name: str,
    network: Network,
    likelihood: type[Likelihood],
    arrays: Arrays,
    n_features: int,
    n_outputs: int,
    is_custom: bool,
) -> BayesianModel:
    """Return the model of `network` whose prior and likelihood are stored in arrays with names that start with `name`.

    Parameters
    ----------
    name : str
        Start of the names of the arrays.
    network : Network
        The network of the model.
    likelihood : type
        The class of the likelihood.
    arrays : Arrays
        The arrays of the file.
    n_features, n_outputs : int
        Numbers of columns of the inputs and of the targets.
    is_custom : bool
        Whether the network is the user's; an error then says that the fit had another network.
    """
    scalars = jax.tree.map(lambda _: np.zeros(()), _template(network, n_features))
    with _explain_mismatch(is_custom):
        mean = _read_tree(f"{name}/prior_mean", scalars, arrays)
        scale = _read_tree(f"{name}/prior_scale", scalars, arrays, least=MIN_POSITIVE)
    values = {}
    for field in likelihood.field_names():
        array_name = f"{name}/likelihood/{field}"
        is_per_output = bool(arrays.shape(array_name)) and likelihood.predictive is Predictive
        shape = (n_outputs,) if is_per_output else ()
        values[field] = arrays.take(array_name, shape, least=1 / MAX_RATIO, most=MAX_RATIO)
    model = BayesianModel(network, Prior(mean, scale), likelihood(**values))
    _check_precision(name, model)
    return model


def read_posterior(
    method: Method, target: BayesianModel, arrays: Arrays, n_features: int, is_custom: bool
) -> Posterior:
    """Return the posterior that `method` inferred; an invalid array raises a StorageError that names it.

    Parameters
    ----------
    method : Method
        The method of the fit.
    target : BayesianModel
        The model of the fit.
    arrays : Arrays
        The arrays of the file.
    n_features : int
        Number of columns of the inputs.
    is_custom : bool
        Whether the network is the user's. Its members may differ in precision and are not checked for overflow, and an
        error says that the fit had another network.
    """
    held_out = {"held_out": np.ones(1, bool)} if isinstance(method, Ensemble) else {}  # early stopping needs it
    with as_storage_errors("method."), suppress(ImportError):  # a package that only fitting needs may be missing
        with_placeholder_optimizer(method).check(target, **held_out)
    record = _read_record(method, target, arrays)
    if isinstance(method, GaussianProcess):
        n_layers = len(target.network.hidden_layer_sizes)  # type: ignore[attr-defined]  # only an MLP has a kernel
        if n_layers > MAX_PROCESS_LAYERS:
            limit = f"at most {MAX_PROCESS_LAYERS} layers for a GaussianProcess"
            raise StorageError(f"field 'network.hidden_layer_sizes' must have {limit}")
        return ProcessPosterior(target, _read_rows(method, target, arrays, n_features), record)
    model = getattr(method, "model_of_members", lambda model: model)(target)
    template = _template(model.network, n_features)
    members = _read_members("posterior/members", template, arrays, None, is_custom)
    if isinstance(target.network, MLP) and not is_custom:
        check_outputs("posterior/members", target.network, members)
    if isinstance(method, Ensemble):
        anchor_template = template["trained"] if getattr(method, "tangent_correction", False) else template
        n_members = jax.tree.leaves(members)[0].shape[0]
        anchors = _read_members("training/anchors", anchor_template, arrays, n_members, is_custom)
        record = replace(record, training=Training(anchors, *_read_curve(arrays, n_members)))
    return MemberPosterior(model, members, record)


def read_noise_model(network: MLP, likelihood: type[Likelihood], arrays: Arrays, n_features: int) -> MemberPosterior:
    """Return the noise model: the ensemble that predicts how the noise varies with x.

    Parameters
    ----------
    network : MLP
        The network of its members.
    likelihood : type
        The class of its likelihood.
    arrays : Arrays
        The arrays of the file.
    n_features : int
        Number of columns of the inputs.
    """
    model = read_model("noise", network, likelihood, arrays, n_features, network.n_outputs, is_custom=False)
    members = _read_members("noise/members", _template(network, n_features), arrays, None)
    check_outputs("noise/members", network, members)
    return MemberPosterior(model, members)


def _read_record(method: Method, target: BayesianModel, arrays: Arrays) -> FitRecord:
    """Return the record of a fit of `target` by `method`; its field `training` is not set."""
    key = arrays.take("record/key", VECTOR, ("uint32",))
    if len(key) not in (2, 4):
        arrays.refuse("record/key", f"must hold the 2 or 4 numbers of a random key, not {len(key)}")
    kind, specs = RECORDS.get(type(method), (FitRecord, {}))
    stored = {name: arrays.take(f"record/{name}", **spec) for name, spec in specs.items()}
    values = {name: value if value.ndim else value.item() for name, value in stored.items()}
    return kind(method, key, target, **values)  # type: ignore[arg-type]  # of the types in RECORDS


def _read_rows(method: GaussianProcess, target: BayesianModel, arrays: Arrays, n_features: int) -> Data:
    """Return the standardised training data of a Gaussian process."""
    n_outputs = target.network.n_outputs  # type: ignore[attr-defined]
    inputs = arrays.take("rows/inputs", (None, n_features), least=-MAX_DISTANCE, most=MAX_DISTANCE)
    if not 1 <= len(inputs) <= method.max_rows:
        arrays.refuse("rows/inputs", f"must have from 1 to max_rows={method.max_rows:,} rows, not {len(inputs):,}")
    if len(inputs) > MAX_PROCESS_ROWS:
        size = f"whose covariances take {8 * len(inputs) ** 2 / 1e9:,.1f} GB"
        arrays.refuse("rows/inputs", f"must have at most {MAX_PROCESS_ROWS:,} rows, not {len(inputs):,}, {size}")
    targets = arrays.take("rows/targets", (len(inputs), n_outputs), least=-MAX_DISTANCE, most=MAX_DISTANCE)
    weights = arrays.take("rows/weights", (len(inputs), 1), least=0, most=MAX_RATIO)
    if np.any((weights > 0) & (weights < 1 / MAX_RATIO)):
        arrays.refuse("rows/weights", f"must be 0, or at least {1 / MAX_RATIO:g}")
    _check_precision("rows", (inputs, targets, weights))
    return Data(inputs, targets, weights)


def _read_curve(arrays: Arrays, n_members: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss curve, (epochs, members), NaN after a member's last epoch, and the epochs of each, (members,)."""
    n_epochs = arrays.take("training/n_epochs", (n_members,), WHOLES, least=0)
    curve = arrays.take("training/loss_curve", (None, n_members), finite=False)
    if len(curve) > min(n_epochs.max(), MAX_EPOCHS) or curve.size > MAX_LOSSES:
        limits = f"{MAX_EPOCHS:,} epochs and {MAX_LOSSES:,} losses"
        arrays.refuse("training/loss_curve", f"must not have more epochs than members ran, nor more than {limits}")
    was_trained = np.arange(len(curve))[:, None] < n_epochs
    if not (np.isfinite(curve) == was_trained).all() or not np.isnan(curve[~was_trained]).all():
        arrays.refuse("training/loss_curve", "must be finite until the last epoch of each member, and NaN after it")
    return curve, n_epochs


def _template(network: Network, n_features: int) -> Params:
    """Return initial parameters of `network`; stored parameters must have the same structure and shapes."""
    initialise = partial(network.init, jax.random.key(0), np.zeros((1, n_features), np.float32))
    if isinstance(network, MLP):
        return initialise()
    try:
        return initialise()
    except Exception as error:  # the user's code may raise anything for a wrong number of columns
        raise StorageError(f"network: it cannot be applied to rows of {n_features} columns: {error}") from error


@contextmanager
def _explain_mismatch(is_custom: bool) -> Iterator[None]:
    """Context manager that, if the network `is_custom`, adds to a StorageError that the fit had another network."""
    try:
        yield
    except StorageError as error:
        if not is_custom:
            raise
        raise StorageError(f"network: the model was fitted with another network: {error}") from error


def _read_members(
    name: str, template: Params, arrays: Arrays, n_members: int | None, is_custom: bool = False
) -> Params:
    """Return `n_members` members, or all that are stored if it is None, in the structure of `template`.

    The arrays' names start with `name`. Only the leaves of a custom network may differ in precision.
    """
    with _explain_mismatch(is_custom):
        if n_members is None:
            first = "/".join((name, *trees.paths(template)[0]))
            n_members = (arrays.shape(first) or (0,))[0]
            if n_members == 0:
                arrays.refuse(first, "must have an entry for each member")
        members = _read_tree(name, template, arrays, n_members)
    if not is_custom:
        _check_precision(name, members)
    return members


def _read_tree(prefix: str, template: Params, arrays: Arrays, *leading: int, least: float = -MAX_PARAMETER) -> Params:
    """Return stored arrays in the structure of `template`, with the lengths `leading` before the axes of each leaf.

    The arrays' names start with `prefix`. Entries must lie between `least` and MAX_PARAMETER.
    """
    leaves = [
        arrays.take("/".join((prefix, *path)), (*leading, *np.shape(leaf)), least=least, most=MAX_PARAMETER)
        for path, leaf in zip(trees.paths(template), jax.tree.leaves(template), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _check_precision(name: str, tree: Params) -> None:
    """Raise a StorageError that names the arrays `name` unless all leaves of `tree` have the same data type."""
    types = {leaf.dtype.name for leaf in jax.tree.leaves(tree)}
    if len(types) > 1:
        raise StorageError(f"arrays {name + '/'!r} must be of one type, not of {' and '.join(sorted(types))}")
