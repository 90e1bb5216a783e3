"""The replay buffer: a ring buffer of transitions in temporal order."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from anchored.types import Array, Key, Number


class Transition(NamedTuple):
    """One step of an environment, or many along a leading axis.

    `done` marks the last step of an episode, which either `terminated` or reached its time limit. The value of the
    next state is zero only if the step terminated the episode.
    """

    observation: Array  # before the action
    action: Array  # int32, index of the action
    reward: Array  # as the environment returned it
    next_observation: Array  # after the action
    terminated: Array
    done: Array


class ReplayBuffer(NamedTuple):
    """A ring buffer of the newest transitions."""

    transitions: Transition  # leaves (buffer_size, ...)
    n_added: Array  # number of transitions added since the start of training

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


def empty(example: Transition, buffer_size: int) -> ReplayBuffer:
    """Return an empty buffer for `buffer_size` transitions with the shapes and dtypes of `example`, one transition."""

    def zeros(leaf: Array) -> Array:
        return jnp.zeros((buffer_size, *jnp.shape(leaf)), jnp.result_type(leaf))

    return ReplayBuffer(jax.tree.map(zeros, example), jnp.zeros((), jnp.int32))


def add(buffer: ReplayBuffer, block: Transition, length: Number) -> ReplayBuffer:
    """Return `buffer` with the first `length` transitions of `block` added; they replace the oldest if it is full."""
    offset = jnp.arange(block.reward.shape[0])
    is_kept = (offset < length) & (offset >= length - buffer.buffer_size)
    # Rows that are not kept get an index out of bounds, which `mode="drop"` ignores.
    index = jnp.where(is_kept, (buffer.n_added + offset) % buffer.buffer_size, buffer.buffer_size)
    transitions = jax.tree.map(lambda ring, rows: ring.at[index].set(rows, mode="drop"), buffer.transitions, block)
    return ReplayBuffer(transitions, buffer.n_added + length)


def cut_episode(buffer: ReplayBuffer) -> ReplayBuffer:
    """Return `buffer` with its newest transition marked as the last of its episode: no return goes beyond it."""
    done = jnp.asarray(buffer.transitions.done)
    newest_index = (buffer.n_added - 1) % buffer.buffer_size
    done = done.at[newest_index].set(buffer.n_added > 0)  # an empty buffer stays empty
    return buffer._replace(transitions=buffer.transitions._replace(done=done))


def sample(key: Key, buffer: ReplayBuffer, n_rows: int) -> Array:
    """Draw with `key` indices, (n_rows,), of transitions in `buffer`, uniformly with replacement."""
    return jax.random.randint(key, (n_rows,), 0, buffer.size)


def newest(buffer: ReplayBuffer, n_rows: int) -> Array:
    """Return the indices, (n_rows,), of the newest transitions in `buffer`, newest first.

    If fewer are stored, the rest are indices of empty rows.
    """
    return (buffer.n_added - 1 - jnp.arange(n_rows)) % buffer.buffer_size


def n_step_batch(buffer: ReplayBuffer, indices: Array, gamma: Number, n_step: int) -> Batch:
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

    Returns
    -------
    Batch
        One row for each index, with weight 1.
    """
    first = jax.tree.map(lambda ring: ring[indices], buffer.transitions)
    last, reward, discount = first, first.reward, jnp.full(indices.shape, gamma, first.reward.dtype)
    is_over = first.done
    for _ in range(n_step - 1):
        is_over |= indices == (buffer.n_added - 1) % buffer.buffer_size
        indices = jnp.where(is_over, indices, (indices + 1) % buffer.buffer_size)
        last = jax.tree.map(lambda ring: ring[indices], buffer.transitions)  # noqa: B023
        reward += jnp.where(is_over, 0, discount * last.reward)
        discount *= jnp.where(is_over, 1, gamma)
        is_over |= last.done
    discount = jnp.where(last.terminated, 0, discount)
    return Batch(first.observation, first.action, reward, last.next_observation, discount, jnp.ones_like(reward))
