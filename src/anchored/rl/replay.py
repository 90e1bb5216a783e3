"""What the agent remembers: a ring of transitions, in the order in which they happened."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from anchored.types import Array, Key


class Transition(NamedTuple):
    """One step of an environment, or many along a leading axis.

    The `last` of an episode is so because the environment ended it (`terminated`) or because its time was up; only
    the former says that nothing would have followed.
    """

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    terminated: Array
    last: Array


class Buffer(NamedTuple):
    """The newest transitions; `n_seen` counts all that there ever were."""

    transitions: Transition  # leaves (capacity, ...)
    n_seen: Array

    @property
    def capacity(self) -> int:
        return self.transitions.reward.shape[0]

    @property
    def size(self) -> Array:
        return jnp.minimum(self.n_seen, self.capacity)


class Batch(NamedTuple):
    """Rows to learn from: an action's value is `reward + discount` × the value of what comes next."""

    observation: Array
    action: Array
    reward: Array
    next_observation: Array
    discount: Array  # 0 where nothing follows
    weight: Array


def empty(example: Transition, capacity: int) -> Buffer:
    """Room for transitions like `example`."""

    def room(leaf: Array) -> Array:
        return jnp.zeros((capacity, *jnp.shape(leaf)), jnp.result_type(leaf))

    return Buffer(jax.tree.map(room, example), jnp.zeros((), jnp.int32))


def add(buffer: Buffer, block: Transition, length: Array) -> Buffer:
    """Append the first `length` rows of a block, over the oldest ones where the ring is full."""
    offset = jnp.arange(block.reward.shape[0])
    kept = (offset < length) & (offset >= length - buffer.capacity)
    # what is not to be written is sent out of bounds and dropped
    place = jnp.where(kept, (buffer.n_seen + offset) % buffer.capacity, buffer.capacity)
    written = jax.tree.map(lambda ring, rows: ring.at[place].set(rows, mode="drop"), buffer.transitions, block)
    return Buffer(written, buffer.n_seen + length)


def draw(key: Key, buffer: Buffer, n_rows: int) -> Array:
    """Places of transitions drawn uniformly, with replacement."""
    return jax.random.randint(key, (n_rows,), 0, buffer.size)


def newest(buffer: Buffer, n_rows: int) -> Array:
    """Places of the newest transitions, the newest first."""
    return (buffer.n_seen - 1 - jnp.arange(n_rows)) % buffer.capacity


def look_up(buffer: Buffer, places: Array, discount: Array, n_steps: int) -> Batch:
    """The rewards of `n_steps` steps from each place on, and what comes after them.

    The walk stops early at the end of an episode and at the newest transition: a shorter return is as true.
    """
    first = jax.tree.map(lambda ring: ring[places], buffer.transitions)
    here, reward, scale = first, first.reward, jnp.full(places.shape, discount, first.reward.dtype)
    stop = first.last
    for _ in range(n_steps - 1):
        stop |= places == (buffer.n_seen - 1) % buffer.capacity
        places = jnp.where(stop, places, (places + 1) % buffer.capacity)
        here = jax.tree.map(lambda ring: ring[places], buffer.transitions)  # noqa: B023
        reward += jnp.where(stop, 0, scale * here.reward)
        scale *= jnp.where(stop, 1, discount)
        stop |= here.last
    following = jnp.where(here.terminated, 0, scale)
    return Batch(first.observation, first.action, reward, here.next_observation, following, jnp.ones_like(reward))
