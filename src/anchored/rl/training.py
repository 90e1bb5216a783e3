"""Acting and learning in turn: a round of steps in the environment, then a lesson.

A round is an episode, as in Algorithm 1, or a fixed number of steps. Within a round the members do not change.
Whole runs are one pure function of a key, `train(key, config)`, to be jitted, and vmapped over keys or settings.

All randomness is drawn by counting: step n from the run's key and n, an episode's from its number. So a run cut
in two is the run uncut, and nothing about it needs to be stored but counters.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from anchored import trees
from anchored.rl import q_learning, replay
from anchored.rl.environments.environment import Environment
from anchored.rl.exploration import Choice, Episode, Exploration
from anchored.rl.q_learning import Members, QLearning
from anchored.rl.replay import Buffer, Transition
from anchored.types import Array, Key, Params

MEMBERS, EPISODES, STARTS, ACTIONS, CHANCE, LESSONS = range(6)  # streams of the run's key


@trees.register
@dataclass(frozen=True)
class Agent:
    """How an agent acts, remembers and learns. Structure is static, numbers are traced."""

    learning: QLearning
    exploration: Exploration
    learn_every: int | None = field(default=None, metadata={"static": True})  # steps a round; None: an episode
    burn_in: int = 0  # rounds before the first lesson
    capacity: int = field(default=100_000, metadata={"static": True})  # transitions remembered
    reward_scale: float = 1.0  # rewards are multiplied by it before they are learnt


@trees.register
@dataclass(frozen=True)
class Config:
    """A whole run: an agent in an environment made of pure functions."""

    environment: Environment = field(metadata={"static": True})
    agent: Agent
    n_rounds: int = field(metadata={"static": True})
    probes: Array | None = None  # observations whose Q-values are recorded after every round


class Mind(NamedTuple):
    """What an agent has become."""

    key: Key
    members: Members
    buffer: Buffer
    n_steps: Array
    n_episodes: Array
    n_rounds: Array


class World(NamedTuple):
    """Where the environment stands."""

    state: Any
    n_steps: Array  # in this episode


class Log(NamedTuple):
    """What happened in a round, step by step; only the first `length` steps of it took place."""

    reward: Array
    last: Array
    explored: Array
    length: Array
    final_observation: Array
    probed: Array | None  # (members, probes, actions)


def train(key: Key, config: Config) -> tuple[Mind, Log]:
    """A whole run: what the agent has become, and the log of all rounds along a leading axis."""
    mind, world = start(key, config)

    def step(carry: tuple[Mind, World], _: None) -> tuple[tuple[Mind, World], Log]:
        mind, world, log = play_and_learn(config, *carry)
        return (mind, world), log

    (mind, _), log = jax.lax.scan(step, (mind, world), None, length=config.n_rounds)
    return mind, log


def start(key: Key, config: Config) -> tuple[Mind, World]:
    """An agent that knows nothing, at the start of its first episode."""
    environment = config.environment
    world = first_step(environment, key, jnp.zeros((), jnp.int32))
    observation = environment.observe(world.state)
    return new_mind(key, config.agent, observation), world


def new_mind(key: Key, agent: Agent, observation: Array) -> Mind:
    """Members fresh from the prior and an empty buffer, for observations like this one."""
    number = jnp.result_type(float)
    example = Transition(observation, jnp.int32(0), number.type(0), observation, jnp.bool(False), jnp.bool(False))
    like = jax.eval_shape(agent.learning.network.init, key, observation[None])
    members = q_learning.initial_members(jax.random.fold_in(key, MEMBERS), agent.learning, like)
    zero = jnp.zeros((), jnp.int32)
    return Mind(key, members, replay.empty(example, agent.capacity), zero, zero, zero)


def play_and_learn(config: Config, mind: Mind, world: World) -> tuple[Mind, World, Log]:
    """One round."""
    block, explored, length, world = _play(config, mind, world)
    n_ended = jnp.sum(block.last & (jnp.arange(len(explored)) < length), dtype=jnp.int32)
    mind = learn(config.agent, mind, block._replace(reward=block.reward * config.agent.reward_scale), length, n_ended)
    probed = None
    if config.probes is not None:
        probed = jax.vmap(config.agent.learning.network.apply, in_axes=(0, None))(mind.members.params, config.probes)
    return mind, world, Log(block.reward, block.last, explored, length, block.next_observation[length - 1], probed)


def act(agent: Agent, key: Key, params: Params, observation: Array, n_steps: Array, n_episodes: Array) -> Choice:
    """The action of step number `n_steps`, in episode number `n_episodes`."""
    q = q_learning.q_values(agent.learning.network, params, observation)
    step_key = stream(key, ACTIONS, n_steps)
    return agent.exploration(step_key, q, Episode(n_episodes, stream(key, EPISODES, n_episodes)))


def learn(agent: Agent, mind: Mind, block: Transition, length: Array, n_ended: Array) -> Mind:
    """Remember the first `length` steps of a round, in which `n_ended` episodes ended, and learn."""
    buffer = replay.add(mind.buffer, block, length)
    key = stream(mind.key, LESSONS, mind.n_rounds)
    members = jax.lax.cond(
        mind.n_rounds >= agent.burn_in,
        lambda: q_learning.learn(key, agent.learning, mind.members, buffer, length),
        lambda: mind.members,
    )
    n_steps, n_episodes = mind.n_steps + length, mind.n_episodes + n_ended
    return Mind(mind.key, members, buffer, n_steps, n_episodes, mind.n_rounds + 1)


def _play(config: Config, mind: Mind, world: World) -> tuple[Transition, Array, Array, World]:
    """Steps of one round: their transitions, which of them explored, how many there were."""
    agent, environment = config.agent, config.environment
    by_episode = agent.learn_every is None
    most = environment.max_episode_steps if by_episode else agent.learn_every
    params = mind.members.params

    class Carry(NamedTuple):
        t: Array
        n_episodes: Array
        world: World
        block: Transition
        explored: Array
        over: Array

    def goes_on(carry: Carry) -> Array:
        return (carry.t < most) & ~carry.over

    def step(carry: Carry) -> Carry:
        n_steps = mind.n_steps + carry.t
        observation = environment.observe(carry.world.state)
        choice = act(agent, mind.key, params, observation, n_steps, carry.n_episodes)
        moved = environment.step(stream(mind.key, CHANCE, n_steps), carry.world.state, choice.action)
        last = moved.terminated | (carry.world.n_steps + 1 >= environment.max_episode_steps)
        transition = Transition(
            observation,
            choice.action.astype(jnp.int32),
            moved.reward,
            environment.observe(moved.state),
            moved.terminated,
            last,
        )
        n_episodes = carry.n_episodes + last
        fresh = first_step(environment, mind.key, n_episodes)
        stayed = World(moved.state, carry.world.n_steps + 1)
        return Carry(
            carry.t + 1,
            n_episodes,
            jax.tree.map(lambda a, b: jnp.where(last, a, b), fresh, stayed),
            jax.tree.map(lambda rows, row: rows.at[carry.t].set(row.astype(rows.dtype)), carry.block, transition),
            carry.explored.at[carry.t].set(choice.explored),
            last & by_episode,
        )

    zero = jnp.zeros((), jnp.int32)
    room = jax.tree.map(lambda ring: jnp.zeros((most, *ring.shape[1:]), ring.dtype), mind.buffer.transitions)
    begun = Carry(zero, mind.n_episodes, world, room, jnp.zeros(most, bool), jnp.zeros((), bool))
    done = jax.lax.while_loop(goes_on, step, begun)
    return done.block, done.explored, done.t, done.world


def first_step(environment: Environment, key: Key, number: Array) -> World:
    """The start of an episode."""
    state = environment.reset(stream(key, STARTS, number))
    return World(state, jnp.zeros((), jnp.int32))


def stream(key: Key, kind: int, count: Array) -> Key:
    """The key of something that is counted: the n-th action, the start of the n-th episode."""
    return jax.random.fold_in(jax.random.fold_in(key, kind), count)
