"""The state of a run as named arrays, and back.

Nothing is trusted: names, shapes, dtypes and ranges of the arrays, and whether counters, history and environment state
agree, are checked before any of it is used.
"""

from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from anchored import trees
from anchored.rl import saved_history, training
from anchored.rl.arguments import AgentArguments
from anchored.rl.config import AgentConfig
from anchored.rl.environments import DeepSea, GymnasiumAdapter
from anchored.rl.environments.environment import Environment, Spaces
from anchored.rl.history import History
from anchored.rl.q_learning import Members
from anchored.rl.q_network import QNetwork, Rescaled
from anchored.rl.replay import Transition
from anchored.rl.saved_environment import COMPILED
from anchored.rl.saved_history import Arrays, Evaluations, refuse_where
from anchored.rl.training import TrainState
from anchored.storage.headers import StorageError
from anchored.types import Params

OF_ANY_LENGTH = ("env_state/actions", *saved_history.HISTORY, *saved_history.EVALUATIONS)
WEIGHTS = tuple(f"train_state/members/{name}/" for name in ("params", "anchors", "targets"))
LARGEST_WEIGHT = 1e15  # of a member of any network
# What the library's own network may reach at any layer, for inputs up to the largest: the squares, which standard
# deviations are computed from, are finite in single precision.
LARGEST_VALUE, LARGEST_INPUT = 1e18, 1e6
WITHIN_ONE = ("tanh", "erf", "logistic", "sin")  # activations


class Expected(NamedTuple):
    """What the arrays of a file must fit."""

    config: AgentConfig
    env: Environment | GymnasiumAdapter
    observation: np.ndarray  # an example
    initial: Arrays  # the environment's initial state
    seed: int


class SavedState(NamedTuple):
    """What a file keeps of a run, beside the state of the environment."""

    train_state: TrainState
    history: History
    evaluations: Evaluations


def to_arrays(state: SavedState) -> Arrays:
    """Arrays named by their position in the state."""
    bare = _with_key_data(state.train_state)
    arrays = {name: np.asarray(leaf) for name, leaf in zip(_names(bare), jax.tree.leaves(bare), strict=True)}
    return {**arrays, **saved_history.to_arrays(state.history, state.evaluations)}


def check_size(arguments: AgentArguments, spaces: Spaces, observation_size: int, arrays: Arrays) -> None:
    """Raise if the arguments need more numbers than the file holds, before anything of that size is made."""
    held = sum(array.size for array in arrays.values())
    members = 2 * arguments.n_estimators * _n_weights(arguments, spaces)  # their weights and anchors
    steps = arguments.buffer_size * (2 * observation_size + 4)
    for names, needed in (("n_estimators and hidden_layer_sizes", members), ("buffer_size", steps)):
        if needed > held:
            raise StorageError(
                f"it does not fit this environment or network: its arguments.{names} need {needed} numbers, and it "
                f"holds {held}"
            )


def _n_weights(arguments: AgentArguments, spaces: Spaces) -> int:
    """Of a member, or a lower bound."""
    if arguments.network is not None:
        return 1
    sizes = (spaces.n_observations or spaces.observation_size, *arguments.hidden_layer_sizes, spaces.n_actions)
    return sum((n + 1) * m for n, m in pairwise(sizes))


def from_arrays(arrays: Arrays, expected: Expected) -> SavedState:
    """The state that `to_arrays` stored; a StorageError if it does not fit what is expected."""
    state = check(arrays, expected)
    train_state = jax.tree.map(jax.device_put, state.train_state)
    return state._replace(train_state=train_state._replace(key=jax.random.wrap_key_data(train_state.key)))


def check(arrays: Arrays, expected: Expected) -> SavedState:
    """The state in NumPy arrays, its key as numbers; a StorageError if it does not fit what is expected, or itself."""
    config, observation = expected.config, expected.observation
    form = jax.eval_shape(
        lambda key: _with_key_data(training.init_train_state(key, config, observation)), jax.random.key(0)
    )
    names = _names(form)
    others = {**expected.initial, **saved_history.to_arrays(History(), [])}
    _check_forms(arrays, {**dict(zip(names, jax.tree.leaves(form), strict=True)), **others})
    state = jax.tree.unflatten(jax.tree.structure(form), [arrays[name] for name in names])
    for name in arrays:
        if not name.startswith("env_state/"):
            _check_numbers(name, arrays[name])
    _check_values(state.members, config)
    _check_key(state, expected.seed)
    _check_transitions(state.buffer.transitions, expected.env)
    _check_counters(state, config)
    n_current = _check_env_state(arrays, expected, state)
    history = saved_history.history_from_arrays(arrays, int(state.n_steps), int(state.n_episodes), n_current)
    return SavedState(state, history, saved_history.evaluations_from_arrays(arrays, int(state.n_steps)))


def _with_key_data(state: TrainState) -> TrainState:
    """With the key as the numbers that it consists of."""
    return state._replace(key=jax.random.key_data(state.key))


def _names(state: TrainState) -> list[str]:
    return ["/".join(("train_state", *path)) for path in trees.paths(state)]


def _check_forms(arrays: Arrays, needed: dict[str, jax.ShapeDtypeStruct | np.ndarray]) -> None:
    """Exactly the arrays needed, each with its shape and dtype."""
    unknown, missing = sorted(set(arrays) - set(needed)), sorted(set(needed) - set(arrays))
    if unknown or missing:
        what, names = ("needs", missing) if missing else ("does not know", unknown)
        raise StorageError(f"it does not fit this environment or network, which {what} the array {names[0][:200]!r}")
    for name, form in needed.items():
        array = arrays[name]
        shape = array.shape if name in OF_ANY_LENGTH and array.ndim == 1 else form.shape
        if array.shape != shape:
            raise StorageError(
                f"it does not fit this environment or network: array {name!r} has shape {array.shape}, and "
                f"{form.shape} is needed"
            )
        if array.dtype != form.dtype:
            raise StorageError(
                f"it was saved in another precision (array {name!r} is {array.dtype}, and now {form.dtype}): set JAX's "
                "jax_enable_x64 as it was then"
            )


def _check_numbers(name: str, array: np.ndarray) -> None:
    """Finite, and whole numbers not negative. An optimiser's moments may have overflowed."""
    if array.dtype.kind == "f":
        wrong = np.isnan(array) if "/optimizer_state/" in name else ~np.isfinite(array)
        refuse_where(wrong, name, "holds numbers that are not finite")
        diverged = name.startswith(WEIGHTS) and np.abs(array).max(initial=0) > LARGEST_WEIGHT
        refuse_where(diverged, name, f"holds weights beyond {LARGEST_WEIGHT:g}, of a member that has diverged")
    elif array.dtype.kind == "i":
        refuse_where(array < 0, name, "holds negative numbers")
    elif array.dtype.kind == "b":
        refuse_where(array.view(np.uint8) > 1, name, "holds bytes that are neither true nor false")


def _check_values(members: Members, config: AgentConfig) -> None:
    """Raise if the library's own network could give values that are not finite."""
    network = config.learning.network
    network = network.network if isinstance(network, Rescaled) else network
    if isinstance(network, QNetwork):
        for name in ("params", "anchors", "targets"):
            if getattr(members, name) is not None:
                _check_bound(f"train_state/members/{name}", getattr(members, name), network)


def _check_bound(where: str, params: Params, network: QNetwork) -> None:
    """Bound each unit by the absolute weights, layer by layer."""
    inputs = None
    for name in (f"layer_{i}" for i in range(len(network.hidden_layer_sizes) + 1)):
        weights, bias = (np.abs(params[name][part]).astype(float) for part in ("weights", "bias"))
        if inputs is not None:
            bound = (inputs[:, None] @ weights)[:, 0]
        else:  # an integer selects a row
            bound = weights.sum(1) * LARGEST_INPUT if network.n_observations is None else weights.max(1)
        bound += bias
        why = f"holds weights that allow values beyond {LARGEST_VALUE:g}, of a member that has diverged"
        refuse_where(bound > LARGEST_VALUE, f"{where}/{name}/weights", why)
        # Other activations than these add less than 1 to the magnitude of their input.
        inputs = np.ones_like(bound) if network.activation in WITHIN_ONE else bound + 1


def _check_key(state: TrainState, seed: int) -> None:
    own = np.asarray(jax.random.key_data(jax.random.key(seed)))
    refuse_where(state.key != own, "train_state/key", f"is not the key of arguments.seed, {seed}")


def _check_transitions(rows: Transition, spaces: Spaces) -> None:
    where = "train_state/buffer/transitions/"
    refuse_where(rows.action >= spaces.n_actions, where + "action", f"holds more than the {spaces.n_actions} actions")
    if spaces.n_observations is not None:
        for name in ("observation", "next_observation"):
            beyond = getattr(rows, name) >= spaces.n_observations
            refuse_where(beyond, where + name, f"holds more than the {spaces.n_observations} observations")
    refuse_where(rows.terminated & ~rows.done, where + "terminated", "holds steps that are not the last of an episode")


def _check_counters(state: TrainState, config: AgentConfig) -> None:
    """Steps, rollouts, episodes and gradient steps follow from one another."""
    n_steps, n_rollouts, n_episodes = int(state.n_steps), int(state.n_rollouts), int(state.n_episodes)
    name = "train_state/n_rollouts"
    refuse_where(
        state.buffer.n_added != n_steps, "train_state/buffer/n_added", f"is not the number of steps, {n_steps}"
    )
    if config.train_freq == "episode":
        refuse_where(not n_episodes <= n_rollouts <= n_steps, name, "does not fit the steps and episodes")
    else:
        refuse_where(n_rollouts * config.train_freq != n_steps, name, "does not fit the number of steps")
    refuse_where(n_episodes > n_steps, "train_state/n_episodes", f"is more than the number of steps, {n_steps}")
    n_gradient_steps = max(0, n_rollouts - config.first_update) * config.learning.gradient_steps
    wrong = state.members.n_gradient_steps != n_gradient_steps
    refuse_where(wrong, "train_state/members/n_gradient_steps", f"is not {n_gradient_steps}, that of its rollouts")


def _check_env_state(arrays: Arrays, expected: Expected, state: TrainState) -> int:
    """Check the state of the environment, and return the number of steps of the current episode.

    The state of an environment of the user's own is not known, and not checked.
    """
    env = expected.env
    if isinstance(env, GymnasiumAdapter):
        _check_gymnasium_state(arrays, env, state)
        return len(arrays["env_state/actions"])
    n_steps_name = f"env_state/{len(expected.initial) - 1}"  # the last leaf of an EnvState
    if type(env) in COMPILED.values():
        limit = env.size if isinstance(env, DeepSea) else env.n_observations
        for name in expected.initial:
            _check_numbers(name, arrays[name])
            if arrays[name].dtype.kind == "i" and name != n_steps_name:
                refuse_where(arrays[name] >= limit, name, f"must be below {limit}")
        late = arrays[n_steps_name] >= env.max_episode_steps
        refuse_where(late, n_steps_name, "is beyond the end of the episode")
    return int(arrays[n_steps_name])


def _check_gymnasium_state(arrays: Arrays, env: GymnasiumAdapter, state: TrainState) -> None:
    actions, observation = arrays["env_state/actions"], arrays["env_state/observation"]
    _check_numbers("env_state/observation", observation)
    if env.n_observations is not None:
        refuse_where(observation >= env.n_observations, "env_state/observation", "is not one of the environment's")
    refuse_where(arrays["env_state/episode"] != state.n_episodes, "env_state/episode", "is not the number of episodes")
    invalid = (actions < 0) | (actions >= env.n_actions)
    refuse_where(invalid, "env_state/actions", "holds more than the actions there are")
    limit = None if env.env.spec is None else env.env.spec.max_episode_steps
    too_long = limit is not None and len(actions) >= limit
    refuse_where(too_long, "env_state/actions", f"is as long as an episode: {limit}")
    rows, n_added = state.buffer.transitions, int(state.buffer.n_added)
    n_stored = min(len(actions), n_added, len(rows.action))
    newest = (n_added - 1 - np.arange(n_stored)) % len(rows.action)
    differ = rows.action[newest] != actions[::-1][:n_stored]
    refuse_where(differ, "env_state/actions", "are not those of the buffer")
    if n_stored:
        led_to = rows.next_observation[newest[0]]
        refuse_where(led_to != observation, "env_state/observation", "is not where the newest step led")
