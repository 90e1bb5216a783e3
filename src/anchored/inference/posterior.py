"""A posterior: members drawn from it, or an exact process; how a method found it; and what a method is."""

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

OUTPUTS_A_CHUNK = 2**22  # numbers held at once while predicting: hidden units × members × rows
FEWEST_ROWS = 128  # short inputs are padded to this, so that one program serves them all


class Method(Protocol):
    """A way to fit: its settings are its fields, its randomness is the key."""

    def check(self, model: BayesianModel) -> None:
        """Raise a ValueError if a setting cannot be used, or not with this model; `fit` begins with it."""

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> "Posterior":
        """Infer the posterior of the model given the data.

        Args:
            key: Random key for everything that is drawn.
            model: Network, prior and likelihood.
            data: Rows to condition on.
            on_progress: Called with the share of the work just done, and the loss.
        """


@dataclass(frozen=True)
class Training:
    """How the members of an ensemble were trained; leading axes are members."""

    anchors: Params  # what each member was pulled to
    loss_curve: np.ndarray  # (epochs, members); NaN after an early stop
    n_epochs: np.ndarray  # (members,)
    optimizer_state: object = None  # kept only where training is to go on


@dataclass(frozen=True)
class FitRecord:
    """How a posterior was found. Methods with more to tell extend it."""

    method: Method
    key: np.ndarray  # the numbers of the random key
    target: BayesianModel  # whose posterior it is: without the parts that a method may add to the network
    training: Training | None = None  # of ensembles
    effective_sample_size: float = np.inf  # of members that are correlated, as draws of a chain are


def key_numbers(key: Key) -> np.ndarray:
    """A random key as plain numbers, for the record."""
    return np.asarray(jax.random.key_data(key))


class Posterior(ABC):
    """What is known about the network's function given data."""

    model: BayesianModel  # of the members: the target, with what the method may have added to it
    record: FitRecord | None

    @property
    def target(self) -> BayesianModel:
        """The model whose posterior it is."""
        return self.model if self.record is None else self.record.target

    @property
    @abstractmethod
    def n_members(self) -> int:
        """How many functions `outputs` gives."""

    @property
    def n_effective(self) -> float:
        """How many independent members they are worth: fewer, where they are draws of a chain."""
        return self.n_members if self.record is None else min(self.n_members, self.record.effective_sample_size)

    @property
    @abstractmethod
    def dtype(self) -> np.dtype:
        """The precision that inputs are given in."""

    @abstractmethod
    def predict(self, inputs: Array) -> Predictive | CategoricalPredictive:
        """The predictive distribution of each row of standardised `inputs`, in bounded memory."""

    def predict_numbers(self, inputs: Array) -> Predictive:
        """`predict`, of a likelihood of numbers."""
        predictive = self.predict(inputs)
        assert isinstance(predictive, Predictive), "a likelihood of classes"
        return predictive

    @abstractmethod
    def outputs(self, inputs: Array) -> np.ndarray:
        """The network's outputs by each member, (members, rows, outputs)."""

    def sample_outputs(self, inputs: Array, n_samples: int, rng: np.random.RandomState) -> np.ndarray:
        """Outputs of functions drawn from the posterior, each followed over all rows, (n_samples, rows, outputs)."""
        outputs = self.outputs(inputs)
        return outputs[rng.randint(len(outputs), size=n_samples)]

    @abstractmethod
    def covariance(self, inputs: Array) -> np.ndarray:
        """Covariance of the function between rows, (rows, rows, outputs)."""


@dataclass(frozen=True)
class MemberPosterior(Posterior):
    """Members drawn from the posterior, or as near to it as the method comes."""

    model: BayesianModel
    members: Params  # every leaf has a leading member axis
    record: FitRecord | None = None

    @property
    def n_members(self) -> int:
        return jax.tree.leaves(self.members)[0].shape[0]

    @property
    def dtype(self) -> np.dtype:
        return jax.tree.leaves(self.members)[0].dtype

    def predict(self, inputs: Array) -> Predictive | CategoricalPredictive:
        parts = [_summaries(self.model, self.members, rows) for rows in self._chunks(inputs)]
        return self.model.likelihood.predictive(*_joined(parts, len(inputs), axis=0), self.n_effective)

    def outputs(self, inputs: Array) -> np.ndarray:
        parts = [(_outputs(self.model, self.members, rows),) for rows in self._chunks(inputs)]
        return _joined(parts, len(inputs), axis=1)[0]

    def covariance(self, inputs: Array) -> np.ndarray:
        outputs = self.outputs(inputs)
        centred = outputs - outputs.mean(0)
        return np.einsum("mnk,mlk->nlk", centred, centred) / max(1, len(outputs) - 1)

    def _chunks(self, inputs: Array) -> Iterator[Array]:
        """Pieces of one size, a power of two of rows, the last padded by repeating its first row."""
        widest = max(leaf.shape[-1] for leaf in jax.tree.leaves(self.members))
        most = max(FEWEST_ROWS, 2 ** int(np.log2(OUTPUTS_A_CHUNK / (self.n_members * widest))))
        size = min(most, max(FEWEST_ROWS, 1 << (len(inputs) - 1).bit_length()))
        for start in range(0, len(inputs), size):
            piece = inputs[start : start + size]
            padding = np.broadcast_to(piece[:1], (size - len(piece), *piece.shape[1:]))
            yield np.concatenate([piece, padding]) if len(padding) else piece


def _joined(parts: Sequence[tuple[Array, ...]], n_rows: int, axis: int) -> list[np.ndarray]:
    """Chunks end to end in float64, without the padding of the last."""

    def join(column: tuple[Array, ...]) -> np.ndarray:
        whole = np.concatenate([np.asarray(part, np.float64) for part in column], axis)
        return whole[:n_rows] if axis == 0 else whole[:, :n_rows]

    return [join(column) for column in zip(*parts, strict=True)]


@jit
def _outputs(model: BayesianModel, members: Params, rows: Array) -> Array:
    return jax.vmap(model.network.apply, in_axes=(0, None))(members, rows)


@jit
def _summaries(model: BayesianModel, members: Params, rows: Array) -> tuple[Array, ...]:
    return model.likelihood.summarise(_outputs(model, members, rows))
