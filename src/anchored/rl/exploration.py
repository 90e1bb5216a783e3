"""Exploration: from the members' Q-values to an action.

Each rule is a pure function `(key, q, episode) -> Choice`, an action and whether it counts as exploration, with `q` of
shape (members, actions). What holds for a whole episode (which member is followed, for example) is drawn from the
episode's own key, so that no rule has a state.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from anchored import trees
from anchored.types import Array, Key, Number

N_NODES = 129  # at which each action's distribution is evaluated


class Episode(NamedTuple):
    """The episode that an action belongs to."""

    number: Number  # index of the episode, from 0
    key: Key  # random key of the episode


class Choice(NamedTuple):
    """An action, and whether it counts as exploration."""

    action: Array  # an int scalar
    explored: Array  # a bool scalar


class Exploration(Protocol):
    """What an exploration rule must provide; it is a pytree whose numbers are traced."""

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """The action for one step, given every member's Q-values `q`, (members, actions); `key` is that of the step."""

    def probabilities(self, q: Array, number: Number) -> Array:
        """The probability (actions,) of each action in the episode with index `number`, before anything is drawn."""


@trees.register
@dataclass(frozen=True)
class Greedy:
    """The action with the highest mean Q-value."""

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """The greedy action, whatever the key and the episode."""
        return Choice(greedy_action(q), jnp.zeros((), bool))

    def probabilities(self, q: Array, number: Number) -> Array:
        """1 for the greedy action, 0 for the others, (actions,)."""
        return jax.nn.one_hot(greedy_action(q), q.shape[1])


@trees.register
@dataclass(frozen=True)
class EpsilonGreedy:
    """A random action with probability ε, otherwise the greedy one; ε falls linearly over the first episodes.

    Parameters
    ----------
    start, end
        ε in the first episode, and from episode `n_episodes` on.
    n_episodes
        Episodes over which it falls.
    """

    start: float = 1.0
    end: float = 0.1
    n_episodes: float = 400

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """A random action with probability ε, which counts as exploration."""
        coin_key, action_key = jax.random.split(key)
        at_random = jax.random.uniform(coin_key) < self.epsilon(episode.number)
        action = jnp.where(at_random, jax.random.randint(action_key, (), 0, q.shape[1]), greedy_action(q))
        return Choice(action, at_random)

    def probabilities(self, q: Array, number: Number) -> Array:
        """ε / actions for each action, plus 1 − ε for the greedy one, (actions,)."""
        epsilon = self.epsilon(number)
        return epsilon / q.shape[1] + (1 - epsilon) * Greedy().probabilities(q, number)

    def epsilon(self, number: Number) -> Array:
        """ε in the episode with index `number`."""
        share = jnp.clip(number / jnp.maximum(self.n_episodes, 1e-9), 0, 1)
        return jnp.clip(self.start + (self.end - self.start) * share, 0, 1)


@trees.register
@dataclass(frozen=True)
class Thompson:
    """Algorithm 1: fit a normal to each action's Q-values, and take each action with the probability that it is best.

    With two actions p₀ = Pr(N₀ ≥ N₁) has a closed form; with more, the largest of one draw from each normal is taken.
    """

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """An action drawn from `probabilities`; it explores if it is not the greedy one."""
        if q.shape[1] == 2:
            first = self.probabilities(q, episode.number)[0]
            action = jnp.where(jax.random.uniform(key) < first, 0, 1)
        else:
            mean, variance = gaussian_fit(q)
            action = jnp.argmax(mean + jnp.sqrt(variance) * jax.random.normal(key, mean.shape))
        return _compared_with_greedy(action, q)

    def probabilities(self, q: Array, number: Number) -> Array:
        """The probability that each action's normal is the largest, (actions,)."""
        mean, variance = gaussian_fit(q)
        if q.shape[1] == 2:
            first = probability_of_more(mean[0] - mean[1], variance.sum())
            return jnp.stack([first, 1 - first])
        return _probabilities_of_best(mean, jnp.sqrt(variance))


@trees.register
@dataclass(frozen=True)
class OneMember:
    """Follow one member greedily for an episode, drawn for each episode (Osband et al. 2016): deep exploration."""

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """The greedy action of the episode's member; it explores if it is not that of the ensemble."""
        member = jax.random.randint(episode.key, (), 0, q.shape[0])
        return _compared_with_greedy(jnp.argmax(q[member]), q)

    def probabilities(self, q: Array, number: Number) -> Array:
        """The share of members whose greedy action each is, (actions,)."""
        return jnp.mean(jax.nn.one_hot(jnp.argmax(q, 1), q.shape[1]), 0)


@trees.register
@dataclass(frozen=True)
class GaussianIndex:
    """Follow one Q-function greedily for an episode, drawn for each episode from the normal fitted to the members.

    f = f̄ + Σₘ zₘ (fₘ − f̄) / √(M − 1) with z ~ N(0, 1): consistent over states and actions like a member, but
    not limited to M functions.
    """

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """The greedy action of the episode's function; it explores if it is not that of the ensemble."""
        drawn = self._drawn(jax.random.normal(episode.key, (q.shape[0],)), q)
        return _compared_with_greedy(jnp.argmax(drawn), q)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Estimated from a fixed set of draws: the actions' values are correlated, so there is no simple integral."""
        drawn = self._drawn(jax.random.normal(jax.random.key(0), (4096, q.shape[0])), q)
        return jnp.mean(jax.nn.one_hot(jnp.argmax(drawn, 1), q.shape[1]), 0)

    def _drawn(self, index: Array, q: Array) -> Array:
        mean = jnp.mean(q, 0)
        return mean + index @ (q - mean) / np.sqrt(max(q.shape[0] - 1, 1))


@trees.register
@dataclass(frozen=True)
class Until:
    """One rule until an episode, another from then on.

    Parameters
    ----------
    episode
        Index of the first episode that uses `after`.
    before, after
        The two rules.
    """

    episode: float
    before: Exploration
    after: Exploration

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """The action of the rule that the episode belongs to."""
        early, late = self.before(key, q, episode), self.after(key, q, episode)
        return jax.tree.map(lambda a, b: jnp.where(episode.number < self.episode, a, b), early, late)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Those of the rule that the episode with index `number` belongs to, (actions,)."""
        early, late = self.before.probabilities(q, number), self.after.probabilities(q, number)
        return jnp.where(number < self.episode, early, late)


EXPLORATIONS: dict[str, Exploration] = {
    "thompson": Thompson(),
    "member": OneMember(),
    "index": GaussianIndex(),
    "epsilon": EpsilonGreedy(),
    "greedy": Greedy(),
}


def greedy_action(q: Array) -> Array:
    """The action with the highest mean of `q`, (members, actions), over members."""
    return jnp.argmax(jnp.mean(q, 0))


def gaussian_fit(q: Array) -> tuple[Array, Array]:
    """Mean and variance, (actions,) each, of `q`, (members, actions), over members.

    The variance is exactly 0 for a single member, and where all members agree, in spite of rounding.
    """
    if q.shape[0] == 1:
        return q[0], jnp.zeros_like(q[0])
    agree = jnp.all(q == q[0], 0)
    return jnp.where(agree, q[0], jnp.mean(q, 0)), jnp.where(agree, 0, jnp.var(q, 0, ddof=1))


def probability_of_more(difference: Array, variance: Array) -> Array:
    """Pr(N(difference, variance) ≥ 0), also for a variance of 0."""
    certain = variance <= 0
    z = difference / jnp.sqrt(jnp.where(certain, 1.0, variance))
    return jnp.where(certain, (difference >= 0).astype(z.dtype), norm.cdf(z))


def _probabilities_of_best(mean: Array, std: Array) -> Array:
    """The probability that each of several independent normals is the largest: ∫ Πᵦ Fᵦ(v) dFₐ(v), over all β ≠ a.

    The sum runs over points that are dense wherever one of the normals has its mass, however their widths differ. A
    normal of width 0 is a number; only the largest of these can be the best, and of equal ones the first.
    """
    mean, std = jax.lax.optimization_barrier((mean, std))  # so that a mean is not rounded differently for each use
    gap = jnp.max(mean) - mean  # floating point is finest about zero, where it matters
    certain = std <= 0
    beaten = certain & (jnp.arange(len(mean)) != jnp.argmin(jnp.where(certain, gap, jnp.inf)))
    std = jnp.maximum(std, 8 * jnp.finfo(gap.dtype).eps * gap + 1e-30)  # the least that floating point can resolve
    points = jnp.sort((std[:, None] * np.linspace(-6, 6, N_NODES, dtype=gap.dtype) - gap[:, None]).ravel())
    below = jnp.where(beaten, 1.0, norm.cdf((points[:, None] + gap) / std))  # (points, actions)
    apart = np.eye(len(mean), dtype=bool)
    others = jnp.prod(jnp.where(apart, 1.0, below[:, None, :]), 2)  # (points, actions)
    best = jnp.sum(jnp.diff(below, axis=0) * (others[1:] + others[:-1]) / 2, 0)
    return best / best.sum()


def _compared_with_greedy(action: Array, q: Array) -> Choice:
    return Choice(action, action != greedy_action(q))
