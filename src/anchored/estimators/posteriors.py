"""Write posteriors and the records of their fits as arrays, and read them back.

The shape, data type and range of every array are checked when it is read. Nothing is sampled or trained: a Gaussian
process is conditioned on its data at the first prediction.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Required, TypedDict

import jax
import numpy as np

from anchored.estimators.bounds import check_outputs
from anchored.estimators.saved_models import (
    MAX_HYPERPARAMETER,
    MIN_POSITIVE,
    arrays_by_path,
    check_same_precision,
    model_arrays,
    parameter_template,
    read_members,
)
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
from anchored.model.networks import MLP
from anchored.storage.arrays import WHOLES, Arrays
from anchored.storage.headers import StorageError, as_storage_errors
from anchored.types import Data

MAX_PROCESS_ROWS = GaussianProcess.max_rows  # the limit even if `max_rows` in a file is larger: memory grows as rows²
MAX_PROCESS_LAYERS = 5  # the time to compile a kernel grows with its number of layers
MAX_EPOCHS, MAX_LOSSES = 10**6, 5 * 10**7  # largest number of epochs in a loss curve, and of its entries
SCALAR, VECTOR = (), (None,)  # shapes for `Arrays.take`; None allows any length


class ArraySpec(TypedDict, total=False):
    """Arguments of `Arrays.take`: the shape, data type and range that a stored array must have."""

    shape: Required[tuple[int | None, ...]]  # None allows any length along that axis
    dtypes: tuple[str, ...]  # names of the data types that it may have
    least: float  # smallest value allowed
    finite: bool  # whether the values must be finite and at least `least`


# Methods whose records have more fields than FitRecord: the class of the record, and the arrays in its further fields
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
            "held_out_log_likelihood": {"shape": VECTOR, "finite": False},  # not finite if pilot members diverged
            "best_epoch": {"shape": SCALAR, "dtypes": WHOLES, "least": 0},
            "learning_rate": {"shape": SCALAR, "least": MIN_POSITIVE},
        },
    ),
}


def posterior_arrays(posterior: Posterior) -> dict[str, np.ndarray]:
    """Return the arrays of `posterior`, by name.

    The arrays hold the posterior's model, its record, and its members or, for a Gaussian process, its training rows.
    """
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
    """Return the record of the fit that found `posterior`; raise a TypeError if it has none."""
    if posterior.record is None:
        raise TypeError("cannot save a posterior without a record of its fit")
    return posterior.record


def read_posterior(
    method: Method, target: BayesianModel, arrays: Arrays, n_features: int, is_custom: bool
) -> Posterior:
    """Return a stored posterior. An invalid array raises a StorageError that names it.

    Parameters
    ----------
    method : Method
        The inference method of the fit.
    target : BayesianModel
        The model that was fitted.
    arrays : Arrays
        The arrays of the file.
    n_features : int
        Number of columns of the inputs.
    is_custom : bool
        Whether the network is the user's. The data types of its parameters may then differ from each other, its
        outputs are not checked for overflow, and arrays that do not fit it raise an error about the network.
    """
    held_out = {"held_out": np.ones(1, bool)} if isinstance(method, Ensemble) else {}  # required by early stopping
    with as_storage_errors("method."), suppress(ImportError):  # an optional package, needed only to fit, may be missing
        with_placeholder_optimizer(method).check(target, **held_out)
    record = _read_record(method, target, arrays)
    if isinstance(method, GaussianProcess):
        n_layers = len(target.network.hidden_layer_sizes)  # type: ignore[attr-defined]  # only an MLP has a kernel
        if n_layers > MAX_PROCESS_LAYERS:
            limit = f"at most {MAX_PROCESS_LAYERS} layers for a GaussianProcess"
            raise StorageError(f"field 'network.hidden_layer_sizes' must have {limit}")
        return ProcessPosterior(target, _read_rows(method, target, arrays, n_features), record)
    model = getattr(method, "model_of_members", lambda model: model)(target)
    template = parameter_template(model.network, n_features)
    members = read_members("posterior/members", template, arrays, None, is_custom)
    if isinstance(target.network, MLP) and not is_custom:
        check_outputs("posterior/members", target.network, members)
    if isinstance(method, Ensemble):
        anchor_template = template["trained"] if getattr(method, "tangent_correction", False) else template
        n_members = jax.tree.leaves(members)[0].shape[0]
        anchors = read_members("training/anchors", anchor_template, arrays, n_members, is_custom)
        record = replace(record, training=Training(anchors, *_read_curve(arrays, n_members)))
    return MemberPosterior(model, members, record)


def _read_record(method: Method, target: BayesianModel, arrays: Arrays) -> FitRecord:
    """Return the record of a fit of `target` by `method`, except for its field `training`."""
    key = arrays.take("record/key", VECTOR, ("uint32",))
    if len(key) not in (2, 4):
        arrays.refuse("record/key", f"must hold the 2 or 4 numbers of a random key, not {len(key)}")
    record_class, specs = RECORDS.get(type(method), (FitRecord, {}))
    stored = {name: arrays.take(f"record/{name}", **spec) for name, spec in specs.items()}
    values = {name: value if value.ndim else value.item() for name, value in stored.items()}
    return record_class(method, key, target, **values)  # type: ignore[arg-type]  # the values were checked by `specs`


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
    weights = arrays.take("rows/weights", (len(inputs), 1), least=0, most=MAX_HYPERPARAMETER)
    if np.any((weights > 0) & (weights < 1 / MAX_HYPERPARAMETER)):
        arrays.refuse("rows/weights", f"must be 0, or at least {1 / MAX_HYPERPARAMETER:g}")
    check_same_precision("rows", (inputs, targets, weights))
    return Data(inputs, targets, weights)


def _read_curve(arrays: Arrays, n_members: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the loss curve, (epochs, members), and the number of epochs of each member, (members,).

    The loss of a member is NaN after its last epoch.
    """
    n_epochs = arrays.take("training/n_epochs", (n_members,), WHOLES, least=0)
    curve = arrays.take("training/loss_curve", (None, n_members), finite=False)
    if len(curve) > min(n_epochs.max(), MAX_EPOCHS) or curve.size > MAX_LOSSES:
        limits = f"{MAX_EPOCHS:,} epochs and {MAX_LOSSES:,} losses"
        arrays.refuse("training/loss_curve", f"must not have more epochs than n_epochs, nor more than {limits}")
    was_trained = np.arange(len(curve))[:, None] < n_epochs
    if not (np.isfinite(curve) == was_trained).all() or not np.isnan(curve[~was_trained]).all():
        arrays.refuse("training/loss_curve", "must be finite until the last epoch of each member, and NaN after it")
    return curve, n_epochs
