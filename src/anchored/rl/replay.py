"""The replay buffer: a ring buffer of transitions in temporal order."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from anchored.types import Array, Key, Number


class Transition(NamedTuple):
    """One step of an environment, or many along a leading axis.

    `done` marks the last step of an episode, which either `terminated` or reached its time limit. The value of the
    next state is zero only if the step terminated the episode.

    Vectorised environments take turns: row i + n_envs continues row i. The row of an environment that is being reset is
    not a step; it has `terminated` without `done`.

    If observations are large, each is stored once: `next_observation` is None, since it is the observation of row
    i + n_envs, and the last observation of an episode has a row of its own, which is not a step.
    """

    observation: Array  # before the action
    action: Array  # int32, index of the action
    reward: Array  # as the environment returned it
    next_observation: Array | None  # after the action
    terminated: Array
    done: Array


def is_step(rows: Transition) -> Array:
    """Return a mask, (rows,), of the `rows` that are steps of an environment (see `Transition`)."""
    return rows.done | ~rows.terminated


class ReplayBuffer(NamedTuple):
    """A ring buffer of the newest transitions."""

    transitions: Transition  # leaves (buffer_size, ...)
    n_added: Array  # number of transitions added since the start of training
    newest_observation: Array | None = None  # (n_envs, ...), after the newest rows, if each observation is stored once

    @property
    def buffer_size(self) -> int:
        """The capacity of the buffer, in transitions."""
        return self.transitions.reward.shape[0]

    @property
    def size(self) -> Array:
        """The number of transitions stored."""
        return jnp.minimum(self.n_added, self.buffer_size)


class Batch(NamedTuple):
    """Rows to learn from; the target of a Q-value is `reward + discount × value of next_observation`."""

    observation: Array  # (rows, ...)
    action: Array  # (rows,)
    reward: Array  # (rows,), the discounted sum over up to n_step steps
    next_observation: Array  # (rows, ...)
    discount: Array  # (rows,), γ to the power of the number of steps; 0 after termination
    weight: Array  # (rows,), weight in the loss


def empty(example: Transition, buffer_size: int, once: int | None = None) -> ReplayBuffer:
    """Return an empty buffer for `buffer_size` transitions with the shapes and dtypes of `example`, one transition.

    If `once` is a number of environments, the buffer stores each of their observations once.
    """

    def zeros(leaf: Array) -> Array:
        return jnp.zeros((buffer_size, *jnp.shape(leaf)), jnp.result_type(leaf))

    no_rows = jnp.zeros((), jnp.int32)
    if once is None:
        return ReplayBuffer(jax.tree.map(zeros, example), no_rows)
    newest_observation = jnp.zeros((once, *jnp.shape(example.observation)), jnp.result_type(example.observation))
    return ReplayBuffer(jax.tree.map(zeros, example._replace(next_observation=None)), no_rows, newest_observation)


def add(buffer: ReplayBuffer, block: Transition, length: Number) -> ReplayBuffer:
    """Return `buffer` with the first `length` transitions of `block` added; they replace the oldest if it is full.

    If the buffer stores each observation once, `block.next_observation` holds only the observations after the newest
    rows, (n_envs, ...).
    """
    newest_observation = None
    if buffer.newest_observation is not None:
        newest_observation, block = block.next_observation, block._replace(next_observation=None)
    offset = jnp.arange(block.reward.shape[0])
    is_kept = (offset < length) & (offset >= length - buffer.buffer_size)
    # Rows that are not kept get an index out of bounds, which `mode="drop"` ignores.
    index = jnp.where(is_kept, (buffer.n_added + offset) % buffer.buffer_size, buffer.buffer_size)
    transitions = jax.tree.map(lambda ring, rows: ring.at[index].set(rows, mode="drop"), buffer.transitions, block)
    return ReplayBuffer(transitions, buffer.n_added + length, newest_observation)


def cut_episode(buffer: ReplayBuffer, n_envs: int = 1) -> ReplayBuffer:
    """Return `buffer` with the newest transitions of all environments marked as the last of their episodes.

    Then no n-step return goes beyond them. `n_envs` is the number of environments that take turns.
    """
    rows, indices = buffer.transitions, newest(buffer, n_envs)
    is_new_step = is_step(jax.tree.map(lambda ring: jnp.asarray(ring)[indices], rows))
    done = jnp.asarray(rows.done).at[indices].set(is_new_step & (buffer.n_added > 0))  # an empty buffer stays empty
    buffer = buffer._replace(transitions=rows._replace(done=done))
    if buffer.newest_observation is None:
        return buffer
    observation = jnp.asarray(buffer.newest_observation)  # gets a row, since it would be lost otherwise
    false = jnp.zeros(n_envs, bool)
    no_steps = Transition(observation, false, false, observation, ~false, false)
    return add(buffer, no_steps, jnp.where(buffer.n_added > 0, n_envs, 0))


def sample(key: Key, buffer: ReplayBuffer, n_rows: int) -> Array:
    """Draw with `key` indices, (n_rows,), of transitions in `buffer`, uniformly with replacement."""
    return jax.random.randint(key, (n_rows,), 0, buffer.size)


def cumulative_weights(buffer: ReplayBuffer, n_observations: int, n_actions: int) -> Array:
    """Return the cumulative weights of the rows of `buffer`, (buffer_size,), for "rare" replay.

    Each pair of an observation, an integer below `n_observations`, and one of `n_actions` actions has the same total
    weight, which the rows with this pair share equally. Rows that are not steps have weight 0.
    """
    rows = buffer.transitions
    counts_as = (jnp.arange(buffer.buffer_size) < buffer.n_added) & is_step(rows)
    pair = rows.observation * n_actions + rows.action
    number = jnp.zeros(n_observations * n_actions, jnp.int32).at[pair].add(counts_as.astype(jnp.int32))
    return jnp.cumsum(jnp.where(counts_as, 1 / number[pair], 0.0))


def sample_weighted(key: Key, cumulative_weights: Array, n_rows: int) -> Array:
    """Draw with `key` indices, (n_rows,), of rows with probabilities proportional to their weights."""
    level = jax.random.uniform(key, (n_rows,), cumulative_weights.dtype) * cumulative_weights[-1]
    return jnp.clip(jnp.searchsorted(cumulative_weights, level, side="right"), 0, len(cumulative_weights) - 1)


def newest(buffer: ReplayBuffer, n_rows: int) -> Array:
    """Return the indices, (n_rows,), of the newest transitions in `buffer`, newest first.

    If fewer are stored, the rest are indices of empty rows.
    """
    return (buffer.n_added - 1 - jnp.arange(n_rows)) % buffer.buffer_size


def n_step_batch(buffer: ReplayBuffer, indices: Array, gamma: Number, n_step: int, n_envs: int = 1) -> Batch:
    """Return the transitions at `indices` with n-step returns.

    A return stops early at the end of its episode and at the newest transition of the buffer: a return over fewer
    steps is equally valid.

    Parameters
    ----------
    buffer
        The replay buffer.
    indices
        Positions in the buffer, (rows,).
    gamma
        Discount factor.
    n_step
        Largest number of rewards in a return.
    n_envs
        Number of environments that take turns. A row that is not a step counts as the last step before it.

    Returns
    -------
    Batch
        One row for each index, with weight 1.
    """
    if n_envs > 1 or buffer.newest_observation is not None:
        indices = _nearest_step(buffer, indices, n_envs)
    first = jax.tree.map(lambda ring: ring[indices], buffer.transitions)
    last, reward, discount = first, first.reward, jnp.full(indices.shape, gamma, first.reward.dtype)
    is_over = first.done
    for _ in range(n_step - 1):
        is_over |= _is_newest(buffer, indices, n_envs)
        indices = jnp.where(is_over, indices, (indices + n_envs) % buffer.buffer_size)
        last = jax.tree.map(lambda ring: ring[indices], buffer.transitions)  # noqa: B023
        reward += jnp.where(is_over, 0, discount * last.reward)
        discount *= jnp.where(is_over, 1, gamma)
        is_over |= last.done
    discount = jnp.where(last.terminated, 0, discount)
    next_observation = last.next_observation
    if next_observation is None:
        next_observation = _observation_after(buffer, indices, n_envs)
    return Batch(first.observation, first.action, reward, next_observation, discount, jnp.ones_like(reward))


def _is_newest(buffer: ReplayBuffer, indices: Array, n_envs: int) -> Array:
    """Return which of `indices` are of the newest rows of the `n_envs` environments that take turns, (rows,)."""
    return _age(buffer, indices) < n_envs


def _nearest_step(buffer: ReplayBuffer, indices: Array, n_envs: int) -> Array:
    """Return `indices`, with each row that is not a step replaced by the last step of its environment before it.

    An environment has at most three such rows in succession. If the steps before them may be overwritten, the next
    step is used.
    """
    is_oldest = (buffer.n_added > buffer.buffer_size) & (_age(buffer, indices) >= buffer.buffer_size - 3 * n_envs)
    stride = jnp.where(is_oldest, n_envs, -n_envs)
    for _ in range(3):
        is_reset = ~is_step(jax.tree.map(lambda ring: ring[indices], buffer.transitions))  # noqa: B023
        indices = jnp.where(is_reset, (indices + stride) % buffer.buffer_size, indices)
    return indices


def _observation_after(buffer: ReplayBuffer, indices: Array, n_envs: int) -> Array:
    """Return the observations after the rows at `indices`, (rows, ...), if each observation is stored once."""
    newest_observation = buffer.newest_observation
    assert newest_observation is not None
    stored = buffer.transitions.observation[(indices + n_envs) % buffer.buffer_size]
    age = _age(buffer, indices)
    newest = newest_observation[jnp.clip(n_envs - 1 - age, 0)]
    is_newest = (age < n_envs).reshape(-1, *[1] * (stored.ndim - 1))
    return jnp.where(is_newest, newest, stored)


def _age(buffer: ReplayBuffer, indices: Array) -> Array:
    """Return how many newer rows the buffer has than those at `indices`, (rows,)."""
    return (buffer.n_added - 1 - indices) % buffer.buffer_size
