"""Operations on pytrees of parameters."""

import dataclasses
import math
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Class = TypeVar("Class", bound=type)
Tree = TypeVar("Tree")  # a pytree of arrays


def register(cls: Class) -> Class:
    """Register the frozen dataclass `cls` as a pytree, and return it; use it as a decorator.

    Fields marked `metadata={"static": True}` belong to the structure of the pytree; the others are its children.

    `jax.tree_util.register_dataclass` is not used: its structures compare equal for different classes with the same
    number of fields, so that jit sometimes runs the program of another class.
    """
    fields = dataclasses.fields(cls)
    static = [field.name for field in fields if field.metadata.get("static")]
    dynamic = [field.name for field in fields if field.name not in static]

    def flatten(instance: object) -> tuple[tuple, tuple]:
        return tuple(getattr(instance, n) for n in dynamic), tuple(getattr(instance, n) for n in static)

    def unflatten(structure: tuple, leaves: tuple) -> object:
        return cls(**dict(zip(dynamic, leaves, strict=True)), **dict(zip(static, structure, strict=True)))

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def normal_like(key: jax.Array, params: Tree) -> Tree:
    """Return independent standard normals in the structure and shapes of `params`.

    They are drawn in one call with the random key `key`, which compiles faster than one call per leaf.
    """
    return from_flat(jax.random.normal(key, (n_entries(params),), jnp.result_type(float)), params)


def n_entries(tree: object) -> int:
    """Return the number of entries of all leaves of `tree`."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def from_flat(flat: jax.Array | np.ndarray, like: Tree) -> Tree:
    """Return the first entries of the vector `flat` in the structure, shapes and data types of `like`."""
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    parts = jnp.split(flat[: ends[-1]], ends[:-1])
    shaped = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def total(tree: object) -> jax.Array:
    """Return the sum of all entries of all leaves of `tree`."""
    return sum((jnp.sum(leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def merge(mask: object, where_true: Tree, where_false: Tree) -> Tree:
    """Return the leaves of `where_true` where the pytree `mask` is true, and those of `where_false` elsewhere."""
    return jax.tree.map(lambda m, t, f: t if m else f, mask, where_true, where_false)


def paths(tree: object) -> list[tuple[str, ...]]:
    """Return the path of each leaf of `tree`, outermost key first, in the order of `jax.tree.leaves`."""
    entries = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [tuple(_name(step) for step in path) for path, _ in entries]


def mask_below(name: str | None, tree: Tree) -> Tree:
    """Return a pytree like `tree` that is True at leaves whose path contains the key `name`; None is in no path."""
    return jax.tree.unflatten(jax.tree.structure(tree), [name in path for path in paths(tree)])


def _name(step: object) -> str:
    """Return the key, index or attribute name of one step of a path, as text."""
    for attribute in ("key", "idx", "name"):
        if hasattr(step, attribute):
            return str(getattr(step, attribute))
    return str(step)


def stack(members: list[Tree]) -> Tree:
    """Return one tree of NumPy arrays: each leaf has the leaves of all `members` along a new leading axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *members)


def take(stacked: Tree, index: int | slice | np.ndarray) -> Tree:
    """Return the entries at `index` along the leading axis of every leaf of `stacked`."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)
