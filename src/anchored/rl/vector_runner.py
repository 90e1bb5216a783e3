"""Runner of vectorised Gymnasium environments: several environments that step at once, and act at once."""

import warnings
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np

from anchored.rl.acting import Actor
from anchored.rl.config import AgentConfig
from anchored.rl.environments.gymnasium_adapter import wrapper_names
from anchored.rl.gymnasium_runner import STEPS_PER_START, GymnasiumRunner, Rollout, Steps
from anchored.rl.replay import Transition, is_step

if TYPE_CHECKING:
    from anchored.rl.environments.vector_adapter import VectorAdapter


class VectorState(NamedTuple):
    """How to reach the current state of vectorised environments, and the observations there."""

    start: int  # how often all environments have been reset at once
    n_steps: int  # since then
    actions: np.ndarray  # (STEPS_PER_START, environments); the first `n_steps` rows are the actions since then
    observation: np.ndarray  # encoded, of each environment
    has_ended: np.ndarray  # whether the next step resets an environment, (environments,)
    episodes: np.ndarray  # numbers of the current episodes in the run, (environments,)
    n_started: int  # number of episodes that have been started


class VectorRunner(GymnasiumRunner):
    """Steps vectorised environments from Python, and repeats their actions when an agent is loaded.

    An environment whose episode has ended is reset by the next step. The environments draw the states that later
    episodes start from themselves, so a state is reached again by a reset of all environments with the same seed,
    followed by all actions since. So that these are not too many, all environments are reset at once after
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
        """Run `train_freq` steps of every environment from `env_state`; the arguments are those of `rollouts`."""
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
        """Reset all environments at once for the time with index `start`."""
        seed = int(np.random.SeedSequence([self.seed, start]).generate_state(1)[0] >> 1)  # each adds its own index
        actions = np.empty((STEPS_PER_START, self.n_envs), np.int32)
        episodes = np.arange(self.n_envs, dtype=np.int32)
        nobody = np.zeros(self.n_envs, bool)
        return VectorState(start, 0, actions, self.adapter.reset(seed), nobody, episodes, self.n_envs)

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
