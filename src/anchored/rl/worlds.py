"""Where an agent lives: an environment it plays rounds in, compiled whole or stepped from Python.

A world gives what came of each round, and keeps nothing of it that its owner has not kept: `rounds` starts from the
mind and the place that it is told. So a run that is interrupted, wherever it is, goes on from the last round kept.
"""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored.inference.compilation import jit
from anchored.rl import replay, training
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter
from anchored.rl.replay import Buffer, Transition
from anchored.rl.training import Agent, Config, Mind, World

STEPS_A_CALL = 1000  # about how often a long run of compiled rounds comes up for air
MOST_STEPS = 10_000  # of an episode without a time limit, before the agent learns, or a judge gives up
MOST_REPLAYED = 50_000  # steps of an episode that are played again when an agent is loaded


class Steps(NamedTuple):
    """What happened, step by step."""

    reward: np.ndarray
    last: np.ndarray
    explored: np.ndarray


class Place(NamedTuple):
    """Where a Gymnasium environment stands, after a whole round."""

    number: int  # of the episode under way
    actions: tuple[int, ...]  # taken in it
    observation: np.ndarray  # to which they led


class CompiledWorld:
    """An environment of pure functions: many rounds in one call. Its place is a `World`."""

    def __init__(self, environment: Environment, seed: int):
        self.kind = self.environment = environment
        self.start = _first_step(environment, jax.random.key(seed), 0)
        self.observation = np.asarray(_observe(environment, self.start.state))  # an example

    def rounds(
        self, agent: Agent, mind: Mind, world: World, until_steps: int, until_episodes: int
    ) -> Iterator[tuple[Mind, World, Steps]]:
        """Rounds until so many steps or episodes have been lived through."""
        most = self.environment.max_episode_steps if agent.learn_every is None else agent.learn_every
        config = Config(self.environment, agent, max(1, STEPS_A_CALL // most))
        while mind.n_steps < until_steps and mind.n_episodes < until_episodes:
            mind, world, log, n_rounds = _rounds(config, mind, world, until_steps, until_episodes)
            log = jax.tree.map(lambda leaf, n=int(n_rounds): np.asarray(leaf)[:n], log)
            happened = np.arange(log.reward.shape[1]) < log.length[:, None]
            yield mind, world, Steps(log.reward[happened], log.last[happened], log.explored[happened])

    def encode(self, observations: Any) -> tuple[np.ndarray, bool]:
        """Observations along a leading axis, and whether there was but one."""
        rows = np.asarray(observations)
        single = rows.ndim == self.observation.ndim
        rows = rows[None] if single else rows
        if rows.shape[1:] != self.observation.shape:
            raise ValueError(f"shape {self.observation.shape} is needed, with a leading axis for several")
        if self.kind.n_observations is None:
            if not np.isfinite(rows).all():
                raise ValueError("not all of its entries are finite")
        elif not np.issubdtype(rows.dtype, np.integer) or rows.min() < 0 or rows.max() >= self.kind.n_observations:
            raise ValueError(f"integers from 0 to {self.kind.n_observations - 1} are needed")
        return rows.astype(self.observation.dtype), single

    def decode(self, actions: Any) -> Any:
        """Actions as the environment calls them."""
        return actions

    def leaves(self, world: World) -> dict[str, np.ndarray]:
        """Where the environment stands, to be stored."""
        return {f"world/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(world))}

    def restore(self, arrays: dict[str, np.ndarray]) -> tuple[World, bool]:
        """The place that `leaves` were taken of, and whether it was reached: always."""
        leaves, structure = jax.tree.flatten(self.start)
        return jax.tree.unflatten(structure, [arrays[f"world/{i}"] for i in range(len(leaves))]), True


class SteppedWorld:
    """A Gymnasium environment, a step at a time.

    Episode i is always reset with the same seed, so that any moment can be gone back to: by resetting, and playing
    the episode's actions again.
    """

    def __init__(self, adapter: GymnasiumAdapter, seed: int):
        self.kind = self.adapter = adapter
        self.seed = seed
        self.observation = self._begin(0)
        self.start = Place(0, (), self.observation)
        self._stands_at: Place | None = self.start  # None amid a round

    def rounds(
        self, agent: Agent, mind: Mind, place: Place, until_steps: int, until_episodes: int
    ) -> Iterator[tuple[Mind, Place, Steps]]:
        """Rounds until so many steps or episodes have been lived through."""
        n_steps = int(mind.n_steps)
        most = agent.learn_every or MOST_STEPS
        if self._stands_at is not place:  # something failed, or the last round was not kept
            self._go_back(place)
        # A large buffer must not be copied for every lesson, but what is written to in place is gone if the lesson
        # is interrupted. So there are two, and the spare one is written to.
        spare = _copy(mind.buffer)
        while n_steps < until_steps and place.number < until_episodes:
            self._stands_at = None
            number, actions = place.number, list(place.actions)
            block: list[Transition] = []
            rewards: list[float] = []
            explored: list[bool] = []
            while len(block) < most and not (agent.learn_every is None and block and block[-1].last):
                choice = _act(agent, mind.key, mind.members.params, self.observation, n_steps + len(block), number)
                action, exploring = (leaf.item() for leaf in jax.device_get(choice))
                transition, reward = self._step(action)
                block.append(transition)
                rewards.append(reward)
                actions.append(action)
                explored.append(exploring)
                if block[-1].last:
                    number, actions = number + 1, []
                    self.observation = self._begin(number)
            rows, old = _stacked(block, agent), mind.buffer
            mind = _learn(agent, _without_buffer(mind), spare, rows, len(block), number - place.number)
            n_steps += len(block)
            self._stands_at = place = Place(number, tuple(actions), self.observation)
            yield mind, place, Steps(np.array(rewards), np.array([step.last for step in block]), np.array(explored))
            spare = _remember(old, rows, len(block))

    def encode(self, observations: Any) -> tuple[np.ndarray, bool]:
        """Observations along a leading axis, and whether there was but one."""
        several = self.adapter.split(observations)
        rows = [self.adapter.encode(one) for one in ([observations] if several is None else several)]
        return np.stack(rows), several is None

    def decode(self, actions: Any) -> Any:
        """Actions as the environment calls them."""
        return self.adapter.decode(actions)

    def leaves(self, place: Place) -> dict[str, np.ndarray]:
        """Where the environment stands, to be stored."""
        return {
            "world/observation": place.observation,
            "world/number": np.asarray(place.number),
            "world/actions": np.asarray(place.actions, np.int32),
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> tuple[Place, bool]:
        """The place that `leaves` were taken of, and whether it was reached; if not, its episode's first."""
        number, observation = int(arrays["world/number"]), arrays["world/observation"]
        place = Place(number, tuple(arrays["world/actions"].tolist()), observation)
        too_long = len(place.actions) > MOST_REPLAYED
        if not too_long and self._go_back(place):
            return place, True
        why = (
            f"its episode has {len(place.actions)} steps, more than are played again ({MOST_REPLAYED})"
            if too_long
            else "the same seed and actions led elsewhere than when the agent was saved"
        )
        warnings.warn(
            f"env: {self.adapter.name} does not repeat itself: {why}. The episode under way then is begun again, so "
            "that the run goes on, but not bit for bit.",
            stacklevel=5,
        )
        self.observation = self._begin(number)
        self._stands_at = Place(number, (), self.observation)
        return self._stands_at, False

    def _begin(self, number: int) -> np.ndarray:
        return self.adapter.reset(int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]))

    def _go_back(self, place: Place) -> bool:
        """Whether the same seed and actions lead there again."""
        self._stands_at = None
        self.observation = self._begin(place.number)
        for action in place.actions:
            if self._step(action)[0].last:  # which none of them was
                return False
        self._stands_at = place
        return np.array_equal(self.observation, place.observation)

    def _step(self, action: int) -> tuple[Transition, float]:
        """What is learnt from, in single precision, and the reward as it was."""
        before = self.observation
        after, reward, terminated, truncated = self.adapter.step(action)
        self.observation = after
        over = terminated or truncated
        return Transition(before, np.int32(action), np.float32(reward), after, terminated, over), reward


def world_of(env: Any, seed: int) -> CompiledWorld | SteppedWorld:
    """The world of an environment: compiled where it is made of pure functions."""
    ours = all(hasattr(env, name) for name in ("observe", "max_episode_steps", "n_observations"))
    return CompiledWorld(env, seed) if ours and not isinstance(env, type) else SteppedWorld(GymnasiumAdapter(env), seed)


def _stacked(block: list[Transition], agent: Agent) -> Transition:
    """One array a field; episodes are padded to powers of two, so that few lengths are compiled."""
    rows = agent.learn_every or 1 << (len(block) - 1).bit_length()
    padded = block + [block[-1]] * (rows - len(block))
    stacked = Transition(*(np.stack([np.asarray(part) for part in parts]) for parts in zip(*padded, strict=True)))
    return stacked._replace(reward=stacked.reward * np.float32(agent.reward_scale))


_first_step = jit(training.first_step, static_argnums=(0,))
_act = jit(training.act)
_remember = jit(replay.add, donate_argnums=(0,))


@partial(jit, static_argnums=(0,))
def _observe(environment: Environment, state: Any) -> Any:
    return environment.observe(state)


@partial(jit, donate_argnums=(2,))
def _learn(agent: Agent, mind: Mind, buffer: Buffer, block: Transition, length: int, n_ended: int) -> Mind:
    """`training.learn`, written into a buffer that is given away."""
    return training.learn(agent, mind._replace(buffer=buffer), block, length, n_ended)


def _without_buffer(mind: Mind) -> Mind:
    return mind._replace(buffer=None)  # type: ignore[arg-type]


@jit
def _copy(buffer: Buffer) -> Buffer:
    return jax.tree.map(jnp.copy, buffer)


@jit
def _rounds(config: Config, mind: Mind, world: World, until_steps: int, until_episodes: int) -> tuple:
    """Up to `config.n_rounds` rounds, and their log."""

    def goes_on(carry: tuple) -> Any:
        i, mind, *_ = carry
        return (i < config.n_rounds) & (mind.n_steps < until_steps) & (mind.n_episodes < until_episodes)

    def step(carry: tuple) -> tuple:
        i, mind, world, logs = carry
        mind, world, log = training.play_and_learn(config, mind, world)
        return i + 1, mind, world, jax.tree.map(lambda rows, row: rows.at[i].set(row), logs, log)

    shapes = jax.eval_shape(partial(training.play_and_learn, config), mind, world)[2]
    logs = jax.tree.map(lambda leaf: jnp.zeros((config.n_rounds, *leaf.shape), leaf.dtype), shapes)
    n, mind, world, logs = jax.lax.while_loop(goes_on, step, (jnp.int32(0), mind, world, logs))
    return mind, world, logs, n
