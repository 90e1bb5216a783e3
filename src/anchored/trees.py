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
    """Register the frozen dataclass `cls` as a pytree, and return it, as a decorator does.

    Fields marked `metadata={"static": True}` belong to the structure of the pytree. The others are its children.

    `jax.tree_util.register_dataclass` is not used, because its structures compare equal for different classes with the
    same number of fields: jit then sometimes runs a program that was compiled for another class.
    """
    fields = dataclasses.fields(cls)
    static = [field.name for field in fields if field.metadata.get("static")]
    dynamic = [field.name for field in fields if field.name not in static]

    def flatten(instance: object) -> tuple[tuple, tuple]:
        return tuple(getattr(instance, n) for n in dynamic), tuple(getattr(instance, n) for n in static)

    def unflatten(static_values: tuple, children: tuple) -> object:
        return cls(**dict(zip(dynamic, children, strict=True)), **dict(zip(static, static_values, strict=True)))

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def normal_like(key: jax.Array, params: Tree) -> Tree:
    """Return independent standard normal draws in the structure and shapes of `params`.

    They are drawn in one call with the random key `key`, because this compiles faster than one call per leaf.
    """
    return from_flat(jax.random.normal(key, (n_entries(params),), jnp.result_type(float)), params)


def n_entries(tree: object) -> int:
    """Return the total number of entries in the leaves of `tree`."""
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(tree))


def from_flat(flat: jax.Array | np.ndarray, like: Tree) -> Tree:
    """Return the entries of the vector `flat` in the structure, shapes and data types of `like`.

    `flat` has at least as many entries as `like`; surplus entries at its end are ignored.
    """
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([math.prod(leaf.shape) for leaf in leaves])
    parts = jnp.split(flat[: ends[-1]], ends[:-1])
    shaped = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def total(tree: object) -> jax.Array:
    """Return the sum of all entries of all leaves of `tree`."""
    return sum((jnp.sum(leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def merge(mask: object, where_true: Tree, where_false: Tree) -> Tree:
    """Return a pytree with the leaves of `where_true` where `mask` is True, and of `where_false` where it is False.

    `mask` is a pytree of booleans. All three have the same structure.
    """
    return jax.tree.map(lambda m, t, f: t if m else f, mask, where_true, where_false)


def paths(tree: object) -> list[tuple[str, ...]]:
    """Return the path of each leaf of `tree`, outermost key first, in the order of `jax.tree.leaves`."""
    leaves_with_paths = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [tuple(_key_text(key) for key in path) for path, _ in leaves_with_paths]


def mask_of_key(name: str | None, tree: Tree) -> Tree:
    """Return a pytree like `tree` that is True at leaves whose path contains the key `name`, and False elsewhere.

    If `name` is None, all leaves are False.
    """
    return jax.tree.unflatten(jax.tree.structure(tree), [name in path for path in paths(tree)])


def _key_text(key: object) -> str:
    """Return one key of a path of JAX (a DictKey, SequenceKey, GetAttrKey or FlattenedIndexKey) as text."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def to_float64(tree: Tree) -> Tree:
    """Return `tree` with all leaves as NumPy arrays in float64."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def stack(pytrees: list[Tree]) -> Tree:
    """Stack `pytrees` of the same structure: return one pytree of NumPy arrays with a new leading axis."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *pytrees)


def take(stacked: Tree, index: int | slice | np.ndarray) -> Tree:
    """Return the entries at `index` along the leading axis of every leaf of `stacked`."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)
