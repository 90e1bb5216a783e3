"""Training as pure functions: rollouts in the environment, each followed by an update of the members.

A rollout is an episode, as in Algorithm 1, or a fixed number of steps. The members do not change during a rollout.
A whole run is one function, `train(key, config)`, which can be jitted, and vmapped over keys or configurations.

Random numbers depend on the run's key and on counters: the numbers of a step on the index of the step, the numbers of
an episode on the index of the episode. So a run that is interrupted and resumed equals an uninterrupted run, and only
the counters have to be stored.
"""

from dataclasses import replace
from typing import Generic, NamedTuple

import jax
import jax.numpy as jnp

from anchored.rl import q_learning, replay
from anchored.rl.config import AgentConfig, RunConfig
from anchored.rl.environments.environment import Environment, State
from anchored.rl.exploration import Choice, Episode
from anchored.rl.q_learning import Members
from anchored.rl.replay import ReplayBuffer, Transition
from anchored.types import Array, Key, Number, Params

# streams of random numbers of one run
MEMBERS, EPISODES, RESETS, ACTIONS, TRANSITIONS, UPDATES, DIAGNOSTICS = range(7)
MAX_Q = 10.0  # largest Q-value of scaled rewards, if the scale is automatic: about three default prior scales
MAX_HORIZON = 1000  # in steps: the upper limit of 1 / (1 − γ) if the scale of rewards is automatic
EVALUATION = 2**30  # folded into the run's key for episodes of an evaluation


class TrainState(NamedTuple):
    """Everything about an agent that training changes."""

    key: Key  # of the run
    members: Members  # the ensemble
    buffer: ReplayBuffer  # the replay buffer
    n_steps: Array  # this counter and the next two are int32 and start at 0 with training
    n_episodes: Array  # finished episodes
    n_rollouts: Array  # finished rollouts
    mean_reward: Array  # mean absolute reward of all steps


class EnvState(NamedTuple, Generic[State]):
    """The state of a compiled environment within an episode."""

    state: State
    n_steps: Array  # since the start of the episode


_Evaluated = tuple[EnvState, Array, Array]  # an episode of an evaluation: its state, return so far, whether it is over


class Log(NamedTuple):
    """Log of a rollout; only the first `length` entries of an array over steps are valid."""

    reward: Array  # (steps,), as the environment returned it
    done: Array  # (steps,), whether the step was the last of its episode
    explored: Array  # (steps,), whether the action counts as exploration
    length: Array  # number of steps
    final_observation: Array  # after the last step of the rollout
    probed: Array | None  # (members, probes, actions), Q-values of the probes after the update


def train(key: Key, config: RunConfig) -> tuple[TrainState, Log]:
    """Train from the start: the whole run that `config` describes, with random numbers from `key`.

    Returns the final train state, and the logs of all rollouts, stacked along a leading axis.
    """
    train_state, env_state = init(key, config)

    def step(carry: tuple[TrainState, EnvState], _: None) -> tuple[tuple[TrainState, EnvState], Log]:
        train_state, env_state, log = rollout_and_update(config, *carry)
        return (train_state, env_state), log

    (train_state, _), log = jax.lax.scan(step, (train_state, env_state), None, length=config.n_rollouts)
    return train_state, log


def init(key: Key, config: RunConfig) -> tuple[TrainState, EnvState]:
    """Return the train state and the environment state at the start of the run of `key` and `config`."""
    environment = config.environment
    env_state = reset(environment, key, jnp.zeros((), jnp.int32))
    observation = environment.observe(env_state.state)
    return init_train_state(key, config.agent, observation), env_state


def init_train_state(key: Key, config: AgentConfig, observation: Array) -> TrainState:
    """Return the initial train state for `config`: members drawn from the prior with `key`, and an empty buffer.

    Shape and dtype of observations are those of `observation`.
    """
    dtype = jnp.result_type(float)
    example = Transition(observation, jnp.int32(0), dtype.type(0), observation, jnp.bool(False), jnp.bool(False))
    like = jax.eval_shape(config.learning.network.init, key, observation[None])
    members = q_learning.init_members(jax.random.fold_in(key, MEMBERS), config.learning, like)
    zero = jnp.zeros((), jnp.int32)
    once = config.learning.n_envs if config.learning.observations_once else None
    buffer = replay.empty(example, config.buffer_size, once)
    return TrainState(key, members, buffer, zero, zero, zero, jnp.zeros((), dtype))


def reset(environment: Environment[State], key: Key, episode: Array) -> EnvState[State]:
    """Return the environment state at the start of the episode with index `episode`; `key` is the run's."""
    return EnvState(environment.reset(counted_key(key, RESETS, episode)), jnp.zeros((), jnp.int32))


def rollout_and_update(
    config: RunConfig, train_state: TrainState, env_state: EnvState
) -> tuple[TrainState, EnvState, Log]:
    """Run a rollout from `train_state` and `env_state`, and then an update; return the new states and the log."""
    block, explored, length, env_state = _rollout(config, train_state, env_state)
    n_ended = jnp.sum(block.done & (jnp.arange(len(explored)) < length), dtype=jnp.int32)
    train_state = update(config.agent, train_state, block, length, n_ended)
    probed = None
    if config.probes is not None:
        network, params = config.agent.learning.network, train_state.members.params
        probed = jax.vmap(network.apply, in_axes=(0, None))(params, config.probes)
    final_observation = block.next_observation[length - 1]  # type: ignore[index]
    log = Log(block.reward, block.done, explored, length, final_observation, probed)
    return train_state, env_state, log


def act(config: AgentConfig, key: Key, params: Params, observation: Array, step: Number, episode: Number) -> Choice:
    """Choose an action for one observation.

    Parameters
    ----------
    config
        Configuration of the agent.
    key
        Random key of the run.
    params
        Parameters of the members, with a leading axis of members.
    observation
        One observation, encoded.
    step, episode
        Numbers of steps and of finished episodes of the run so far.

    Returns
    -------
    Choice
        The action, and whether it counts as exploration.
    """
    q = q_learning.q_values(config.learning.network, params, observation)
    step_key = counted_key(key, ACTIONS, step)
    return config.exploration(step_key, q, Episode(episode, counted_key(key, EPISODES, episode)))


def update(
    config: AgentConfig, train_state: TrainState, block: Transition, length: Number, n_ended: Number
) -> TrainState:
    """Store the transitions of a rollout, and update the members.

    Parameters
    ----------
    config
        Configuration of the agent.
    train_state
        The train state before the rollout.
    block
        Transitions along a leading axis; the first `length` are those of the rollout.
    length
        Number of rows of the rollout: its steps and, with vectorised environments, their resets.
    n_ended
        Number of episodes that ended in the rollout.

    Returns
    -------
    TrainState
        The train state after the update.
    """
    buffer = replay.add(train_state.buffer, block, length)
    key = counted_key(train_state.key, UPDATES, train_state.n_rollouts)
    is_new = (jnp.arange(block.reward.shape[0]) < length) & replay.is_step(block)
    n_steps = train_state.n_steps + jnp.sum(is_new, dtype=jnp.int32)
    n_episodes = train_state.n_episodes + n_ended
    deviation = jnp.sum(jnp.abs(block.reward) - train_state.mean_reward, where=is_new)
    mean_reward = train_state.mean_reward + deviation / n_steps
    scale = reward_scale(config, mean_reward)
    learning = config.learning
    if callable(learning.learning_rate):
        learning = replace(learning, learning_rate=learning.learning_rate(n_steps))  # type: ignore[arg-type]
    members = jax.lax.cond(
        train_state.n_rollouts >= config.first_update,
        lambda: q_learning.update(key, learning, train_state.members, buffer, length, scale),
        lambda: train_state.members,
    )
    members = q_learning.update_targets(config.learning, members, train_state.n_steps, n_steps)
    n_rollouts = train_state.n_rollouts + 1
    return TrainState(train_state.key, members, buffer, n_steps, n_episodes, n_rollouts, mean_reward)


def reward_scale(config: AgentConfig, mean_reward: Number) -> Number:
    """Return the factor that rewards are multiplied by before an update.

    It is `config.reward_scale`, or if that is None, it follows from `mean_reward`, the mean absolute reward of all
    steps so far. An agent that earned the mean reward at every step would have the Q-value mean_reward / (1 − γ). If
    this value exceeds MAX_Q, rewards are scaled so that it is MAX_Q. Small rewards are not scaled up, since larger
    rewards may not have been found yet.
    """
    if config.reward_scale is not None:
        return config.reward_scale
    horizon = 1 / jnp.maximum(1 - config.learning.gamma, 1 / MAX_HORIZON)
    return MAX_Q / jnp.maximum(mean_reward * horizon, MAX_Q)


class _Rollout(NamedTuple):
    """State of a rollout that is being run."""

    t: Array  # number of steps so far
    n_episodes: Array
    env_state: EnvState
    block: Transition
    explored: jax.Array
    is_over: Array  # whether the rollout ends before `max_steps`


def _rollout(
    config: RunConfig, train_state: TrainState, env_state: EnvState
) -> tuple[Transition, Array, Array, EnvState]:
    """Run one rollout: return its transitions, whether each explored, their number, and the final environment state."""
    agent, environment = config.agent, config.environment
    by_episode = agent.train_freq == "episode"
    max_steps = environment.max_episode_steps if agent.train_freq == "episode" else agent.train_freq

    def step(carry: _Rollout) -> _Rollout:
        n_steps = train_state.n_steps + carry.t
        observation = environment.observe(carry.env_state.state)
        params = train_state.members.params
        choice = act(agent, train_state.key, params, observation, n_steps, carry.n_episodes)
        key = counted_key(train_state.key, TRANSITIONS, n_steps)
        result = environment.step(key, carry.env_state.state, choice.action)
        done = result.terminated | (carry.env_state.n_steps + 1 >= environment.max_episode_steps)
        transition = Transition(
            observation,
            choice.action.astype(jnp.int32),
            result.reward,
            environment.observe(result.state),
            result.terminated,
            done,
        )
        n_episodes = carry.n_episodes + done
        first_state = reset(environment, train_state.key, n_episodes)
        next_state = EnvState(result.state, carry.env_state.n_steps + 1)
        return _Rollout(
            carry.t + 1,
            n_episodes,
            jax.tree.map(lambda a, b: jnp.where(done, a, b), first_state, next_state),
            jax.tree.map(lambda rows, row: rows.at[carry.t].set(row.astype(rows.dtype)), carry.block, transition),
            carry.explored.at[carry.t].set(choice.explored),
            done & by_episode,
        )

    zero = jnp.zeros((), jnp.int32)
    rows = jax.tree.map(
        lambda ring: jnp.zeros((max_steps, *ring.shape[1:]), ring.dtype), train_state.buffer.transitions
    )
    start = _Rollout(zero, train_state.n_episodes, env_state, rows, jnp.zeros(max_steps, bool), jnp.zeros((), bool))
    end = jax.lax.while_loop(lambda carry: (carry.t < max_steps) & ~carry.is_over, step, start)
    return end.block, end.explored, end.t, end.env_state


def play_episodes(
    key: Key, environment: Environment, config: AgentConfig, params: Params, n_episodes: int
) -> tuple[Array, Array, Array]:
    """Play episodes in parallel, without learning.

    Parameters
    ----------
    key
        Random key. It may be that of a training run: evaluation and training use different random numbers.
    environment
        A compiled environment.
    config
        Configuration of the agent.
    params
        Parameters of the members, with a leading axis of members.
    n_episodes
        Number of episodes.

    Returns
    -------
    tuple
        Of each episode: the sum of rewards, (n_episodes,); the number of steps, (n_episodes,); the last observation,
        (n_episodes, ...).
    """
    key = jax.random.fold_in(key, EVALUATION)

    def episode(index: Array) -> tuple[Array, Array, Array]:
        def step(carry: _Evaluated) -> _Evaluated:
            env_state, total, _ = carry
            observation = environment.observe(env_state.state)
            count = index * environment.max_episode_steps + env_state.n_steps
            action = act(config, key, params, observation, count, index).action
            result = environment.step(counted_key(key, TRANSITIONS, count), env_state.state, action)
            n_steps = env_state.n_steps + 1
            done = result.terminated | (n_steps >= environment.max_episode_steps)
            return EnvState(result.state, n_steps), total + result.reward, done

        start: _Evaluated = reset(environment, key, index), jnp.zeros((), jnp.result_type(float)), jnp.zeros((), bool)
        env_state, total, _ = jax.lax.while_loop(lambda carry: ~carry[-1], step, start)
        return total, env_state.n_steps, environment.observe(env_state.state)

    return jax.vmap(episode)(jnp.arange(n_episodes, dtype=jnp.int32))


def counted_key(key: Key, stream: int, count: Number) -> Key:
    """Return the random key with index `count` in the stream `stream` of the run's `key`.

    For example, the key of step n of the run has the index n in the stream ACTIONS.
    """
    return jax.random.fold_in(jax.random.fold_in(key, stream), count)
