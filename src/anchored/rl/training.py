"""Training as pure functions: a rollout in the environment, then an update of the members, again and again.

A rollout is an episode, as in Algorithm 1, or a fixed number of steps. Within a rollout the members do not change.
A whole run is one function of a key, `train(key, config)`, which can be jitted, and vmapped over keys or
configurations.

Random numbers are counted: those of step n come from the run's key and n, those of an episode from its index. So a
run that is interrupted and resumed equals one that was not, and only counters need to be stored.
"""

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

MEMBERS, EPISODES, RESETS, ACTIONS, TRANSITIONS, UPDATES = range(6)  # streams of random numbers of a run's key
EVALUATION = 2**30  # folded into the key of episodes that are played for evaluation


class TrainState(NamedTuple):
    """Everything about an agent that training changes."""

    key: Key  # of the run
    members: Members
    buffer: ReplayBuffer
    n_steps: Array  # counters since the beginning, int32
    n_episodes: Array
    n_rollouts: Array


class EnvState(NamedTuple, Generic[State]):
    """The state of a compiled environment within an episode."""

    state: State
    n_steps: Array  # in this episode


Played = tuple[EnvState, Array, Array]  # of an evaluated episode: its state, its return so far, whether it is over


class Log(NamedTuple):
    """What happened in a rollout; of its steps only the first `length` took place."""

    reward: Array  # (steps,), not scaled
    done: Array  # (steps,), whether the step was the last of its episode
    explored: Array  # (steps,), whether the action counts as exploration
    length: Array
    final_observation: Array
    probed: Array | None  # (members, probes, actions), Q-values after the update


def train(key: Key, config: RunConfig) -> tuple[TrainState, Log]:
    """A whole run from the random key `key`: the final train state, and the logs of all rollouts along a new axis."""
    train_state, env_state = init(key, config)

    def step(carry: tuple[TrainState, EnvState], _: None) -> tuple[tuple[TrainState, EnvState], Log]:
        train_state, env_state, log = rollout_and_update(config, *carry)
        return (train_state, env_state), log

    (train_state, _), log = jax.lax.scan(step, (train_state, env_state), None, length=config.n_rollouts)
    return train_state, log


def init(key: Key, config: RunConfig) -> tuple[TrainState, EnvState]:
    """The train state and the environment state at the beginning of a run."""
    environment = config.environment
    env_state = reset(environment, key, jnp.zeros((), jnp.int32))
    observation = environment.observe(env_state.state)
    return init_train_state(key, config.agent, observation), env_state


def init_train_state(key: Key, config: AgentConfig, observation: Array) -> TrainState:
    """Members drawn from the prior and an empty replay buffer, for observations like `observation`."""
    number = jnp.result_type(float)
    example = Transition(observation, jnp.int32(0), number.type(0), observation, jnp.bool(False), jnp.bool(False))
    like = jax.eval_shape(config.learning.network.init, key, observation[None])
    members = q_learning.init_members(jax.random.fold_in(key, MEMBERS), config.learning, like)
    zero = jnp.zeros((), jnp.int32)
    return TrainState(key, members, replay.empty(example, config.buffer_size), zero, zero, zero)


def reset(environment: Environment[State], key: Key, episode: Array) -> EnvState[State]:
    """The environment state at the start of the episode with this index."""
    return EnvState(environment.reset(counted_key(key, RESETS, episode)), jnp.zeros((), jnp.int32))


def rollout_and_update(
    config: RunConfig, train_state: TrainState, env_state: EnvState
) -> tuple[TrainState, EnvState, Log]:
    """One rollout and the update that follows: the new states, and the rollout's log."""
    block, explored, length, env_state = _rollout(config, train_state, env_state)
    n_ended = jnp.sum(block.done & (jnp.arange(len(explored)) < length), dtype=jnp.int32)
    scaled = block._replace(reward=block.reward * config.agent.reward_scale)
    train_state = update(config.agent, train_state, scaled, length, n_ended)
    probed = None
    if config.probes is not None:
        network, params = config.agent.learning.network, train_state.members.params
        probed = jax.vmap(network.apply, in_axes=(0, None))(params, config.probes)
    log = Log(block.reward, block.done, explored, length, block.next_observation[length - 1], probed)
    return train_state, env_state, log


def act(config: AgentConfig, key: Key, params: Params, observation: Array, step: Number, episode: Number) -> Choice:
    """The action of the run's step number `step`, in the episode with index `episode`, for one observation."""
    q = q_learning.q_values(config.learning.network, params, observation)
    step_key = counted_key(key, ACTIONS, step)
    return config.exploration(step_key, q, Episode(episode, counted_key(key, EPISODES, episode)))


def update(
    config: AgentConfig, train_state: TrainState, block: Transition, length: Number, n_ended: Number
) -> TrainState:
    """Store the first `length` transitions of a rollout, in which `n_ended` episodes ended, and update the members."""
    buffer = replay.add(train_state.buffer, block, length)
    key = counted_key(train_state.key, UPDATES, train_state.n_rollouts)
    members = jax.lax.cond(
        train_state.n_rollouts >= config.first_update,
        lambda: q_learning.update(key, config.learning, train_state.members, buffer, length),
        lambda: train_state.members,
    )
    n_steps, n_episodes = train_state.n_steps + length, train_state.n_episodes + n_ended
    return TrainState(train_state.key, members, buffer, n_steps, n_episodes, train_state.n_rollouts + 1)


class _Rollout(NamedTuple):
    """A rollout so far."""

    t: Array
    n_episodes: Array
    env_state: EnvState
    block: Transition
    explored: jax.Array
    over: Array


def _rollout(
    config: RunConfig, train_state: TrainState, env_state: EnvState
) -> tuple[Transition, Array, Array, EnvState]:
    """The transitions of one rollout, which of them explored, how many there are, and the state it ends in."""
    agent, environment = config.agent, config.environment
    by_episode = agent.train_freq == "episode"
    most = environment.max_episode_steps if agent.train_freq == "episode" else agent.train_freq

    def step(carry: _Rollout) -> _Rollout:
        n_steps = train_state.n_steps + carry.t
        observation = environment.observe(carry.env_state.state)
        params = train_state.members.params
        choice = act(agent, train_state.key, params, observation, n_steps, carry.n_episodes)
        key = counted_key(train_state.key, TRANSITIONS, n_steps)
        moved = environment.step(key, carry.env_state.state, choice.action)
        done = moved.terminated | (carry.env_state.n_steps + 1 >= environment.max_episode_steps)
        transition = Transition(
            observation,
            choice.action.astype(jnp.int32),
            moved.reward,
            environment.observe(moved.state),
            moved.terminated,
            done,
        )
        n_episodes = carry.n_episodes + done
        first = reset(environment, train_state.key, n_episodes)
        following = EnvState(moved.state, carry.env_state.n_steps + 1)
        return _Rollout(
            carry.t + 1,
            n_episodes,
            jax.tree.map(lambda a, b: jnp.where(done, a, b), first, following),
            jax.tree.map(lambda rows, row: rows.at[carry.t].set(row.astype(rows.dtype)), carry.block, transition),
            carry.explored.at[carry.t].set(choice.explored),
            done & by_episode,
        )

    zero = jnp.zeros((), jnp.int32)
    rows = jax.tree.map(lambda ring: jnp.zeros((most, *ring.shape[1:]), ring.dtype), train_state.buffer.transitions)
    start = _Rollout(zero, train_state.n_episodes, env_state, rows, jnp.zeros(most, bool), jnp.zeros((), bool))
    end = jax.lax.while_loop(lambda carry: (carry.t < most) & ~carry.over, step, start)
    return end.block, end.explored, end.t, end.env_state


def play_episodes(
    key: Key, environment: Environment, config: AgentConfig, params: Params, n_episodes: int
) -> tuple[Array, Array, Array]:
    """Returns, lengths and last observations of `n_episodes` episodes side by side, without learning.

    `key` may be that of a training run: other random numbers are drawn from it than training draws.
    """
    key = jax.random.fold_in(key, EVALUATION)

    def episode(index: Array) -> tuple[Array, Array, Array]:
        def step(carry: Played) -> Played:
            env_state, total, _ = carry
            observation = environment.observe(env_state.state)
            count = index * environment.max_episode_steps + env_state.n_steps
            action = act(config, key, params, observation, count, index).action
            moved = environment.step(counted_key(key, TRANSITIONS, count), env_state.state, action)
            n_steps = env_state.n_steps + 1
            done = moved.terminated | (n_steps >= environment.max_episode_steps)
            return EnvState(moved.state, n_steps), total + moved.reward, done

        start: Played = reset(environment, key, index), jnp.zeros((), jnp.result_type(float)), jnp.zeros((), bool)
        env_state, total, _ = jax.lax.while_loop(lambda carry: ~carry[-1], step, start)
        return total, env_state.n_steps, environment.observe(env_state.state)

    return jax.vmap(episode)(jnp.arange(n_episodes, dtype=jnp.int32))


def counted_key(key: Key, stream: int, count: Number) -> Key:
    """The random key of number `count` in one of a run's streams: the n-th action, the reset of the n-th episode."""
    return jax.random.fold_in(jax.random.fold_in(key, stream), count)
