"""Runners of Gymnasium environments, which are stepped from Python.

A runner yields the states after each rollout, and `rollouts` starts from the states that are passed to it. So a run
that is interrupted at any point continues from the last states that the caller has stored.
"""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from anchored.inference.compilation import jit
from anchored.rl import replay, training
from anchored.rl.acting import Actor, make_actor
from anchored.rl.compiled_runner import CompiledRunner
from anchored.rl.config import AgentConfig
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter, Observation, is_vectorised, wrapper_names
from anchored.rl.history import Steps
from anchored.rl.replay import ReplayBuffer, Transition, is_step
from anchored.rl.training import TrainState

if TYPE_CHECKING:
    import gymnasium

    from anchored.rl.environments.vector_adapter import VectorAdapter

MAX_STEPS = 10_000  # number of steps after which a rollout or an evaluation stops waiting for the end of an episode
MAX_REPEATED_STEPS = 50_000  # largest number of steps of the current episode that are repeated to load an agent
STEPS_PER_START = 20_000  # steps after which all vectorised environments are reset, to limit those to be repeated


class GymnasiumState(NamedTuple):
    """How to reach the current state of a Gymnasium environment, and the observation there."""

    episode: int  # index of the current episode
    actions: tuple[int, ...]  # taken in this episode so far
    observation: np.ndarray  # encoded, as the agent receives it


class VectorState(NamedTuple):
    """How to reach the current state of vectorised environments, and the observations there."""

    start: int  # index of the last reset of all environments at once, from which its seed follows
    n_steps: int  # of each environment since then
    actions: np.ndarray  # (STEPS_PER_START, environments); the first `n_steps` rows are the actions since then
    observation: np.ndarray  # encoded, of each environment
    has_ended: np.ndarray  # whether the next step resets an environment, (environments,)
    episodes: np.ndarray  # numbers of the current episodes in the run, (environments,)
    n_started: int  # number of episodes that have been started


class Rollout(NamedTuple):
    """One rollout."""

    rows: Transition  # for the replay buffer, padded
    length: int  # number of rows that are not padding
    env_state: Any  # after it, of the runner's own type
    steps: Steps  # for the history


class GymnasiumRunner:
    """Runs a Gymnasium environment step by step.

    The seed with which episode i is reset depends only on the seed of the run and i. So any state can be reached again
    by a reset, followed by the actions of the episode.

    Parameters
    ----------
    adapter
        The environment.
    seed
        Random seed of the run.
    """

    def __init__(self, adapter: GymnasiumAdapter, seed: int):
        self.spaces = self.adapter = adapter
        self.seed, self.name, self.n_envs = seed, adapter.name, 1
        self.observation = self._reset(0)  # the current one, which is also an example of its shape and dtype
        self.start = GymnasiumState(0, (), self.observation)
        self._current: GymnasiumState | None = self.start  # None during a rollout

    def rollouts(
        self,
        config: AgentConfig,
        train_state: TrainState,
        env_state: GymnasiumState,
        until_steps: int,
        until_episodes: int,
    ) -> Iterator[tuple[TrainState, GymnasiumState, Steps]]:
        """Run rollouts, each followed by an update.

        Arguments and yielded values are as in `CompiledRunner.rollouts`, but there is one rollout for each value.
        """
        n_steps, n_episodes = int(train_state.n_steps), int(train_state.n_episodes)
        n_rows = int(train_state.buffer.n_added)
        # Updates do not depend on exploration. Numbers on the device need not be copied to it for every update.
        update_config = jax.device_put(config.greedy)
        if self._current is not env_state:  # a rollout was interrupted, or its result was discarded
            self._repeat_actions(env_state)
        # Copying a large buffer for every update would be slow, but a buffer that is written in place is lost if the
        # update is interrupted. So there are two buffers, and updates write to the spare one, which lacks the rows of
        # the rollout before.
        spare_buffer = _copy_buffer(train_state.buffer)
        missing: tuple[Transition, int] | None = None
        actor = make_actor(config)
        while n_steps < until_steps and n_episodes < until_episodes:
            actor.load(train_state)
            rows, length, next_env_state, steps = self._rollout(config, actor, env_state, n_rows)
            missing = missing or (rows, 0)
            if missing[0].reward.shape != rows.reward.shape:  # rather than compiling a program for every pair of shapes
                spare_buffer, missing = _add(spare_buffer, *missing), (rows, 0)
            old_buffer, n_ended = train_state.buffer, int(steps.done.sum())
            train_state = _update(
                update_config, _without_buffer(train_state), spare_buffer, *missing, rows, length, n_ended
            )
            n_steps, n_episodes, n_rows = n_steps + len(steps.done), n_episodes + n_ended, n_rows + length
            self._current = env_state = next_env_state
            yield train_state, env_state, steps
            spare_buffer, missing = old_buffer, (rows, length)

    def _rollout(self, config: AgentConfig, actor: Actor, env_state: GymnasiumState, n_rows: int) -> Rollout:
        """Run one rollout from `env_state`; `n_rows` rows have been added to the replay buffer before it."""
        self._current = None
        by_episode = config.train_freq == "episode"
        max_steps = MAX_STEPS if config.train_freq == "episode" else config.train_freq
        episode, actions = env_state.episode, list(env_state.actions)
        block: list[Transition] = []
        rewards: list[float] = []
        done: list[bool] = []
        explored: list[bool] = []
        while len(done) < max_steps and not (by_episode and done and done[-1]):
            indices, exploring = actor.act(self.observation[None], [n_rows + len(block)], [episode])
            action = int(indices[0])
            transition, reward = self._step(action)
            block.append(transition)
            actions.append(action)
            rewards.append(reward)
            done.append(bool(transition.done))
            explored.append(bool(exploring[0]))
            if transition.done:
                episode, actions = episode + 1, []
                self.observation = self._reset(episode)
                if config.learning.observations_once:
                    block.append(_row_of_last_observation(transition, self.observation))
        steps = Steps(np.array(rewards), np.array(done), np.array(explored))
        next_env_state = GymnasiumState(episode, tuple(actions), self.observation)
        return Rollout(_stack(block, config), len(block), next_env_state, steps)

    def encode(self, observations: Observation) -> tuple[np.ndarray, bool]:
        """Return one or several `observations` as rows of an array, and whether there was only one.

        Raises a ValueError if they are not observations of this environment.
        """
        several = self.adapter.split(observations)
        rows = [self.adapter.encode(one) for one in ([observations] if several is None else several)]
        return np.stack(rows), several is None

    def decode(self, actions: np.ndarray) -> np.ndarray:
        """Return the environment's actions for the action indices `actions`, (rows,)."""
        return self.adapter.decode(actions)

    def to_arrays(self, env_state: GymnasiumState) -> dict[str, np.ndarray]:
        """Return the arrays, by name, that `env_state` is stored as."""
        return {
            "env_state/observation": env_state.observation,
            "env_state/episode": np.asarray(env_state.episode),
            "env_state/actions": np.asarray(env_state.actions, np.int32),
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> tuple[GymnasiumState, bool]:
        """Bring the environment to the state that `to_arrays` stored in `arrays`.

        Returns
        -------
        tuple
            The state, and whether the environment reached it. If it did not, a warning says so, and the state is the
            start of the current episode.
        """
        episode, observation = int(arrays["env_state/episode"]), arrays["env_state/observation"]
        env_state = GymnasiumState(episode, tuple(arrays["env_state/actions"].tolist()), observation)
        n_actions = len(env_state.actions)
        if n_actions > MAX_REPEATED_STEPS:
            reason = f"its episode has {n_actions} steps, more than the {MAX_REPEATED_STEPS} that can be repeated"
        elif self._repeat_actions(env_state):
            return env_state, True
        else:
            wrappers = ", ".join(name for name in wrapper_names(self.adapter.env) if name != "TimeLimit")
            reason = "the same seed and actions did not lead to the state in which the agent was saved" + (
                f"; a reset may not restore the state of its wrappers ({wrappers})" if wrappers else ""
            )
        warnings.warn(
            f"env: the state of {self.adapter.name} cannot be restored: {reason}. The current episode starts again, so "
            "the run will differ from one that was not interrupted.",
            stacklevel=5,
        )
        return self.start_of(episode), False

    def start_of(self, episode: int) -> GymnasiumState:
        """Start the episode with index `episode`, and return its state."""
        self.observation = self._reset(episode)
        self._current = GymnasiumState(episode, (), self.observation)
        return self._current

    def _reset(self, episode: int) -> np.ndarray:
        """Start the episode with index `episode`, and return its first observation."""
        return self.adapter.reset(int(np.random.SeedSequence([self.seed, episode]).generate_state(1)[0]))

    def _repeat_actions(self, env_state: GymnasiumState) -> bool:
        """Reset the environment, repeat the actions of `env_state`, and return whether its observation is reached."""
        self._current = None
        self.observation = self._reset(env_state.episode)
        for action in env_state.actions:
            if self._step(action)[0].done:  # the episode of `env_state` was not over
                return False
        self._current = env_state
        return np.array_equal(self.observation, env_state.observation)

    def _step(self, action: int) -> tuple[Transition, float]:
        """Take a step; return the transition, in single precision, and the reward as the environment returned it."""
        observation = self.observation
        next_observation, reward, terminated, truncated = self.adapter.step(action)
        self.observation = next_observation
        done = terminated or truncated
        # `_stack` turns these numbers into arrays.
        rest = np.int32(action), np.float32(reward), next_observation, terminated, done
        return Transition(observation, *rest), reward  # type: ignore[arg-type]


class VectorRunner(GymnasiumRunner):
    """Steps vectorised environments from Python, and repeats their actions when an agent is loaded.

    An environment whose episode has ended is reset by the next step. The environments themselves draw the initial
    states of these later episodes, so a state is reached again by resetting all environments with the same seed, and
    repeating all actions since. To limit the number of these actions, all environments are reset at once after
    STEPS_PER_START steps, which ends their episodes.

    Parameters
    ----------
    adapter
        The environments.
    seed
        Random seed of the run.
    """

    adapter: "VectorAdapter"
    start: VectorState  # type: ignore[assignment]
    _current: VectorState | None  # type: ignore[assignment]

    def __init__(self, adapter: "VectorAdapter", seed: int):
        self.spaces = self.adapter = adapter
        self.seed, self.name, self.n_envs = seed, f"{adapter.n_envs} × {adapter.name}", adapter.n_envs
        self.start = self.start_of(0)
        self.observation = self.start.observation[0]  # an example of its shape and dtype

    def _rollout(self, config: AgentConfig, actor: Actor, env_state: VectorState, n_rows: int) -> Rollout:  # type: ignore[override]
        """Run `train_freq` steps of every environment from `env_state`; arguments are as in the base class."""
        self._current = None
        blocks, explored, env_index = [], [], []
        every = np.arange(self.n_envs)
        for t in range(cast(int, config.train_freq)):
            rows_before = n_rows + t * self.n_envs
            actions, exploring = actor.act(
                env_state.observation, (rows_before + every).tolist(), env_state.episodes.tolist()
            )
            acted = ~env_state.has_ended
            block, env_state = self._step_all(env_state, np.asarray(actions, np.int32))
            blocks.append(block)
            explored.append(np.asarray(exploring)[acted])
            env_index.append(every[acted])
        rows = Transition(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))
        is_kept = np.asarray(is_step(rows))
        by_step = rows.reward[is_kept], rows.done[is_kept], np.concatenate(explored), np.concatenate(env_index)
        steps = Steps(*map(np.asarray, by_step))
        rows = rows._replace(reward=np.asarray(rows.reward, np.float32))
        if config.learning.observations_once:
            rows = rows._replace(next_observation=env_state.observation)
        return Rollout(rows, len(rows.reward), env_state, steps)

    def _step_all(self, state: VectorState, actions: np.ndarray) -> tuple[Transition, VectorState]:
        """Take a step in every environment; return the rows for the replay buffer, and the next state."""
        is_reset = state.has_ended
        if state.n_steps == STEPS_PER_START:
            after = self._start(state.start + 1)
            reward, terminated, truncated = np.zeros(self.n_envs), is_reset, is_reset
        else:
            observation, reward, terminated, truncated = self.adapter.step(actions)
            state.actions[state.n_steps] = actions
            after = state._replace(n_steps=state.n_steps + 1, observation=observation)
        is_last = after.n_steps == STEPS_PER_START
        done = (terminated | truncated | is_last) & ~is_reset
        episodes = np.where(is_reset, state.n_started + np.cumsum(is_reset) - 1, state.episodes)
        n_started = state.n_started + int(is_reset.sum())
        after = after._replace(has_ended=done | is_last, episodes=episodes.astype(np.int32), n_started=n_started)
        reward = np.where(is_reset, 0, reward)
        rows = Transition(state.observation, actions, reward, after.observation, terminated | is_reset, done)
        return rows, after

    def _start(self, start: int) -> VectorState:
        """Reset all environments at once, with the seed that follows from the index `start`."""
        # Each environment adds its own index to the seed
        seed = int(np.random.SeedSequence([self.seed, start]).generate_state(1)[0] >> 1)
        actions = np.empty((STEPS_PER_START, self.n_envs), np.int32)
        episodes = np.arange(self.n_envs, dtype=np.int32)
        has_ended = np.zeros(self.n_envs, bool)
        return VectorState(start, 0, actions, self.adapter.reset(seed), has_ended, episodes, self.n_envs)

    def start_of(self, episode: int) -> VectorState:  # type: ignore[override]
        """Reset all environments after `episode` finished episodes, and return their state."""
        state = self._start(episode)
        self._current = state._replace(episodes=state.episodes + episode, n_started=episode + self.n_envs)
        return self._current

    def to_arrays(self, env_state: VectorState) -> dict[str, np.ndarray]:  # type: ignore[override]
        """Return the arrays, by name, that `env_state` is stored as."""
        return {
            "env_state/observation": env_state.observation,
            "env_state/start": np.asarray(env_state.start),
            "env_state/actions": env_state.actions[: env_state.n_steps],
            "env_state/has_ended": env_state.has_ended,
            "env_state/episodes": env_state.episodes,
            "env_state/n_started": np.asarray(env_state.n_started),
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> tuple[VectorState, bool]:  # type: ignore[override]
        """Bring the environments to the state that `to_arrays` stored in `arrays`.

        Returns
        -------
        tuple
            The state, and whether the environments reached it. If they did not, a warning says so, and the state is
            that after a reset of all.
        """
        taken = arrays["env_state/actions"]
        actions = np.empty((STEPS_PER_START, self.n_envs), np.int32)
        actions[: len(taken)] = taken
        env_state = VectorState(
            int(arrays["env_state/start"]),
            len(taken),
            actions,
            arrays["env_state/observation"],
            arrays["env_state/has_ended"],
            arrays["env_state/episodes"],
            int(arrays["env_state/n_started"]),
        )
        if self._repeat_actions(env_state):
            return env_state, True
        wrappers = ", ".join(wrapper_names(self.adapter.env))
        warnings.warn(
            f"env: the states of {self.name} cannot be restored: the same seed and actions did not lead to the states "
            f"in which the agent was saved{f'; wrappers: {wrappers}' if wrappers else ''}. The current episodes start "
            "again, so the run will differ from one that was not interrupted.",
            stacklevel=5,
        )
        return self.start_of(env_state.n_started), False

    def _repeat_actions(self, env_state: VectorState) -> bool:  # type: ignore[override]
        """Reset the environments, repeat the actions of `env_state`, and return whether its state is reached."""
        self._current = None
        observation = self._start(env_state.start).observation
        for actions in env_state.actions[: env_state.n_steps]:
            observation = self.adapter.step(actions)[0]
        self._current = env_state
        return np.array_equal(observation, env_state.observation)


Runner = CompiledRunner | GymnasiumRunner


def make_runner(env: "Environment | gymnasium.Env | str", seed: int) -> Runner:
    """Return a runner of the environment `env`, with the random seed `seed`.

    It is a `CompiledRunner` if `env` has the methods of `Environment`, otherwise a `GymnasiumRunner`, or a
    `VectorRunner` for vectorised environments.
    """
    is_compiled = all(hasattr(env, name) for name in ("observe", "max_episode_steps", "n_observations"))
    if is_compiled and not isinstance(env, type):
        return CompiledRunner(env, seed)  # type: ignore[arg-type]
    if is_vectorised(env):
        from anchored.rl.environments.vector_adapter import VectorAdapter  # imports gymnasium

        return VectorRunner(VectorAdapter(env), seed)  # type: ignore[arg-type]
    return GymnasiumRunner(GymnasiumAdapter(env), seed)  # type: ignore[arg-type]


def _row_of_last_observation(last: Transition, first_observation: np.ndarray) -> Transition:
    """Return the row that follows the `last` step of an episode, and precedes the `first_observation` of the next."""
    observation = last.next_observation
    rest = np.int32(0), np.float32(0), first_observation, True, False
    return Transition(observation, *rest)  # type: ignore[arg-type]


def _stack(block: list[Transition], config: AgentConfig) -> Transition:
    """Stack transitions along a new axis.

    Episodes are padded to powers of two, so that programs are compiled for few shapes.
    """
    rows = 1 << (len(block) - 1).bit_length() if config.train_freq == "episode" else config.train_freq
    if config.learning.observations_once:
        rows *= 2  # each step may be followed by the row of a last observation
    padded = block + [block[-1]] * (rows - len(block))
    stacked = Transition(*(np.stack([np.asarray(part) for part in parts]) for parts in zip(*padded, strict=True)))
    if config.learning.observations_once:
        return stacked._replace(next_observation=stacked.next_observation[-1:])  # type: ignore[index]
    return stacked


_add = jit(replay.add, donate_argnums=(0,))


@partial(jit, donate_argnums=(2,))
def _update(
    config: AgentConfig,
    train_state: TrainState,
    buffer: ReplayBuffer,
    missing: Transition,
    n_missing: int,
    block: Transition,
    length: int,
    n_ended: int,
) -> TrainState:
    """Call `training.update` with `buffer`, whose memory is reused, after adding the `n_missing` rows that it lacks."""
    buffer = replay.add(buffer, missing, n_missing)
    return training.update(config, train_state._replace(buffer=buffer), block, length, n_ended)


def _without_buffer(train_state: TrainState) -> TrainState:
    """Return the train state without its buffer, so that the buffer is not an argument of the update."""
    return train_state._replace(buffer=None)  # type: ignore[arg-type]


@jit
def _copy_buffer(buffer: ReplayBuffer) -> ReplayBuffer:
    """Return a copy of the buffer in new memory."""
    return jax.tree.map(jnp.copy, buffer)
