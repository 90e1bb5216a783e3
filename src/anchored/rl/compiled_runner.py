"""Runner of a compiled environment: rollouts and updates of an agent, many in one call of a program."""

from collections.abc import Iterator
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from anchored.inference.compilation import jit
from anchored.rl import training
from anchored.rl.config import AgentConfig, RunConfig
from anchored.rl.environments.environment import Environment, State
from anchored.rl.history import Steps
from anchored.rl.training import EnvState, Log, TrainState
from anchored.types import Array

STEPS_PER_CALL = 1000  # approximate number of steps in one call of a compiled program


class CompiledRunner:
    """Runs a compiled environment, many rollouts in one call.

    Parameters
    ----------
    environment
        An environment of pure functions.
    seed
        Random seed of the run.
    """

    def __init__(self, environment: Environment, seed: int):
        self.spaces = self.environment = environment
        self.seed, self.name = seed, type(environment).__name__
        self.start = self.start_of(0)
        self.observation = np.asarray(_observe(environment, self.start.state))  # an example of its shape and dtype

    def start_of(self, episode: int) -> EnvState:
        """Return the state at the start of the episode with index `episode`."""
        return _reset(self.environment, jax.random.key(self.seed), episode)

    def rollouts(
        self, config: AgentConfig, train_state: TrainState, env_state: EnvState, until_steps: int, until_episodes: int
    ) -> Iterator[tuple[TrainState, EnvState, Steps]]:
        """Run rollouts, each followed by an update, several in one call of a compiled program.

        Parameters
        ----------
        config
            Configuration of the agent.
        train_state, env_state
            The states to start from.
        until_steps, until_episodes
            Total numbers of steps and episodes of the run; it ends when either is reached.

        Yields
        ------
        tuple
            The new train state and environment state, and the steps since the previous ones.
        """
        max_steps = self.environment.max_episode_steps if config.train_freq == "episode" else config.train_freq
        run = RunConfig(self.environment, config, max(1, STEPS_PER_CALL // max_steps))
        while train_state.n_steps < until_steps and train_state.n_episodes < until_episodes:
            train_state, env_state, log, n_rollouts = _rollouts(
                run, train_state, env_state, until_steps, until_episodes
            )
            log = jax.tree.map(lambda leaf, n=int(n_rollouts): np.asarray(leaf)[:n], log)
            is_valid = np.arange(log.reward.shape[1]) < log.length[:, None]
            yield train_state, env_state, Steps(log.reward[is_valid], log.done[is_valid], log.explored[is_valid])

    def encode(self, observations: ArrayLike) -> tuple[np.ndarray, bool]:
        """Return one or several `observations` as rows of an array, and whether there was only one.

        Raises a ValueError if they are not observations of this environment.
        """
        rows = np.asarray(observations)
        is_single = rows.ndim == self.observation.ndim
        rows = rows[None] if is_single else rows
        if rows.shape[1:] != self.observation.shape:
            raise ValueError(f"one observation must have shape {self.observation.shape}; several have a leading axis")
        n_observations = self.environment.n_observations
        if n_observations is None:
            if not np.isfinite(rows).all():
                raise ValueError("all entries must be finite")
        elif not np.issubdtype(rows.dtype, np.integer) or rows.min() < 0 or rows.max() >= n_observations:
            raise ValueError(f"observations must be integers from 0 to {n_observations - 1}")
        return rows.astype(self.observation.dtype), is_single

    def decode(self, actions: np.ndarray) -> np.ndarray:
        """Return `actions`, since the environment's actions are the action indices."""
        return actions

    def to_arrays(self, env_state: EnvState) -> dict[str, np.ndarray]:
        """Return the arrays, by name, that `env_state` is stored as."""
        return {f"env_state/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(env_state))}

    def restore(self, arrays: dict[str, np.ndarray]) -> tuple[EnvState, bool]:
        """Return the state that `to_arrays` stored in `arrays`, and True: it can always be restored."""
        leaves, structure = jax.tree.flatten(self.start)
        return jax.tree.unflatten(structure, [arrays[f"env_state/{i}"] for i in range(len(leaves))]), True


_reset = jit(training.reset, static_argnums=(0,))


@partial(jit, static_argnums=(0,))
def _observe(environment: Environment[State], state: State) -> Array:
    """Return the observation of `state`, in a compiled program."""
    return environment.observe(state)


@jit
def _rollouts(
    config: RunConfig, train_state: TrainState, env_state: EnvState, until_steps: int, until_episodes: int
) -> tuple[TrainState, EnvState, Log, Array]:
    """Run up to `config.n_rollouts` rollouts; return the new states, the logs, and the number of rollouts."""

    def continues(carry: tuple[Array, TrainState, EnvState, Log]) -> Array:
        i, state, *_ = carry
        return (i < config.n_rollouts) & (state.n_steps < until_steps) & (state.n_episodes < until_episodes)

    def step(carry: tuple[Array, TrainState, EnvState, Log]) -> tuple[Array, TrainState, EnvState, Log]:
        i, train_state, env_state, logs = carry
        train_state, env_state, log = training.rollout_and_update(config, train_state, env_state)
        return i + 1, train_state, env_state, jax.tree.map(lambda rows, row: rows.at[i].set(row), logs, log)

    shapes = jax.eval_shape(partial(training.rollout_and_update, config), train_state, env_state)[2]
    logs = jax.tree.map(lambda leaf: jnp.zeros((config.n_rollouts, *leaf.shape), leaf.dtype), shapes)
    n, train_state, env_state, logs = jax.lax.while_loop(continues, step, (jnp.int32(0), train_state, env_state, logs))
    return train_state, env_state, logs, n
