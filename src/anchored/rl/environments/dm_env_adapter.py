"""Adapter of dm_env environments, such as those of bsuite, to Gymnasium's interface."""

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

METHODS = ("reset", "step", "observation_spec", "action_spec")  # of every dm_env environment


class DmEnvAdapter(gymnasium.Env):
    """A dm_env environment with finitely many actions, as a Gymnasium environment.

    The last step of an episode terminates it if its discount is 0, and truncates it otherwise. Other discounts are not
    used, since an agent has its own. dm_env environments have no seed, so `reset` ignores its argument `seed`.

    Parameters
    ----------
    env
        An object with the methods of `dm_env.Environment`.
    """

    def __init__(self, env: Any):
        self.env = env
        self.action_space = _action_space(env)
        self.observation_space = _space(env.observation_spec(), type(env).__name__)

    @property
    def unwrapped(self) -> Any:
        """The dm_env environment, so that names and comparisons are those of the environment itself."""
        return self.env

    def reset(self, *, seed: int | None = None, options: dict | None = None) -> tuple[Any, dict]:
        """Start an episode; return its first observation and an empty dictionary. The arguments are not used."""
        return self.env.reset().observation, {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        """Take `action`.

        Returns the observation, the reward, whether the episode terminated and was truncated, and an empty dictionary.
        """
        timestep = self.env.step(action)
        terminated = bool(timestep.last() and timestep.discount == 0)
        return timestep.observation, timestep.reward, terminated, bool(timestep.last()) and not terminated, {}


def is_dm_env(env: object) -> bool:
    """Return whether `env` is an object with the methods of `dm_env.Environment`."""
    return not isinstance(env, type) and all(callable(getattr(env, name, None)) for name in METHODS)


def _action_space(env: Any) -> spaces.Discrete:
    """Return the space of actions: integers from the smallest to the largest that the environment's spec allows."""
    spec = env.action_spec()
    is_integer = getattr(spec, "shape", None) == () and np.issubdtype(spec.dtype, np.integer)
    if not is_integer or not hasattr(spec, "minimum"):
        raise ValueError(
            f"env: {type(env).__name__} has the action spec {spec}, but the agent needs integers: a "
            "dm_env.specs.DiscreteArray. Wrap the environment so that its step takes one of 0, …, n − 1."
        )
    return spaces.Discrete(int(spec.maximum) - int(spec.minimum) + 1, start=int(spec.minimum))


def _space(spec: Any, name: str) -> spaces.Space:
    """Return the space of observations with this `spec`, of an array or nested; `name` is the environment's name."""
    if isinstance(spec, Mapping):
        return spaces.Dict({key: _space(part, name) for key, part in spec.items()})
    if isinstance(spec, list | tuple):
        return spaces.Tuple([_space(part, name) for part in spec])
    if np.dtype(spec.dtype).kind not in "biuf":
        raise ValueError(f"env: {name} has the observation spec {spec}, but the agent needs arrays of numbers.")
    if hasattr(spec, "num_values"):
        return spaces.Discrete(int(spec.num_values))
    low, high = (np.broadcast_to(getattr(spec, end, np.inf), spec.shape) for end in ("minimum", "maximum"))
    if not hasattr(spec, "minimum"):
        low = -low
    return spaces.Box(low.astype(np.float64), high.astype(np.float64), spec.shape, np.float64)
