"""Interfaces of inference methods and of posteriors, and the posterior that is represented by members."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import jax
import numpy as np

from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.types import Array, Data, Key, OnProgress, Params

OUTPUTS_PER_CHUNK = 2**22  # rows × members × units of the widest layer that are computed at once while predicting
MIN_ROWS = 128  # fewer rows are padded to this number, so that they share one compiled program


class Method(Protocol):
    """An inference method: a frozen dataclass whose fields are its settings."""

    def check(self, model: BayesianModel) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`; `fit` calls this first."""

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
            Called several times, with the fraction of all work done since the last call, and the loss.

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
    n_epochs: np.ndarray  # (members,)
    optimizer_state: object = None  # kept only if training is to be resumed


@dataclass(frozen=True)
class FitRecord:
    """How a posterior was found; methods with further diagnostics subclass it."""

    method: Method  # the inference method and its settings
    key: np.ndarray  # the random key as plain numbers
    target: BayesianModel  # the model passed to `fit`, without the parts that a method may add to the network
    training: Training | None = None  # None for methods other than ensembles
    effective_sample_size: float = np.inf  # finite if members are correlated, such as the draws of a Markov chain


def key_data(key: Key) -> np.ndarray:
    """Return the random key `key` as plain numbers, for the record."""
    return np.asarray(jax.random.key_data(key))


class Posterior(ABC):
    """A posterior distribution over functions, given data."""

    model: BayesianModel  # of the members: the target, with any parts that the method added to it
    record: FitRecord | None  # None if how the posterior was found is not recorded

    @property
    def target(self) -> BayesianModel:
        """The model whose posterior this is."""
        return self.model if self.record is None else self.record.target

    @property
    @abstractmethod
    def n_members(self) -> int:
        """Number of functions that `outputs` returns."""

    @property
    def n_effective(self) -> float:
        """Number of independent members with the same Monte-Carlo error: fewer than `n_members` if correlated."""
        return self.n_members if self.record is None else min(self.n_members, self.record.effective_sample_size)

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """Data type that inputs must have."""

    @abstractmethod
    def predict(self, inputs: Array) -> Predictive | CategoricalPredictive:
        """Return the predictive distribution for each row of standardised `inputs` (rows, ...), in bounded memory."""

    def predict_regression(self, inputs: Array) -> Predictive:
        """Call `predict(inputs)` for a model of numeric targets, not of classes, and return a Predictive."""
        predictive = self.predict(inputs)
        assert isinstance(predictive, Predictive), "the model predicts classes"
        return predictive

    @abstractmethod
    def outputs(self, inputs: Array) -> np.ndarray:
        """Return each member's network outputs for `inputs` (rows, ...), shape (members, rows, outputs)."""

    def sample_outputs(self, inputs: Array, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
        """Draw functions from the posterior and evaluate each at all rows.

        Parameters
        ----------
        inputs : (rows, ...) array
            Standardised inputs.
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
        """Return the posterior covariance of the outputs between rows of `inputs`, shape (rows, rows, outputs)."""


@dataclass(frozen=True)
class MemberPosterior(Posterior):
    """A posterior represented by members: networks that are draws from it, exactly or approximately."""

    model: BayesianModel  # of the members
    members: Params  # every leaf has a leading member axis
    record: FitRecord | None = None  # how the members were found

    def __repr__(self) -> str:
        return f"MemberPosterior({self.n_members} members)"

    @property
    def n_members(self) -> int:
        """Number of members."""
        return jax.tree.leaves(self.members)[0].shape[0]

    @property
    def dtype(self) -> np.dtype:
        """Data type of the members' parameters, and of inputs."""
        return jax.tree.leaves(self.members)[0].dtype

    def predict(self, inputs: Array) -> Predictive | CategoricalPredictive:
        """Return the predictive distribution for each row of standardised `inputs` (rows, ...), chunk by chunk."""
        parts = [_summaries(self.model, self.members, rows) for rows in self._chunks(inputs)]
        return self.model.likelihood.predictive(*_concatenate(parts, len(inputs), axis=0), self.n_effective)

    def outputs(self, inputs: Array) -> np.ndarray:
        """Return each member's outputs for `inputs` (rows, ...), shape (members, rows, outputs)."""
        parts = [(_outputs(self.model, self.members, rows),) for rows in self._chunks(inputs)]
        return _concatenate(parts, len(inputs), axis=1)[0]

    def covariance(self, inputs: Array) -> np.ndarray:
        """Return the members' sample covariance between rows of `inputs`, shape (rows, rows, outputs)."""
        outputs = self.outputs(inputs)
        centred = outputs - outputs.mean(0)
        return np.einsum("mnk,mlk->nlk", centred, centred) / max(1, len(outputs) - 1)

    def _chunks(self, inputs: Array) -> Iterator[Array]:
        """Split the rows into chunks of equal size, a power of two; the last is padded with copies of its first row."""
        n_units = max(leaf.shape[-1] for leaf in jax.tree.leaves(self.members))  # of the widest layer
        max_size = max(MIN_ROWS, 2 ** int(np.log2(OUTPUTS_PER_CHUNK / (self.n_members * n_units))))
        size = min(max_size, max(MIN_ROWS, 1 << (len(inputs) - 1).bit_length()))
        for start in range(0, len(inputs), size):
            chunk = inputs[start : start + size]
            padding = np.broadcast_to(chunk[:1], (size - len(chunk), *chunk.shape[1:]))
            yield np.concatenate([chunk, padding]) if len(padding) else chunk


def _concatenate(parts: Sequence[tuple[Array, ...]], n_rows: int, axis: int) -> list[np.ndarray]:
    """Concatenate the arrays of all chunks along `axis`, the rows, in float64, and remove the padding of the last."""

    def join(arrays: tuple[Array, ...]) -> np.ndarray:
        whole = np.concatenate([np.asarray(array, np.float64) for array in arrays], axis)
        return whole[:n_rows] if axis == 0 else whole[:, :n_rows]

    return [join(arrays) for arrays in zip(*parts, strict=True)]


@jit
def _outputs(model: BayesianModel, members: object, rows: Array) -> Array:
    """Outputs of all members, (members, rows, outputs)."""
    return jax.vmap(model.network.apply, in_axes=(0, None))(members, rows)


@jit
def _summaries(model: BayesianModel, members: object, rows: Array) -> tuple[Array, ...]:
    """The fields of the predictive distribution, from the outputs of all members."""
    return model.likelihood.summarise(_outputs(model, members, rows))
