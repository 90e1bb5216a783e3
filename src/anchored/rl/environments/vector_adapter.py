"""Adapter of Gymnasium's vectorised environments: several environments that step at once."""

from typing import Any, cast

import numpy as np
from gymnasium import spaces
from gymnasium.vector import VectorEnv
from gymnasium.vector.utils import iterate

from anchored.errors import ArgumentError
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter, Observation


class VectorAdapter(GymnasiumAdapter):
    """Wraps a `gymnasium.vector.VectorEnv`, all of whose environments have the same spaces.

    An environment whose episode has ended is reset by the next step, whatever the action; this is Gymnasium's default.
    """

    env: Any  # the VectorEnv

    def _wrap(self, env: object) -> tuple[Any, object, object]:
        """Return the vectorised environment `env`, and the spaces of actions and observations of each environment."""
        vector_env = cast(VectorEnv, env)
        mode = getattr(vector_env.metadata.get("autoreset_mode"), "name", "NEXT_STEP")
        if mode != "NEXT_STEP":
            raise ArgumentError(
                "env",
                f"must reset an environment in the step after the end of its episode, but its autoreset mode is {mode}",
                "make it without autoreset_mode",
            )
        if vector_env.num_envs < 2:
            raise ArgumentError("env", "is vectorised, but has one environment only", "pass one from gymnasium.make")
        self.n_envs = vector_env.num_envs
        return vector_env, vector_env.single_action_space, vector_env.single_observation_space

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode in every environment, from seeds that follow `seed`; return the first observations."""
        observations, _ = self._check_tuple(self.env.reset(seed=int(seed)), ("observations", "infos"), "reset")
        return self._encode_all(observations)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[override]
        """Take `action`, (environments,), counted from 0.

        Returns the encoded observations, the rewards, which episodes terminated, and which were truncated; all have a
        leading axis of environments.
        """
        parts = self.env.step(self.decode(action))
        names = ("observations", "rewards", "terminations", "truncations", "infos")
        observations, rewards, terminated, truncated, _ = self._check_tuple(parts, names, "step")
        rewards = np.array([self._check_reward(reward) for reward in rewards])
        return self._encode_all(observations), rewards, np.array(terminated, bool), np.array(truncated, bool)

    def _encode_all(self, observations: Observation) -> np.ndarray:
        """Return the observations of all environments, encoded, with a leading axis of environments."""
        is_box = isinstance(self._observations, spaces.Box) and np.shape(observations) == (
            self.n_envs,
            *self._observations.shape,
        )
        if is_box and not self.observes_images:  # all at once, if all are valid
            rows = np.asarray(observations).reshape(self.n_envs, -1).astype(np.float32)
            if np.isfinite(rows).all():
                return rows
        each = iterate(self.env.observation_space, observations)
        return np.stack([self._encode_returned(one) for one in each])
