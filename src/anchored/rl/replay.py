"""The replay buffer: a ring of transitions in the order in which they happened."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from anchored.types import Array, Key, Number


class Transition(NamedTuple):
    """One step of an environment, or many along a leading axis.

    `done` marks the last step of an episode, which either `terminated` or reached its time limit. Only after a
    terminated step is the value of what follows zero.
    """

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    terminated: Array
    done: Array


class ReplayBuffer(NamedTuple):
    """The newest transitions, in a ring."""

    transitions: Transition  # leaves (buffer_size, ...)
    n_added: Array  # transitions added since the beginning

    @property
    def buffer_size(self) -> int:
        """The number of transitions that there is room for."""
        return self.transitions.reward.shape[0]

    @property
    def size(self) -> Array:
        """The number of transitions stored."""
        return jnp.minimum(self.n_added, self.buffer_size)


class Batch(NamedTuple):
    """Rows to learn from: the target of an action's value is `reward + discount × max Q(next_observation)`."""

    observation: Array  # (rows, ...)
    action: Array  # (rows,)
    reward: Array  # (rows,), the discounted sum over up to n_step steps
    next_observation: Array  # (rows, ...)
    discount: Array  # (rows,), γ to the power of the number of steps; 0 after termination
    weight: Array  # (rows,), in the loss


def empty(example: Transition, buffer_size: int) -> ReplayBuffer:
    """A buffer for `buffer_size` transitions with the shapes and dtypes of `example`, one transition."""

    def zeros(leaf: Array) -> Array:
        return jnp.zeros((buffer_size, *jnp.shape(leaf)), jnp.result_type(leaf))

    return ReplayBuffer(jax.tree.map(zeros, example), jnp.zeros((), jnp.int32))


def add(buffer: ReplayBuffer, block: Transition, length: Number) -> ReplayBuffer:
    """The buffer with the first `length` rows of `block` added, which replace the oldest where it is full."""
    offset = jnp.arange(block.reward.shape[0])
    kept = (offset < length) & (offset >= length - buffer.buffer_size)
    # rows that are not kept get an index out of bounds, which `mode="drop"` ignores
    index = jnp.where(kept, (buffer.n_added + offset) % buffer.buffer_size, buffer.buffer_size)
    transitions = jax.tree.map(lambda ring, rows: ring.at[index].set(rows, mode="drop"), buffer.transitions, block)
    return ReplayBuffer(transitions, buffer.n_added + length)


def sample(key: Key, buffer: ReplayBuffer, n_rows: int) -> Array:
    """Indices (n_rows,) of transitions drawn uniformly with replacement."""
    return jax.random.randint(key, (n_rows,), 0, buffer.size)


def newest(buffer: ReplayBuffer, n_rows: int) -> Array:
    """Indices (n_rows,) of the newest transitions, the newest first."""
    return (buffer.n_added - 1 - jnp.arange(n_rows)) % buffer.buffer_size


def n_step_batch(buffer: ReplayBuffer, indices: Array, gamma: Number, n_step: int) -> Batch:
    """The transitions at `indices` with returns of `n_step` steps discounted by `gamma`, each with weight 1.

    A return stops early at the end of its episode and at the newest transition: a shorter return is as valid.
    """
    first = jax.tree.map(lambda ring: ring[indices], buffer.transitions)
    here, reward, scale = first, first.reward, jnp.full(indices.shape, gamma, first.reward.dtype)
    stop = first.done
    for _ in range(n_step - 1):
        stop |= indices == (buffer.n_added - 1) % buffer.buffer_size
        indices = jnp.where(stop, indices, (indices + 1) % buffer.buffer_size)
        here = jax.tree.map(lambda ring: ring[indices], buffer.transitions)  # noqa: B023
        reward += jnp.where(stop, 0, scale * here.reward)
        scale *= jnp.where(stop, 1, gamma)
        stop |= here.done
    discount = jnp.where(here.terminated, 0, scale)
    return Batch(first.observation, first.action, reward, here.next_observation, discount, jnp.ones_like(reward))
