"""Exploration: rules that choose an action from the members' Q-values.

Each rule is a pure function `(key, q, episode) -> Choice`: an action, and whether it counts as exploration. `q` has
shape (members, actions). A random choice that holds for a whole episode, such as which member is followed, is drawn
from the key of the episode, so that no rule has a state.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import norm

from anchored import trees
from anchored.types import Array, Key, Number

N_FIXED_DRAWS = 4096  # draws by which probabilities are estimated if the values of actions are correlated
N_POINTS = 129  # points for each action at which the distributions of the actions' values are evaluated


class Episode(NamedTuple):
    """The episode that an action belongs to."""

    number: Number  # index of the episode, from 0
    key: Key  # random key of the episode


class Choice(NamedTuple):
    """An action, and whether it counts as exploration."""

    action: Array  # an int scalar
    explored: Array  # a bool scalar


class Exploration(Protocol):
    """Interface of an exploration rule, which is a pytree whose numbers are traced."""

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """Choose the action of one step; `key` is the step's, `q` are the members' Q-values, (members, actions)."""

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return the probability of each action, (actions,), in the episode with index `number`.

        `q` has shape (members, actions). The probability is over everything the rule draws, for an episode or a step.
        """


@trees.register
@dataclass(frozen=True)
class Greedy:
    """The action with the highest mean Q-value."""

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """Return the greedy action for `q`, (members, actions); `key` and `episode` are not used."""
        return Choice(greedy_action(q), jnp.zeros((), bool))

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return 1 for the greedy action for `q` and 0 for the others, (actions,); `number` is not used."""
        return jax.nn.one_hot(greedy_action(q), q.shape[1])


@trees.register
@dataclass(frozen=True)
class EpsilonGreedy:
    """A random action with probability ε, otherwise the greedy one; ε falls linearly over the first episodes.

    Parameters
    ----------
    start, end
        ε in the first episode, and from the episode with index `n_episodes` on.
    n_episodes
        Number of episodes over which ε falls.
    """

    start: float = 1.0
    end: float = 0.1
    n_episodes: float = 400

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """Return a random action with probability ε, which counts as exploration, else the greedy one for `q`.

        `key` is the step's; ε depends on the number of the `episode`.
        """
        coin_key, action_key = jax.random.split(key)
        is_random = jax.random.uniform(coin_key) < self.epsilon(episode.number)
        action = jnp.where(is_random, jax.random.randint(action_key, (), 0, q.shape[1]), greedy_action(q))
        return Choice(action, is_random)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return ε / actions for each action, plus 1 − ε for the greedy one for `q`; ε is that of episode `number`."""
        epsilon = self.epsilon(number)
        return epsilon / q.shape[1] + (1 - epsilon) * Greedy().probabilities(q, number)

    def epsilon(self, number: Number) -> Array:
        """Return ε in the episode with index `number`."""
        fraction = jnp.clip(number / jnp.maximum(self.n_episodes, 1e-9), 0, 1)
        return jnp.clip(self.start + (self.end - self.start) * fraction, 0, 1)


@trees.register
@dataclass(frozen=True)
class Thompson:
    """Algorithm 1: take each action with the probability that it is the best one.

    A normal distribution is fitted to the members' Q-values of each action. For two actions, the probability
    that the first value is at least the second has a closed form. For more, one value is drawn from each distribution,
    and the action with the largest is taken.
    """

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """Draw an action from `probabilities(q, …)` with the step's `key`; it explores if it is not the greedy one.

        `episode` is not used.
        """
        if q.shape[1] == 2:
            probability = self.probabilities(q, episode.number)[0]
            action = jnp.where(jax.random.uniform(key) < probability, 0, 1)
        else:
            mean, variance = gaussian_fit(q)
            action = jnp.argmax(mean + jnp.sqrt(variance) * jax.random.normal(key, mean.shape))
        return _choice(action, q)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return the probability that each action has the largest value, given `q`; `number` is not used."""
        mean, variance = gaussian_fit(q)
        if q.shape[1] == 2:
            probability = probability_of_nonnegative(mean[0] - mean[1], variance.sum())
            return jnp.stack([probability, 1 - probability])
        return _probabilities_of_best(mean, jnp.sqrt(variance))


@trees.register
@dataclass(frozen=True)
class PairedThompson:
    """Thompson sampling that compares the actions within each member.

    `Thompson` treats the values of actions as independent: if all members prefer the same action, but disagree about
    the value of the state, both actions are about equally probable. Here a normal distribution is fitted to the
    members' vectors of Q-values, and the difference between two actions has the variance of the members' differences.
    """

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """Draw one vector of values for `q` with the step's `key`, and take its best action; `episode` is not used.

        The action explores if it is not the greedy one.
        """
        return _choice(jnp.argmax(_drawn_values(jax.random.normal(key, (q.shape[0],)), q)), q)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return the probability that each action has the largest value, given `q`; `number` is not used.

        For more than two actions it is the fraction of N_FIXED_DRAWS fixed draws.
        """
        if q.shape[1] == 2:
            mean, variance = gaussian_fit(q[:, :1] - q[:, 1:])
            probability = probability_of_nonnegative(mean[0], variance[0])
            return jnp.stack([probability, 1 - probability])
        return _shares_of_best(q)


@trees.register
@dataclass(frozen=True)
class OneMember:
    """Follow one random member greedily for a whole episode: deep exploration (Osband et al. 2016)."""

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """Return the greedy action of the episode's member; it explores if it is not the greedy action of the ensemble.

        The member is drawn from the key of `episode`; the step's `key` is not used.
        """
        member = jax.random.randint(episode.key, (), 0, q.shape[0])
        return _choice(jnp.argmax(q[member]), q)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return the fraction of members in `q` for which each action is the greedy one; `number` is not used."""
        return jnp.mean(jax.nn.one_hot(jnp.argmax(q, 1), q.shape[1]), 0)


@trees.register
@dataclass(frozen=True)
class GaussianIndex:
    """Follow one Q-function greedily for a whole episode, drawn from the normal distribution fitted to the members.

    The function is f = f̄ + Σₘ zₘ (fₘ − f̄) / √(M − 1), where fₘ are the M members, f̄ is their mean, and the zₘ ~ N(0, 1)
    are independent. Like a member, it is one function of all states and actions, but there are infinitely many such
    functions instead of M.
    """

    def __call__(self, key: Key, q: Array, episode: Episode) -> Choice:
        """Return the greedy action of the episode's function; it explores if it is not that of the ensemble.

        The function is drawn from the key of `episode`; the step's `key` is not used.
        """
        return _choice(jnp.argmax(_drawn_values(jax.random.normal(episode.key, (q.shape[0],)), q)), q)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return the fraction of N_FIXED_DRAWS fixed draws, given `q`, in which each action is greedy.

        The values of actions are correlated, so the probabilities are not one-dimensional integrals as for `Thompson`.
        `number` is not used.
        """
        return _shares_of_best(q)


@trees.register
@dataclass(frozen=True)
class Until:
    """Use one rule before a given episode, and another from that episode on.

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
        """Return the choice of the rule that applies in `episode`; the arguments are passed on to it."""
        early, late = self.before(key, q, episode), self.after(key, q, episode)
        return jax.tree.map(lambda a, b: jnp.where(episode.number < self.episode, a, b), early, late)

    def probabilities(self, q: Array, number: Number) -> Array:
        """Return the probabilities, (actions,), for `q` under the rule of the episode with index `number`."""
        early, late = self.before.probabilities(q, number), self.after.probabilities(q, number)
        return jnp.where(number < self.episode, early, late)


EXPLORATIONS: dict[str, Exploration] = {
    "thompson": Thompson(),
    "paired": PairedThompson(),
    "member": OneMember(),
    "index": GaussianIndex(),
    "epsilon": EpsilonGreedy(),
    "greedy": Greedy(),
}


def greedy_action(q: Array) -> Array:
    """Return the action with the highest mean over members of `q`, (members, actions)."""
    return jnp.argmax(jnp.mean(q, 0))


def gaussian_fit(q: Array) -> tuple[Array, Array]:
    """Return the mean and the variance over members, (actions,) each, of `q`, (members, actions).

    The variance is exactly 0 for a single member, and for actions whose value is the same for all members.
    """
    if q.shape[0] == 1:
        return q[0], jnp.zeros_like(q[0])
    all_agree = jnp.all(q == q[0], 0)
    return jnp.where(all_agree, q[0], jnp.mean(q, 0)), jnp.where(all_agree, 0, jnp.var(q, 0, ddof=1))


def probability_of_nonnegative(difference: Array, variance: Array) -> Array:
    """Return Pr(N(difference, variance) ≥ 0); the variance may be 0."""
    is_constant = variance <= 0
    z = difference / jnp.sqrt(jnp.where(is_constant, 1.0, variance))
    return jnp.where(is_constant, (difference >= 0).astype(z.dtype), norm.cdf(z))


def _probabilities_of_best(mean: Array, std: Array) -> Array:
    """Return the probability that each of several independent normals is the largest.

    For normal a it is ∫ Π_{b ≠ a} F_b(v) dF_a(v), with F the distribution functions. The integral is a sum over
    points that are dense wherever one of the normals has its mass, even if their standard deviations differ widely. A
    normal with standard deviation 0 is a constant. Only the largest constant can be the best; if several are equal, the
    first of them.
    """
    mean, std = jax.lax.optimization_barrier((mean, std))  # so that a mean is not rounded differently for each use
    gap = jnp.max(mean) - mean  # relative to the largest mean, so that differences are not rounded away
    is_constant = std <= 0
    is_never_best = is_constant & (jnp.arange(len(mean)) != jnp.argmin(jnp.where(is_constant, gap, jnp.inf)))
    std = jnp.maximum(std, 8 * jnp.finfo(gap.dtype).eps * gap + 1e-30)  # the smallest that floating point resolves
    points = jnp.sort((std[:, None] * np.linspace(-6, 6, N_POINTS, dtype=gap.dtype) - gap[:, None]).ravel())
    cdf = jnp.where(is_never_best, 1.0, norm.cdf((points[:, None] + gap) / std))  # (points, actions)
    is_same = np.eye(len(mean), dtype=bool)
    cdf_of_others = jnp.prod(jnp.where(is_same, 1.0, cdf[:, None, :]), 2)  # (points, actions)
    probability = jnp.sum(jnp.diff(cdf, axis=0) * (cdf_of_others[1:] + cdf_of_others[:-1]) / 2, 0)
    return probability / probability.sum()


def _drawn_values(z: Array, q: Array) -> Array:
    """Return draws, (..., actions), from the normal fitted to the members' vectors of values `q`, (members, actions).

    The members, minus their mean, are multiplied by standard normal coefficients `z`, (..., members).
    """
    mean = jnp.mean(q, 0)
    return mean + z @ (q - mean) / np.sqrt(max(q.shape[0] - 1, 1))


def _shares_of_best(q: Array) -> Array:
    """Return the fraction of fixed draws of `_drawn_values`, given `q`, in which each action is the best."""
    drawn = _drawn_values(jax.random.normal(jax.random.key(0), (N_FIXED_DRAWS, q.shape[0])), q)
    return jnp.mean(jax.nn.one_hot(jnp.argmax(drawn, 1), q.shape[1]), 0)


def _choice(action: Array, q: Array) -> Choice:
    """Return `action`, which counts as exploration if it is not the greedy one."""
    return Choice(action, action != greedy_action(q))
