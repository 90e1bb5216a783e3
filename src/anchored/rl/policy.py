"""Compiled functions of an ensemble of Q-networks: Q-values, action probabilities, and whether members are finite."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from anchored.inference.compilation import jit
from anchored.model.networks import Network
from anchored.rl.exploration import Exploration
from anchored.types import Array, Params


@partial(jit, static_argnums=(0,))
def q_values(network: Network, params: Params, rows: np.ndarray) -> Array:
    """Return every member's Q-values, (members, rows, actions), under `network`.

    `params` are the members' parameters, with a leading axis of members; `rows` are observations, (rows, ...).
    """
    return jax.vmap(network.apply, in_axes=(0, None))(params, rows)


@partial(jit, static_argnums=(0,))
def action_probabilities(
    network: Network, exploration: Exploration, params: Params, rows: np.ndarray, episode: int
) -> Array:
    """Return the probability of each action, (rows, actions), under `exploration` in the episode with index `episode`.

    `network`, `params` and `rows` are as in `q_values`.
    """
    q = q_values(network, params, rows)
    return jax.vmap(partial(exploration.probabilities, number=episode), in_axes=1)(q)


@jit
def is_finite(params: Params) -> Array:
    """Return whether all of a member's parameters are finite, (members,); `params` are as in `q_values`."""
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(1) for leaf in jax.tree.leaves(params)]
    return jnp.stack(leaves).all(0)
