"""Models, members and records of fits as arrays, and back: each array of the shape, type and range that it must have.

Nothing is sampled or trained, whatever a file holds: a Gaussian process is conditioned when it is first asked.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np

from anchored import trees
from anchored.estimators.bounds import check_outputs
from anchored.estimators.settings import with_optimizer
from anchored.estimators.standardisation import FARTHEST
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

SMALLEST = 1e-45  # a positive number in float32
LARGEST_PARAMETER = 1e15  # a row times two of them does not overflow in float32
LARGEST_RATIO = 1e31  # of a noise variance to that of the targets, or of a weight to 1
MOST_ROWS = GaussianProcess.max_rows  # of a process, whatever its file says: memory grows as rows²
MOST_PROCESS_LAYERS = 5  # of a process: all layers of a kernel are one program, which takes long to compile
MOST_EPOCHS, MOST_LOSSES = 10**6, 5 * 10**7  # of a curve; losses of all members together
ONE, MANY = (), (None,)
# The records that methods extend: their class, and the form of each array in them
RECORDS: dict[type, tuple[type[FitRecord], dict[str, dict[str, Any]]]] = {
    HMC: (
        ChainRecord,
        {
            "effective_sample_size": {"shape": ONE, "least": 0},
            "r_hat": {"shape": ONE, "finite": False},  # infinite where a chain stands still
            "divergences": {"shape": ONE, "dtypes": WHOLES, "least": 0},
            "acceptance": {"shape": ONE},
            "seconds": {"shape": ONE, "least": 0},
        },
    ),
    VariationalInference: (VariationalRecord, {"elbo": {"shape": MANY, "finite": False}}),  # may overflow on the way
    MCDropout: (DropoutRecord, {"loss_curve": {"shape": MANY, "finite": False}}),
    EarlyStoppedEnsemble: (
        EarlyStoppingRecord,
        {
            "epochs": {"shape": MANY, "dtypes": WHOLES, "least": 0},
            "held_out_log_likelihood": {"shape": MANY, "finite": False},  # of pilots, which may diverge
            "best_epoch": {"shape": ONE, "dtypes": WHOLES, "least": 0},
            "learning_rate": {"shape": ONE, "least": SMALLEST},
        },
    ),
}


def posterior_arrays(posterior: Posterior) -> dict[str, np.ndarray]:
    """The model it is of, its members, and the record of the fit; of a process, its rows."""
    record = record_of(posterior)
    _, forms = RECORDS.get(type(record.method), (FitRecord, {}))
    arrays = {f"record/{name}": np.asarray(getattr(record, name)) for name in ("key", *forms)}
    arrays |= model_arrays("model", record.target)
    if isinstance(posterior, ProcessPosterior):
        return arrays | {f"rows/{name}": np.asarray(getattr(posterior.data, name)) for name in Data._fields}
    assert isinstance(posterior, MemberPosterior)
    if record.training is not None:
        training = record.training
        arrays |= named("training/anchors", training.anchors)
        arrays |= {"training/loss_curve": np.asarray(training.loss_curve), "training/n_epochs": training.n_epochs}
    return arrays | named("posterior/members", posterior.members)


def record_of(posterior: Posterior) -> FitRecord:
    """How a method found it."""
    if posterior.record is None:
        raise TypeError("cannot save a posterior that no method has found")
    return posterior.record


def model_arrays(name: str, model: BayesianModel) -> dict[str, np.ndarray]:
    """Its prior, and every number of its likelihood by its own name."""
    arrays = named(f"{name}/prior_mean", model.prior.mean) | named(f"{name}/prior_scale", model.prior.scale)
    likelihood = model.likelihood
    numbers = {number: getattr(likelihood, number) for number in likelihood.field_names()}
    return arrays | {f"{name}/likelihood/{part}": np.asarray(value) for part, value in numbers.items()}


def named(prefix: str, tree: Params) -> dict[str, np.ndarray]:
    """Arrays by the place of each leaf."""
    names = ["/".join((prefix, *path)) for path in trees.paths(tree)]
    return {name: np.asarray(leaf) for name, leaf in zip(names, jax.tree.leaves(tree), strict=True)}


def read_model(
    name: str,
    network: Network,
    likelihood: type[Likelihood],
    arrays: Arrays,
    n_features: int,
    n_outputs: int,
    is_own: bool,
) -> BayesianModel:
    """A network with the prior and the likelihood of this class that are stored under this name."""
    scalars = jax.tree.map(lambda _: np.zeros(()), _template(network, n_features))
    with _fitting(is_own):
        mean = _read_tree(f"{name}/prior_mean", scalars, arrays)
        scale = _read_tree(f"{name}/prior_scale", scalars, arrays, least=SMALLEST)
    numbers = {}
    for number in likelihood.field_names():
        stored = f"{name}/likelihood/{number}"
        is_each = bool(arrays.shape(stored)) and likelihood.predictive is Predictive
        one_or_each = (n_outputs,) if is_each else ()
        numbers[number] = arrays.take(stored, one_or_each, least=1 / LARGEST_RATIO, most=LARGEST_RATIO)
    model = BayesianModel(network, Prior(mean, scale), likelihood(**numbers))
    _check_precision(name, model)
    return model


def read_posterior(method: Method, target: BayesianModel, arrays: Arrays, n_features: int, is_own: bool) -> Posterior:
    """What the method found; `is_own` says that the network is the user's."""
    some = {"held_out": np.ones(1, bool)} if isinstance(method, Ensemble) else {}  # early stopping had rows to watch
    with as_storage_errors("method."), suppress(ImportError):  # what it needs to fit is not needed to predict
        with_optimizer(method).check(target, **some)
    record = _read_record(method, target, arrays)
    if isinstance(method, GaussianProcess):
        n_layers = len(target.network.hidden_layer_sizes)  # type: ignore[attr-defined]  # others have no kernel
        if n_layers > MOST_PROCESS_LAYERS:
            raise StorageError(
                f"field 'network.hidden_layer_sizes' must have at most {MOST_PROCESS_LAYERS} layers here"
            )
        return ProcessPosterior(target, _read_rows(method, target, arrays, n_features), record)
    model = getattr(method, "model_of_members", lambda model: model)(target)
    template = _template(model.network, n_features)
    members = _read_members("posterior/members", template, arrays, None, is_own)
    if isinstance(target.network, MLP) and not is_own:
        check_outputs("posterior/members", target.network, members)
    if isinstance(method, Ensemble):
        like = template["trained"] if getattr(method, "tangent_correction", False) else template
        n_members = jax.tree.leaves(members)[0].shape[0]
        anchors = _read_members("training/anchors", like, arrays, n_members, is_own)
        record = replace(record, training=Training(anchors, *_read_curve(arrays, n_members)))
    return MemberPosterior(model, members, record)


def read_noise_model(network: MLP, likelihood: type[Likelihood], arrays: Arrays, n_features: int) -> MemberPosterior:
    """How the noise varies with x."""
    model = read_model("noise", network, likelihood, arrays, n_features, network.n_outputs, is_own=False)
    members = _read_members("noise/members", _template(network, n_features), arrays, None)
    check_outputs("noise/members", network, members)
    return MemberPosterior(model, members)


def _read_record(method: Method, target: BayesianModel, arrays: Arrays) -> FitRecord:
    key = arrays.take("record/key", MANY, ("uint32",))
    if len(key) not in (2, 4):
        arrays.refuse("record/key", f"must hold the numbers of a random key, 2 or 4, not {len(key)}")
    kind, forms = RECORDS.get(type(method), (FitRecord, {}))
    found = {name: arrays.take(f"record/{name}", **form) for name, form in forms.items()}
    numbers: dict[str, Any] = {name: value if value.ndim else value.item() for name, value in found.items()}
    return kind(method, key, target, **numbers)


def _read_rows(method: GaussianProcess, target: BayesianModel, arrays: Arrays, n_features: int) -> Data:
    """All that a process needs."""
    n_outputs = target.network.n_outputs  # type: ignore[attr-defined]
    inputs = arrays.take("rows/inputs", (None, n_features), least=-FARTHEST, most=FARTHEST)
    if not 1 <= len(inputs) <= method.max_rows:
        arrays.refuse("rows/inputs", f"must have from 1 to max_rows={method.max_rows:,} rows, not {len(inputs):,}")
    if len(inputs) > MOST_ROWS:
        size = f"whose covariances take {8 * len(inputs) ** 2 / 1e9:,.1f} GB"
        arrays.refuse("rows/inputs", f"must have at most {MOST_ROWS:,} rows, not {len(inputs):,}, {size}")
    targets = arrays.take("rows/targets", (len(inputs), n_outputs), least=-FARTHEST, most=FARTHEST)
    weights = arrays.take("rows/weights", (len(inputs), 1), least=0, most=LARGEST_RATIO)
    if np.any((weights > 0) & (weights < 1 / LARGEST_RATIO)):
        arrays.refuse("rows/weights", f"must be 0, or at least {1 / LARGEST_RATIO:g}")
    _check_precision("rows", (inputs, targets, weights))
    return Data(inputs, targets, weights)


def _read_curve(arrays: Arrays, n_members: int) -> tuple[np.ndarray, np.ndarray]:
    """Each member's losses, finite for as long as it ran and NaN from there on, and how many epochs that was."""
    n_epochs = arrays.take("training/n_epochs", (n_members,), WHOLES, least=0)
    curve = arrays.take("training/loss_curve", (None, n_members), finite=False)
    if len(curve) > min(n_epochs.max(), MOST_EPOCHS) or curve.size > MOST_LOSSES:
        limits = f"{MOST_EPOCHS:,} epochs and {MOST_LOSSES:,} losses"
        arrays.refuse("training/loss_curve", f"must not be longer than members ran, nor have more than {limits}")
    ran = np.arange(len(curve))[:, None] < n_epochs
    if not (np.isfinite(curve) == ran).all() or not np.isnan(curve[~ran]).all():
        arrays.refuse("training/loss_curve", "must be finite for as long as each member ran, and NaN from there on")
    return curve, n_epochs


def _template(network: Network, n_features: int) -> Params:
    """Parameters as the network makes them, for their structure and shapes."""
    make = partial(network.init, jax.random.key(0), np.zeros((1, n_features), np.float32))
    if isinstance(network, MLP):
        return make()
    try:
        return make()
    except Exception as error:  # whatever the user's code makes of a number of columns that it was not written for
        raise StorageError(f"network: it cannot be used for rows of {n_features} columns: {error}") from error


@contextmanager
def _fitting(is_own: bool) -> Iterator[None]:
    """Say that arrays are of another network, where it is the user's own and passed again."""
    try:
        yield
    except StorageError as error:
        if not is_own:
            raise
        raise StorageError(f"network: it was fitted with another network than the one passed: {error}") from error


def _read_members(name: str, template: Params, arrays: Arrays, n_members: int | None, is_own: bool = False) -> Params:
    """A stack of so many members, None for any; leaves of a network of the user's own may differ in precision."""
    with _fitting(is_own):
        if n_members is None:
            first = "/".join((name, *trees.paths(template)[0]))
            n_members = (arrays.shape(first) or (0,))[0]
            if n_members == 0:
                arrays.refuse(first, "must have an entry for each member")
        members = _read_tree(name, template, arrays, n_members)
    if not is_own:
        _check_precision(name, members)
    return members


def _read_tree(
    prefix: str, template: Params, arrays: Arrays, *leading: int, least: float = -LARGEST_PARAMETER
) -> Params:
    """Arrays in the structure of the template."""
    leaves = [
        arrays.take("/".join((prefix, *path)), (*leading, *np.shape(leaf)), least=least, most=LARGEST_PARAMETER)
        for path, leaf in zip(trees.paths(template), jax.tree.leaves(template), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def _check_precision(name: str, tree: Params) -> None:
    types = {leaf.dtype.name for leaf in jax.tree.leaves(tree)}
    if len(types) > 1:
        raise StorageError(f"arrays {name + '/'!r} must be of one type, not of {' and '.join(sorted(types))}")
