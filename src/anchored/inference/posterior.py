"""Interfaces of inference methods and posteriors, and the posterior that consists of members."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

import jax
import numpy as np

from anchored.inference import cluster
from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.types import Array, Data, Key, OnProgress, Params

UNITS_PER_CHUNK = 2**22  # largest product of rows, members and units of the widest layer in one call of a program
MIN_ROWS = 128  # fewer rows are padded to this number, so that they share one compiled program

Result = TypeVar("Result")


class Method(Protocol):
    """An inference method: a frozen dataclass whose fields are its settings."""

    def check(self, model: BayesianModel) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`. `fit` calls this first."""

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> "Posterior":
        """Infer the posterior of the model given the data.

        Parameters
        ----------
        key : Key
            Random key for everything that is drawn.
        model : BayesianModel
            Network, prior and likelihood.
        data : Data
            Rows to condition on.
        on_progress : callable, optional
            Called several times with the fraction of the work done since the last call, and the mean loss.

        Returns
        -------
        Posterior
            The posterior, with a record of the fit.
        """


@dataclass(frozen=True)
class Training:
    """How the members of an ensemble were trained."""

    anchors: Params  # every leaf has a leading member axis
    loss_curve: np.ndarray  # (epochs, members); NaN after an early stop
    n_epochs: np.ndarray  # (members,) number of epochs that a member was trained for
    optimizer_state: object = None  # kept only if training is to be resumed


@dataclass(frozen=True)
class FitRecord:
    """How a posterior was inferred. Methods with further diagnostics use a subclass."""

    method: Method  # the inference method and its settings
    key: np.ndarray  # the random key of the fit, see `key_data`
    target: BayesianModel  # the model whose posterior was inferred, before the method changed its network
    training: Training | None = None  # None for methods other than ensembles
    effective_sample_size: float = np.inf  # finite if members are correlated, as draws of a Markov chain are


def key_data(key: Key) -> np.ndarray:
    """Return the random key `key` as an array of integers, which can be saved."""
    return np.asarray(jax.random.key_data(key))


class Posterior(ABC):
    """A posterior distribution over functions."""

    model: BayesianModel  # the model of the members: the target, possibly with a network that the method changed
    record: FitRecord | None  # how the posterior was inferred, if known

    @property
    def target(self) -> BayesianModel:
        """The model whose posterior this is."""
        return self.model if self.record is None else self.record.target

    @property
    @abstractmethod
    def n_members(self) -> int:
        """The number of members, which is the number of functions that `outputs` evaluates."""

    @property
    def n_effective(self) -> float:
        """The effective number of members: fewer than `n_members` if they are correlated."""
        return self.n_members if self.record is None else min(self.n_members, self.record.effective_sample_size)

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The data type that inputs must have."""

    @abstractmethod
    def predict(self, inputs: Array) -> Predictive | CategoricalPredictive:
        """Return the predictive distribution for each row of standardised `inputs` (rows, ...), in bounded memory."""

    def predict_regression(self, inputs: Array) -> Predictive:
        """Return `predict(inputs)` as a Predictive; the model must predict numbers, not classes."""
        predictive = self.predict(inputs)
        assert isinstance(predictive, Predictive), "the model predicts classes"
        return predictive

    @abstractmethod
    def outputs(self, inputs: Array) -> np.ndarray:
        """Return the outputs of all members for standardised `inputs` (rows, ...), shape (members, rows, outputs)."""

    def sample_outputs(self, inputs: Array, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
        """Return the outputs of functions that are drawn from the posterior with replacement.

        Parameters
        ----------
        inputs : (rows, ...) array
            Standardised inputs, at all of which each function is evaluated.
        n_samples : int
            Number of functions.
        rng : numpy.random.RandomState
            Source of random numbers.

        Returns
        -------
        (n_samples, rows, outputs) array
            Outputs of the functions.
        """
        outputs = self.outputs(inputs)
        return outputs[rng.randint(len(outputs), size=n_samples)]

    @abstractmethod
    def covariance(self, inputs: Array) -> np.ndarray:
        """Return the posterior covariance of each output between rows of `inputs`, shape (rows, rows, outputs)."""


@dataclass(frozen=True)
class MemberPosterior(Posterior):
    """A posterior that consists of members: networks that are exact or approximate draws from it."""

    model: BayesianModel  # the model of the members
    members: Params  # their parameters; every leaf has a leading member axis
    record: FitRecord | None = None  # how the members were trained or drawn, if known

    def __repr__(self) -> str:
        return f"MemberPosterior({self.n_members} members)"

    @property
    def n_members(self) -> int:
        """The number of members."""
        return jax.tree.leaves(self.members)[0].shape[0]

    @property
    def dtype(self) -> np.dtype:
        """The data type of the members' parameters, which inputs must have."""
        return jax.tree.leaves(self.members)[0].dtype

    def predict(self, inputs: Array) -> Predictive | CategoricalPredictive:
        """Return the predictive distribution for each row of standardised `inputs` (rows, ...), chunk by chunk."""
        parts = self._of_chunks(_summaries, inputs)
        return self.model.likelihood.predictive(*_concatenate(parts, len(inputs), axis=0), self.n_effective)

    def outputs(self, inputs: Array) -> np.ndarray:
        """Return the outputs of all members for standardised `inputs` (rows, ...), shape (members, rows, outputs)."""
        parts = self._of_chunks(_outputs, inputs)
        return _concatenate([(part,) for part in parts], len(inputs), axis=1)[0]

    def covariance(self, inputs: Array) -> np.ndarray:
        """Return the sample covariance of each output between rows of `inputs`, shape (rows, rows, outputs)."""
        outputs = self.outputs(inputs)
        centred = outputs - outputs.mean(0)
        return np.einsum("mnk,mlk->nlk", centred, centred) / max(1, len(outputs) - 1)

    def _of_chunks(self, program: jit[Result], inputs: Array) -> list[Result]:
        """Return the result of `program` for the members and each chunk of `inputs`.

        If there are several chunks, they are spread over the Dask cluster, if there is one.
        """
        size = self._chunk_size(len(inputs))
        n_chunks = -(-len(inputs) // size)
        with cluster.using(1 if n_chunks < 2 else None):
            dask = cluster.current()
            if dask is None:
                return [program(self.model, self.members, rows) for rows in _chunks(inputs, size)]
            members = jax.tree.map(np.asarray, self.members)
            of_chunk = partial(_of_chunk, program, self.model, members, self.dtype == np.float64)
            return dask.run(of_chunk, _chunks(inputs, size), n_chunks)

    def _chunk_size(self, n_rows: int) -> int:
        """Return the number of rows of a chunk, a power of two."""
        n_units = max(leaf.shape[-1] for leaf in jax.tree.leaves(self.members))  # of the widest layer
        max_size = max(MIN_ROWS, 2 ** int(np.log2(UNITS_PER_CHUNK / (self.n_members * n_units))))
        return min(max_size, max(MIN_ROWS, 1 << (n_rows - 1).bit_length()))


def _chunks(inputs: Array, size: int) -> Iterator[Array]:
    """Yield chunks of `size` rows. The last is padded with copies of its first row."""
    for start in range(0, len(inputs), size):
        chunk = inputs[start : start + size]
        padding = np.broadcast_to(chunk[:1], (size - len(chunk), *chunk.shape[1:]))
        yield np.concatenate([chunk, padding]) if len(padding) else chunk


def _of_chunk(
    program: jit[Result],
    model: BayesianModel,
    members: Params,
    in_float64: bool,
    rows: Array,
    on_progress: OnProgress | None,
) -> Result:
    """Return the result of `program` for the members and a chunk of rows, on a worker of a Dask cluster."""
    with jax.enable_x64(in_float64):
        return jax.tree.map(np.asarray, program(model, members, rows))


def _concatenate(parts: Sequence[tuple[Array, ...]], n_rows: int, axis: int) -> list[np.ndarray]:
    """Concatenate the arrays of all chunks along `axis`, the axis of rows, in float64, and remove the padding.

    `parts` holds one tuple of arrays for each chunk.
    """

    def join(arrays: tuple[Array, ...]) -> np.ndarray:
        whole = np.concatenate([np.asarray(array, np.float64) for array in arrays], axis)
        return whole[:n_rows] if axis == 0 else whole[:, :n_rows]

    return [join(arrays) for arrays in zip(*parts, strict=True)]


@jit
def _outputs(model: BayesianModel, members: object, rows: Array) -> Array:
    """Return the outputs of all members, (members, rows, outputs)."""
    return jax.vmap(model.network.apply, in_axes=(0, None))(members, rows)


@jit
def _summaries(model: BayesianModel, members: object, rows: Array) -> tuple[Array, ...]:
    """Return the first three fields of the predictive distribution."""
    return model.likelihood.summarise(_outputs(model, members, rows))
