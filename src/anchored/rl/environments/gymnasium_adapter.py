"""Adapter of Gymnasium environments: actions counted from 0, observations as vectors or integers."""

import operator
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from anchored.errors import MissingPackageError
from anchored.rl.environments.images import is_image

if TYPE_CHECKING:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec

Observation = Any  # an element of any Gymnasium space, or a batch of elements
TRANSPARENT_WRAPPERS = (  # they do not change what an agent observes
    "PassiveEnvChecker",
    "OrderEnforcing",
    "HumanRendering",
    "RenderCollection",
)
MAKE_VEC_ARGUMENTS = ("num_envs", "vectorization_mode", "max_episode_steps")  # `make_vec` adds them to a spec
UNBOUNDED = 1e6  # larger bounds are ignored: some environments declare a very large number instead of infinity


class GymnasiumAdapter:
    """Wraps a `gymnasium.Env` with a Discrete action space; `reset` and `step` return no info.

    Actions are 0, …, n_actions − 1, even if the environment counts from another number. Observations of a Discrete
    space become int32 scalars counted from 0; images, which are a Box of bytes with two or three axes, stay as they
    are; all other observations of fixed length become float32 vectors. Termination and truncation are distinguished.
    Observations and rewards are checked at every step, so that the agent never learns from a NaN.

    Parameters
    ----------
    env
        The environment, its name, or its spec; or a dm_env environment.
    """

    def __init__(self, env: "gymnasium.Env | EnvSpec | str"):
        try:
            import gymnasium
        except ImportError as error:
            raise MissingPackageError("a Gymnasium environment", "gymnasium", "rl") from error
        self._spaces = gymnasium.spaces
        self.n_envs = 1
        self.env, actions, observations = self._wrap(env)
        self.name = self.env.spec.id if self.env.spec is not None else type(self.env.unwrapped).__name__
        self._check_spaces(actions, observations)
        self._actions = cast("gymnasium.spaces.Discrete", actions)
        self._observations = cast(Any, observations)  # of any kind that can be flattened
        self.n_actions = int(self._actions.n)
        self._observes_integers = isinstance(self._observations, gymnasium.spaces.Discrete)
        self.n_observations = int(self._observations.n) if self._observes_integers else None
        is_box = isinstance(observations, gymnasium.spaces.Box)
        self.observes_images = is_box and is_image(self._observations.shape, self._observations.dtype)
        self.observation_size = 1 if self._observes_integers else int(gymnasium.spaces.flatdim(self._observations))

    def _wrap(self, env: object) -> "tuple[gymnasium.Env, object, object]":
        """Return the environment, made if `env` is its name, and its spaces of actions and of observations."""
        import gymnasium

        made = _single_environment(gymnasium, env)
        return made, getattr(made, "action_space", None), getattr(made, "observation_space", None)

    @property
    def spaces(self) -> "tuple[gymnasium.Space, gymnasium.Space]":
        """The spaces of observations and of actions, of each environment if there are several."""
        return self._observations, self._actions

    @property
    def observation_bounds(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Lower and upper ends of the range of each entry of an observation; None for integers and images.

        They are the bounds of a Box, if both are finite and below UNBOUNDED; otherwise −1 and 1.
        """
        if self._observes_integers or self.observes_images:
            return None
        if not isinstance(self._observations, self._spaces.Box):
            return -np.ones(self.observation_size), np.ones(self.observation_size)
        low, high = np.ravel(self._observations.low).astype(float), np.ravel(self._observations.high).astype(float)
        bounded = (np.abs(low) < UNBOUNDED) & (np.abs(high) < UNBOUNDED) & (low < high)
        return np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)

    def reset(self, seed: int) -> np.ndarray:
        """Start an episode with the random seed `seed`; return its first observation, encoded."""
        observation, _ = self._check_tuple(self.env.reset(seed=int(seed)), ("observation", "info"), "reset")
        return self._encode_returned(observation)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool]:
        """Take `action`, counted from 0.

        Returns the encoded observation, the reward, whether the episode terminated, and whether it was truncated.
        """
        action = operator.index(action)
        if not 0 <= action < self.n_actions:
            raise ValueError(f"action must be one of 0, …, {self.n_actions - 1} in {self.name}, got {action!r}")
        parts = self.env.step(self.decode(action))
        names = ("observation", "reward", "terminated", "truncated", "info")
        observation, reward, terminated, truncated, _ = self._check_tuple(parts, names, "step")
        return self._encode_returned(observation), self._check_reward(reward), bool(terminated), bool(truncated)

    def decode(self, action: ArrayLike) -> np.ndarray:
        """Return the environment's actions for `action`, one action counted from 0 or several, (rows,)."""
        return (self._actions.start + np.asarray(action)).astype(self._actions.dtype)[()]

    def split(self, observations: Observation) -> list[Observation] | None:
        """Return a list of the observations in `observations`; None if it is a single observation.

        Several observations are an array with one more axis or, for spaces without a shape (Dict, Tuple), a list.
        """
        if self._observations.shape is not None:
            is_single = np.ndim(observations) <= len(self._observations.shape)
        else:
            is_single = not isinstance(observations, list)
        return None if is_single else list(observations)

    def _check_spaces(self, actions: object, observations: object) -> None:
        """Raise unless `actions` are Discrete and `observations` have a fixed length."""
        for name, space in (("action_space", actions), ("observation_space", observations)):
            if not isinstance(space, self._spaces.Space):
                raise TypeError(f"env: {self.name} has no {name}; set one of gymnasium.spaces in its __init__.")
        if not isinstance(actions, self._spaces.Discrete):
            raise ValueError(
                f"env: {self.name} has the action space {actions}, but the agent needs a Discrete one. "
                "Discretise it with a gymnasium wrapper: gymnasium.wrappers.TransformAction(env, "
                "func, gymnasium.spaces.Discrete(n)), where func turns 0, …, n − 1 into the environment's actions."
            )
        if not observations.is_np_flattenable:  # type: ignore[attr-defined]
            raise ValueError(
                f"env: {self.name} has the observation space {observations}, whose observations have no "
                "fixed length. Encode them as a vector with gymnasium.wrappers.TransformObservation."
            )

    def encode(self, observation: Observation) -> np.ndarray:
        """Return an observation as a float32 vector, an image of bytes, or an int32 scalar counted from 0.

        Raises a ValueError if `observation` is not finite, or has another structure or shape than the observation
        space. Bounds of a Box are not checked.
        """
        if self._observes_integers:
            return self._encode_integer(observation)
        if self.observes_images:
            return self._encode_image(observation)
        vector = self._encode_vector(observation)
        invalid = np.flatnonzero(~np.isfinite(vector))
        if invalid.size:
            raise ValueError(f"its entry {invalid[0]} is {vector[invalid[0]]} as float32")
        return vector

    def _encode_returned(self, observation: Observation) -> np.ndarray:
        """Encode an observation that the environment returned; errors say that the environment is wrong."""
        try:
            return self.encode(observation)
        except ValueError as error:
            is_array = isinstance(observation, np.ndarray)
            what = f"an observation of shape {observation.shape}" if is_array else f"the observation {observation!r}"
            raise ValueError(
                f"env: {self.name} returned {what}, but {error}. Correct the environment's observation_space or what "
                "it returns, or convert it with gymnasium.wrappers.TransformObservation; "
                "gymnasium.utils.env_checker.check_env(env) finds such errors."
            ) from error

    def _encode_integer(self, observation: Observation) -> np.ndarray:
        """Return an observation of a Discrete space, counted from 0."""
        try:
            index = operator.index(observation) - int(self._observations.start)
        except TypeError as error:
            raise self._not_in_space() from error
        if not 0 <= index < self._observations.n:
            raise self._not_in_space()
        return np.asarray(index, np.int32)

    def _encode_image(self, observation: Observation) -> np.ndarray:
        """Return a copy of an image, as an array of bytes."""
        pixels = np.asarray(observation)
        image = pixels.astype(np.uint8)
        if image.shape != self._observations.shape or (pixels.dtype != np.uint8 and not np.array_equal(image, pixels)):
            raise self._not_in_space()
        return image

    def _encode_vector(self, observation: Observation) -> np.ndarray:
        """Return an observation of a space that is not Discrete as a flat float32 vector."""
        is_box = isinstance(self._observations, self._spaces.Box)
        try:
            if not self._belongs(self._observations, observation):
                raise self._not_in_space()
            # `flatten` casts a Box to the dtype of the space, which may hide a NaN.
            flat = np.ravel(observation) if is_box else self._spaces.flatten(self._observations, observation)
            with np.errstate(over="ignore"):  # numbers too large for float32 become infinite, and `encode` raises
                vector = np.asarray(flat).astype(np.float32)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            raise self._not_in_space() from error
        if vector.shape != (self.observation_size,):
            raise self._not_in_space()
        return vector

    def _belongs(self, space: "gymnasium.Space", value: Observation) -> bool:
        """Return `space.contains(value)`, but allow numbers of any precision, and numbers outside their bounds."""
        if isinstance(space, self._spaces.Dict):
            return set(value) == set(space) and all(self._belongs(space[name], value[name]) for name in space)
        if isinstance(space, self._spaces.Tuple):
            return len(value) == len(space) and all(map(self._belongs, space, value))
        if isinstance(space, self._spaces.Box):
            return np.shape(value) == space.shape
        if isinstance(space, self._spaces.Discrete | self._spaces.MultiDiscrete | self._spaces.MultiBinary):
            array = np.asarray(value)
            return array.dtype.kind in "biu" and space.contains(array.astype(space.dtype))
        return space.contains(value)

    def _not_in_space(self) -> ValueError:
        """Return the error of an observation that does not belong to the observation space."""
        return ValueError(f"it does not belong to the observation_space {self._observations} of {self.name}")

    def _check_reward(self, reward: object) -> float:
        """Return the reward as a float; raise if it is not one finite number."""
        try:
            number = float(np.asarray(reward, float).reshape(()))
        except (TypeError, ValueError):
            number = np.nan
        if not np.isfinite(number) or abs(number) > float(np.finfo(np.float32).max):
            raise ValueError(
                f"env: {self.name} returned the reward {reward!r}; rewards must be single numbers, finite in "
                "float32. Correct the environment, or replace such rewards with gymnasium.wrappers.TransformReward."
            )
        return number

    def _check_tuple(self, result: object, names: tuple[str, ...], method: str) -> tuple:
        """Return `result` of the method `method`; raise unless it is a tuple with an entry for each of `names`."""
        if not isinstance(result, tuple) or len(result) != len(names):
            raise ValueError(
                f"env: {self.name}.{method} must return ({', '.join(names)}), as Gymnasium's environments do, got "
                f"{f'{len(result)} values' if isinstance(result, tuple) else f'a {type(result).__name__}'}. "
                "Environments of the older gym need a wrapper from the package shimmy."
            )
        return result


def time_limit(spec: "EnvSpec") -> int | None:
    """Return the number of steps after which an environment made from `spec` truncates an episode, None if never."""
    limit: int | None = spec.kwargs.get("max_episode_steps", spec.max_episode_steps)  # make_vec stores it there
    return limit


def is_vectorised(env: object) -> bool:
    """Return whether `env` is a vectorised environment of Gymnasium."""
    vector = sys.modules.get("gymnasium.vector")  # imported if there is a vectorised environment
    return vector is not None and isinstance(env, vector.VectorEnv)


def wrapper_names(env: "gymnasium.Env") -> list[str]:
    """Return the names of the wrappers of `env` that may change what an agent observes, outermost first."""
    from gymnasium import Wrapper
    from gymnasium.vector import VectorWrapper

    names = []
    while isinstance(env, Wrapper | VectorWrapper):
        names.append(type(env).__name__)
        env = env.env
    return [name for name in names if name not in TRANSPARENT_WRAPPERS]


def _single_environment(gymnasium: ModuleType, env: object) -> "gymnasium.Env":
    """Return the environment `env`, or make it if `env` is a name or a spec."""
    if isinstance(env, str | gymnasium.envs.registration.EnvSpec):
        try:
            return gymnasium.make(env)
        except (gymnasium.error.Error, ValueError, TypeError) as error:
            raise ValueError(
                f"env: gymnasium.make({env!r}) failed: {error} Pass an environment, or one of the names listed by "
                "gymnasium.pprint_registry()."
            ) from error
    if isinstance(env, gymnasium.vector.VectorEnv):
        raise TypeError("env: a single environment is needed here, from gymnasium.make and not make_vec.")
    if isinstance(env, type):
        raise TypeError(f"env: got the class {env.__name__}; pass an instance, {env.__name__}(…).")
    if isinstance(env, gymnasium.Env):
        return env
    from anchored.rl.environments.dm_env_adapter import DmEnvAdapter, is_dm_env  # imports gymnasium

    if not is_dm_env(env):
        raise TypeError(
            f"env: cannot use a {type(env).__name__}. Pass a gymnasium.Env or the name of one, such as 'CartPole-v1'."
        )
    return DmEnvAdapter(env)
