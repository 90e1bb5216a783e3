"""Gymnasium's spaces of an environment, also of a compiled one."""

from typing import TYPE_CHECKING

import numpy as np

from anchored.errors import MissingPackageError
from anchored.rl.environments.environment import Spaces
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter

if TYPE_CHECKING:
    import gymnasium


def gymnasium_spaces(spaces: Spaces, observation: np.ndarray) -> "tuple[gymnasium.Space, gymnasium.Space]":
    """Return the Gymnasium spaces of observations and of actions.

    Parameters
    ----------
    spaces
        A compiled environment, or the adapter of a Gymnasium environment, which has such spaces.
    observation
        An observation; only its shape and dtype matter.
    """
    if isinstance(spaces, GymnasiumAdapter):
        return spaces.spaces
    try:
        from gymnasium.spaces import Box, Discrete
    except ImportError as error:
        raise MissingPackageError("observation_space and action_space", "gymnasium", "rl") from error
    actions = Discrete(spaces.n_actions)
    if spaces.n_observations is not None:
        return Discrete(spaces.n_observations), actions
    if observation.dtype.kind == "b":
        return Box(0, 1, observation.shape, np.int8), actions
    return Box(-np.inf, np.inf, observation.shape, observation.dtype.type), actions
