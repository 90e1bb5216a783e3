"""The contract of every inference method: `fit(key, model, data)` gives a Posterior, a stack of members."""

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from anchored.inference.compilation import jit
from anchored.inference.training import DivergenceError
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Categorical
from anchored.model.predictive import CategoricalPredictive, Predictive, summarise
from anchored.types import Array, Data, Key, Params

OUTPUTS_A_CHUNK = 2**22  # numbers held at once while predicting: hidden units × members × rows
FEWEST_ROWS = 128  # short inputs are padded to this, so that one program serves them all
CLEAR_GAIN = 0.1  # of where a curve stands, and of what it gained since a tenth of the steps


@dataclass(frozen=True)
class Posterior:
    """Members drawn from the posterior, or as near to it as the method comes."""

    model: BayesianModel
    members: Params  # every leaf has a leading member axis
    diagnostics: dict[str, Any] = field(default_factory=dict)

    @property
    def n_members(self) -> int:
        return jax.tree.leaves(self.members)[0].shape[0]

    @property
    def n_effective(self) -> float:
        """How many independent members they are worth: fewer, where they are draws of a chain."""
        return min(self.n_members, self.diagnostics.get("effective_sample_size", np.inf))

    @property
    def dtype(self) -> np.dtype:
        """The precision inputs are given in."""
        return jax.tree.leaves(self.members)[0].dtype

    def predict(self, inputs: np.ndarray) -> Any:
        """A Predictive, or a CategoricalPredictive for classes; memory is bounded, whatever the number of rows."""
        parts = [_summaries(self.model, self.members, rows) for rows in self._chunks(inputs)]
        joined = self._join(parts, len(inputs), axis=0)
        kind = CategoricalPredictive if isinstance(self.model.likelihood, Categorical) else Predictive
        return kind(joined[0], joined[1], joined[2], self.n_effective)

    def outputs(self, inputs: np.ndarray) -> np.ndarray:
        """What each member says, (members, rows, outputs)."""
        parts = [(_outputs(self.model, self.members, rows),) for rows in self._chunks(inputs)]
        return self._join(parts, len(inputs), axis=1)[0]

    def covariance(self, inputs: np.ndarray) -> np.ndarray:
        """Between rows, over the members, (rows, rows, outputs)."""
        outputs = self.outputs(inputs)
        centred = outputs - outputs.mean(0)
        return np.einsum("mnk,mlk->nlk", centred, centred) / max(1, len(outputs) - 1)

    def _chunks(self, inputs: np.ndarray) -> Iterator[np.ndarray]:
        """Pieces of one size, a power of two of rows, the last padded by repeating its first row."""
        widest = max(leaf.shape[-1] for leaf in jax.tree.leaves(self.members))
        most = max(FEWEST_ROWS, 2 ** int(np.log2(OUTPUTS_A_CHUNK / (self.n_members * widest))))
        size = min(most, max(FEWEST_ROWS, 1 << (len(inputs) - 1).bit_length()))
        for start in range(0, len(inputs), size):
            piece = inputs[start : start + size]
            padding = np.broadcast_to(piece[:1], (size - len(piece), *piece.shape[1:]))
            yield np.concatenate([piece, padding]) if len(padding) else piece

    def _join(self, parts: list[tuple[Array, ...]], n_rows: int, axis: int) -> list[np.ndarray]:
        def join(column: tuple[Array, ...]) -> np.ndarray:
            whole = np.concatenate([np.asarray(part, np.float64) for part in column], axis)
            return whole[:n_rows] if axis == 0 else whole[:, :n_rows]

        return [join(column) for column in zip(*parts, strict=True)]


class Method(Protocol):
    """A way to fit: its settings are its fields, its randomness is the key."""

    def check(self, model: BayesianModel) -> None:
        """Raise where a setting cannot be used, or not with this model; `fit` begins with it."""

    def fit(
        self, key: Key, model: BayesianModel, data: Data, on_progress: Callable[[float, float], None] | None = None
    ) -> Posterior:
        """Draw members given the data; `on_progress` is told the share of the work just done, and the loss."""


def misfit(model: BayesianModel, params: Params, data: Data) -> Array:
    """−log p(y | θ) of all rows, up to a constant; a weight multiplies its row's log-likelihood."""
    outputs = model.network.apply(params, data.inputs)
    return jnp.sum(data.weights * model.likelihood.misfit(outputs, data.targets))


def warn_if_improving(curve: np.ndarray, method: str, setting: str) -> None:
    """Say that a noisy, rising curve was cut short; raise if it left the finite numbers.

    What counts is the gain after 30 % of the steps: by the end the learning rate has gone down to zero. It is beside
    the point what the first steps gained, from a start that may be as bad as it likes.
    """
    if not np.isfinite(curve[-1]):
        raise DivergenceError(
            f"{method} has diverged. Lower learning_rate, or look for extreme values in X, y, sample_weight or "
            "noise_variance."
        )
    tenth = max(1, len(curve) // 10)
    early, middle = (curve[int(share * len(curve)) :][:tenth] for share in (0.1, 0.3))
    last = curve[-tenth:]
    gain, since_early = last.mean() - middle.mean(), last.mean() - early.mean()
    noise = np.hypot(middle.std(), last.std()) / np.sqrt(tenth)
    rounding = np.finfo(np.float32).eps * np.abs(curve).max()
    if gain > max(CLEAR_GAIN * max(abs(last.mean()), since_early), 3 * noise, rounding):
        warnings.warn(
            f"{method} was still improving after {setting}={len(curve)} steps, by {gain:.3g} over the last 70 % of "
            f"them. Raise {setting} or learning_rate.",
            ConvergenceWarning,
            stacklevel=3,
        )


@jit
def _outputs(model: BayesianModel, members: Params, rows: Array) -> Array:
    return jax.vmap(model.network.apply, in_axes=(0, None))(members, rows)


@jit
def _summaries(model: BayesianModel, members: Params, rows: Array) -> tuple[Array, Array, Array]:
    return summarise(model.likelihood, _outputs(model, members, rows))
