"""Convert the state of a run to named arrays and back.

Files are not trusted: names, shapes, dtypes and ranges of the arrays, and the consistency of counters, history and
environment state, are checked before any of them is used.
"""

from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np

from anchored import trees
from anchored.rl import replay, saved_history, training
from anchored.rl.arguments import AgentArguments
from anchored.rl.config import AgentConfig
from anchored.rl.environments import DeepSea, GymnasiumAdapter
from anchored.rl.environments.environment import Environment, Spaces
from anchored.rl.environments.minatar import MinAtarGame
from anchored.rl.history import History
from anchored.rl.q_learning import Members
from anchored.rl.q_network import LayerParams, QNetwork, Rescaled
from anchored.rl.replay import Transition
from anchored.rl.runners import STEPS_PER_START
from anchored.rl.saved_environment import COMPILED
from anchored.rl.saved_history import Arrays, Evaluations, refuse_where
from anchored.rl.training import TrainState
from anchored.storage.headers import StorageError

VARIABLE_LENGTH = ("env_state/actions", *saved_history.HISTORY, *saved_history.EVALUATIONS)
PARAMETERS = tuple(f"train_state/members/{name}/" for name in ("params", "anchors", "targets", "averages"))
MAX_WEIGHT = 1e15  # largest absolute value of a parameter
# Bound on the outputs of each layer of a QNetwork for inputs up to MAX_INPUT: their squares, from which standard
# deviations are computed, are finite in single precision.
MAX_VALUE, MAX_INPUT = 1e18, 1e6
BOUNDED_ACTIVATIONS = ("tanh", "erf", "logistic", "sin")  # with values in [−1, 1]


class Expected(NamedTuple):
    """The agent and the environment that the arrays of a file must fit."""

    config: AgentConfig  # of the agent
    env: Environment | GymnasiumAdapter  # the environment, or its adapter
    observation: np.ndarray  # an example
    initial: Arrays  # the environment's initial state
    seed: int  # of the run


class SavedState(NamedTuple):
    """The state of a run, except the state of the environment."""

    train_state: TrainState  # of the agent
    history: History  # of finished episodes and the current one
    evaluations: Evaluations  # during training


def to_arrays(state: SavedState) -> Arrays:
    """Return the arrays of `state`, named by their path in it."""
    plain = _with_key_data(state.train_state)
    arrays = {name: np.asarray(leaf) for name, leaf in zip(_names(plain), jax.tree.leaves(plain), strict=True)}
    return {**arrays, **saved_history.to_arrays(state.history, state.evaluations)}


def check_size(arguments: AgentArguments, spaces: Spaces, observation_size: int, arrays: Arrays) -> None:
    """Raise if members and buffer of `arguments` need more numbers than the file has, before memory is allocated.

    `spaces` and `observation_size` describe the environment; `arrays` are those of the file.
    """
    n_stored = sum(array.size for array in arrays.values())
    n_members = 2 * arguments.n_estimators * _n_weights(arguments, spaces)  # numbers in their parameters and anchors
    n_buffer = arguments.buffer_size * (observation_size + 4)  # observations may be stored once, not twice
    for names, needed in (("n_estimators and hidden_layer_sizes", n_members), ("buffer_size", n_buffer)):
        if needed > n_stored:
            raise StorageError(
                f"it does not fit this environment or network: its arguments.{names} need {needed} numbers, but it "
                f"holds {n_stored}"
            )


def _n_weights(arguments: AgentArguments, spaces: Spaces) -> int:
    """Return the number of parameters of a member, or a lower bound if the network is the user's."""
    if arguments.network is not None or getattr(spaces, "observes_images", False):
        return 1
    sizes = (spaces.n_observations or spaces.observation_size, *arguments.hidden_layer_sizes, spaces.n_actions)
    return sum((n + 1) * m for n, m in pairwise(sizes))


def from_arrays(arrays: Arrays, expected: Expected) -> SavedState:
    """Return the state that `to_arrays` stored, on the device; arguments and errors are as in `check`."""
    state = check(arrays, expected)
    train_state = jax.tree.map(jax.device_put, state.train_state)
    return state._replace(train_state=train_state._replace(key=jax.random.wrap_key_data(train_state.key)))


def check(arrays: Arrays, expected: Expected) -> SavedState:
    """Check `arrays`, and return the state that they hold, in NumPy arrays, with the key as integers.

    Raises a StorageError if `arrays` do not fit what is `expected`, or contradict each other.
    """
    config, observation = expected.config, expected.observation
    like = jax.eval_shape(
        lambda key: _with_key_data(training.init_train_state(key, config, observation)), jax.random.key(0)
    )
    names = _names(like)
    empty_history = History().without_current(config.learning.n_envs)
    other_arrays = {**expected.initial, **saved_history.to_arrays(empty_history, [])}
    _check_shapes(arrays, {**dict(zip(names, jax.tree.leaves(like), strict=True)), **other_arrays})
    state = jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in names])
    for name in arrays:
        if not name.startswith("env_state/"):
            _check_numbers(name, arrays[name])
    _check_values(state.members, config)
    _check_key(state, expected.seed)
    _check_transitions(state.buffer.transitions, expected.env, config)
    _check_counters(state, config)
    n_current = _check_env_state(arrays, expected, state)
    history = saved_history.history_from_arrays(arrays, int(state.n_steps), int(state.n_episodes), n_current)
    return SavedState(state, history, saved_history.evaluations_from_arrays(arrays, int(state.n_steps)))


def _with_key_data(state: TrainState) -> TrainState:
    """Return the state with its key as an array of integers."""
    return state._replace(key=jax.random.key_data(state.key))


def _names(state: TrainState) -> list[str]:
    """Return the name under which each leaf of the state is stored."""
    return ["/".join(("train_state", *path)) for path in trees.paths(state)]


def _check_shapes(arrays: Arrays, needed: dict[str, jax.ShapeDtypeStruct | np.ndarray]) -> None:
    """Raise unless `arrays` are exactly those `needed`, each with its shape and dtype."""
    unknown, missing = sorted(set(arrays) - set(needed)), sorted(set(needed) - set(arrays))
    if unknown or missing:
        what, names = ("is missing", missing) if missing else ("is unknown", unknown)
        raise StorageError(f"it does not fit this environment or network: array {names[0][:200]!r} {what}")
    for name, like in needed.items():
        array = arrays[name]
        is_variable = name in VARIABLE_LENGTH and array.ndim == like.ndim
        if array.shape != ((*array.shape[:1], *like.shape[1:]) if is_variable else like.shape):
            raise StorageError(
                f"it does not fit this environment or network: array {name!r} has shape {array.shape}, but must have "
                f"shape {like.shape}"
            )
        if array.dtype != like.dtype:
            raise StorageError(
                f"it was saved in another precision: array {name!r} is {array.dtype}, but must be {like.dtype}. Set "
                "JAX's jax_enable_x64 as it was when the agent was saved"
            )


def _check_numbers(name: str, array: np.ndarray) -> None:
    """Raise unless numbers are finite and integers not negative; the moments of an optimiser may be infinite."""
    if array.dtype.kind == "f":
        wrong = np.isnan(array) if "/optimizer_state/" in name else ~np.isfinite(array)
        refuse_where(wrong, name, "holds numbers that are not finite")
        diverged = name.startswith(PARAMETERS) and np.abs(array).max(initial=0) > MAX_WEIGHT
        refuse_where(diverged, name, f"holds parameters beyond {MAX_WEIGHT:g}: a member has diverged")
    elif array.dtype.kind == "i":
        refuse_where(array < 0, name, "holds negative numbers")
    elif array.dtype.kind == "b":
        refuse_where(array.view(np.uint8) > 1, name, "holds bytes that are neither true nor false")


def _check_values(members: Members, config: AgentConfig) -> None:
    """Raise if a member that is a `QNetwork` could output values that are not finite."""
    network = config.learning.network
    network = network.network if isinstance(network, Rescaled) else network
    if isinstance(network, QNetwork):
        for name in ("params", "anchors", "targets", "averages"):
            if getattr(members, name) is not None:
                _check_bound(f"train_state/members/{name}", getattr(members, name), network)


def _check_bound(where: str, params: LayerParams, network: QNetwork) -> None:
    """Raise if `params` allow the absolute value of a unit to exceed MAX_VALUE; `where` is their name in errors."""
    inputs = None
    for name in (f"layer_{i}" for i in range(network.n_layers)):
        weights, bias = (np.abs(params[name][part]).astype(float) for part in ("weights", "bias"))
        if weights.ndim == 5:  # a convolution of (members, height, width, channels, filters)
            weights = weights.sum((1, 2))
            bound = 255 * weights.sum(1) if inputs is None else (inputs[:, None] @ weights)[:, 0]
        elif inputs is not None:
            inputs = np.tile(inputs, weights.shape[1] // inputs.shape[1])  # all pixels of the last convolution
            bound = (inputs[:, None] @ weights)[:, 0]
        else:  # an integer selects a row
            bound = weights.sum(1) * MAX_INPUT if network.n_observations is None else weights.max(1)
        bound += bias
        why = f"holds weights that allow values beyond {MAX_VALUE:g}: a member has diverged"
        refuse_where(bound > MAX_VALUE, f"{where}/{name}/weights", why)
        # The absolute value of any other activation exceeds that of its input by less than 1.
        inputs = np.ones_like(bound) if network.activation in BOUNDED_ACTIVATIONS else bound + 1


def _check_key(state: TrainState, seed: int) -> None:
    """Raise if the key is not the one that follows from `seed`."""
    expected = np.asarray(jax.random.key_data(jax.random.key(seed)))
    refuse_where(state.key != expected, "train_state/key", f"is not the key of arguments.seed, {seed}")


def _check_transitions(rows: Transition, spaces: Spaces, config: AgentConfig) -> None:
    """Raise if stored transitions are not possible in the environment."""
    where = "train_state/buffer/transitions/"
    refuse_where(
        rows.action >= spaces.n_actions,
        where + "action",
        f"holds actions that are not below {spaces.n_actions}, their number",
    )
    if spaces.n_observations is not None:
        for name in ("observation", "next_observation"):
            beyond = getattr(rows, name) >= spaces.n_observations
            refuse_where(
                beyond, where + name, f"holds observations that are not below {spaces.n_observations}, their number"
            )
    if config.learning.n_envs == 1 and not config.learning.observations_once:  # otherwise, such rows are not steps
        refuse_where(~replay.is_step(rows), where + "terminated", "marks steps that are not the last of an episode")


def _check_counters(state: TrainState, config: AgentConfig) -> None:
    """Raise if the numbers of steps, rollouts, episodes and gradient steps contradict each other."""
    n_steps, n_rollouts, n_episodes = int(state.n_steps), int(state.n_rollouts), int(state.n_episodes)
    name = "train_state/n_rollouts"
    n_rows, n_envs = int(state.buffer.n_added), config.learning.n_envs
    once = config.learning.observations_once
    # Resets of vectorised environments take rows too, and so do last observations that are stored once.
    most_rows = n_steps if n_envs == 1 and not once else 3 * n_steps + n_envs
    is_possible = n_steps <= n_rows <= most_rows
    refuse_where(not is_possible, "train_state/buffer/n_added", f"does not fit the number of steps, {n_steps}")
    if config.train_freq == "episode":
        refuse_where(not n_episodes <= n_rollouts <= n_steps, name, "does not fit the steps and episodes")
    else:
        n_expected = n_rollouts * config.train_freq * n_envs
        is_expected = n_expected <= n_rows if once else n_expected == n_rows
        refuse_where(not is_expected, name, "does not fit the number of steps")
    refuse_where(n_episodes > n_steps, "train_state/n_episodes", f"is more than the number of steps, {n_steps}")
    refuse_where(state.mean_reward < 0, "train_state/mean_reward", "is negative, but absolute rewards are not")
    n_gradient_steps = max(0, n_rollouts - config.first_update) * config.learning.gradient_steps
    wrong = state.members.n_gradient_steps != n_gradient_steps
    refuse_where(
        wrong,
        "train_state/members/n_gradient_steps",
        f"is not {n_gradient_steps}, as follows from the number of rollouts",
    )


def _check_env_state(arrays: Arrays, expected: Expected, state: TrainState) -> list[int] | None:
    """Check the state of the environment; return the number of steps of the current episode, None for several.

    The state of a compiled environment that the user wrote cannot be checked.
    """
    env = expected.env
    if isinstance(env, GymnasiumAdapter):
        _check_gymnasium_actions(arrays, env)
        if env.n_envs > 1:
            _check_vector_state(arrays, env, state)
            return None
        _check_gymnasium_state(arrays, env, state)
        return [len(arrays["env_state/actions"])]
    n_steps_name = f"env_state/{len(expected.initial) - 1}"  # the last leaf of an EnvState
    if type(env) in COMPILED.values():
        for name in expected.initial:
            if arrays[name].dtype.kind == "i" and name != n_steps_name:
                _check_integers(name, arrays[name], env)
            else:
                _check_numbers(name, arrays[name])
        late = arrays[n_steps_name] >= env.max_episode_steps
        refuse_where(late, n_steps_name, "is beyond the time limit of an episode")
    return [int(arrays[n_steps_name])]


def _check_integers(name: str, array: np.ndarray, env: Environment) -> None:
    """Raise if integers of the state of a compiled environment are beyond what the environment can reach."""
    if isinstance(env, MinAtarGame):
        limit = env.largest_integer
        refuse_where(np.abs(array.astype(np.int64)) > limit, name, f"must be from −{limit} to {limit}")
    else:
        limit = env.size if isinstance(env, DeepSea) else env.n_observations or 0
        _check_numbers(name, array)
        refuse_where(array >= limit, name, f"must be below {limit}")


def _check_gymnasium_actions(arrays: Arrays, env: GymnasiumAdapter) -> None:
    """Raise if observation and actions in the state of a Gymnasium environment are not possible in it."""
    actions, observation = arrays["env_state/actions"], arrays["env_state/observation"]
    _check_numbers("env_state/observation", observation)
    if env.n_observations is not None:
        refuse_where(observation >= env.n_observations, "env_state/observation", "is not in the observation space")
    invalid = (actions < 0) | (actions >= env.n_actions)
    refuse_where(invalid, "env_state/actions", f"holds numbers that are not among the {env.n_actions} actions")


def _check_vector_state(arrays: Arrays, env: GymnasiumAdapter, state: TrainState) -> None:
    """Raise if the state of vectorised environments contradicts itself, or does not fit the replay buffer."""
    actions, n_started = arrays["env_state/actions"], arrays["env_state/n_started"]
    for name in ("start", "episodes", "n_started"):
        _check_numbers(f"env_state/{name}", arrays[f"env_state/{name}"])
    refuse_where(len(actions) > STEPS_PER_START, "env_state/actions", f"has more than {STEPS_PER_START} rows")
    refuse_where(
        arrays["env_state/episodes"] >= n_started, "env_state/episodes", "holds episodes that were not started"
    )
    rows, n_stored = state.buffer.transitions, min(len(actions) * env.n_envs, int(state.buffer.n_added))
    newest = (int(state.buffer.n_added) - 1 - np.arange(min(n_stored, len(rows.action)))) % len(rows.action)
    differ = rows.action[newest] != actions.ravel()[::-1][: len(newest)]
    refuse_where(differ, "env_state/actions", "differs from the actions in the replay buffer")


def _check_gymnasium_state(arrays: Arrays, env: GymnasiumAdapter, state: TrainState) -> None:
    """Raise if the state of a Gymnasium environment does not fit the environment and the replay buffer."""
    actions, observation = arrays["env_state/actions"], arrays["env_state/observation"]
    refuse_where(arrays["env_state/episode"] != state.n_episodes, "env_state/episode", "is not the number of episodes")
    limit = None if env.env.spec is None else env.env.spec.max_episode_steps
    too_long = limit is not None and len(actions) >= limit
    refuse_where(too_long, "env_state/actions", f"has at least {limit} entries, the time limit of an episode")
    rows, n_added = state.buffer.transitions, int(state.buffer.n_added)
    n_stored = min(len(actions), n_added, len(rows.action))
    newest = (n_added - 1 - np.arange(n_stored)) % len(rows.action)
    differ = rows.action[newest] != actions[::-1][:n_stored]
    refuse_where(differ, "env_state/actions", "differs from the actions in the replay buffer")
    if n_stored:
        newest_observation = state.buffer.newest_observation
        if newest_observation is None:
            newest_observation = rows.next_observation[newest[0]]  # type: ignore[index]
        refuse_where(
            newest_observation != observation,
            "env_state/observation",
            "differs from the newest one in the replay buffer",
        )
