"""Algebra on pytrees of parameters."""

import dataclasses
import math
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Class = TypeVar("Class", bound=type)
Tree = TypeVar("Tree")  # a pytree of arrays


def register(cls: Class) -> Class:
    """Make a frozen dataclass a pytree; fields marked `metadata={"static": True}` belong to its structure.

    Not `jax.tree_util.register_dataclass`: structures made by it compare equal across classes with the same
    number of fields, so that jit may now and then run the program of another class.
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
    """Independent standard normals in the shape of `params`, all from one draw (which compiles sooner)."""
    leaves, structure = jax.tree.flatten(params)
    sizes = [math.prod(leaf.shape) for leaf in leaves]
    draw = jax.random.normal(key, (sum(sizes),), jnp.result_type(float))
    parts = jnp.split(draw, np.cumsum(sizes)[:-1])
    shaped = [part.reshape(leaf.shape).astype(leaf.dtype) for part, leaf in zip(parts, leaves, strict=True)]
    return jax.tree.unflatten(structure, shaped)


def total(tree: object) -> jax.Array:
    """The sum of all entries of all leaves."""
    return sum((jnp.sum(leaf) for leaf in jax.tree.leaves(tree)), start=jnp.zeros(()))


def paths(tree: object) -> list[tuple[str, ...]]:
    """Where each leaf stands, outermost name first, in the order of `jax.tree.leaves`."""
    entries = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [tuple(_name(step) for step in path) for path, _ in entries]


def branch(name: str | None, tree: Tree) -> Tree:
    """True on the leaves that stand under this name."""
    return jax.tree.unflatten(jax.tree.structure(tree), [name in path for path in paths(tree)])


def _name(step: object) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(step, attribute):
            return str(getattr(step, attribute))
    return str(step)


def stack(members: list[Tree]) -> Tree:
    """One tree whose leaves have a new leading axis, an entry for each member (NumPy arrays)."""
    return jax.tree.map(lambda *leaves: np.stack([np.asarray(leaf) for leaf in leaves]), *members)


def take(stacked: Tree, index: int | slice | np.ndarray) -> Tree:
    """Some entries along the leading axis of every leaf."""
    return jax.tree.map(lambda leaf: leaf[index], stacked)
