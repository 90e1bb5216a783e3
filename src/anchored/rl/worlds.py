"""Where an agent lives: an environment it plays rounds in, compiled whole or stepped from Python."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored.rl import training
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter
from anchored.rl.replay import Transition
from anchored.rl.training import Agent, Config, Mind, World

STEPS_A_CALL = 1000  # about how often a long run of compiled rounds comes up for air
MOST_STEPS = 10_000  # of an episode without a time limit, before the agent learns, or a judge gives up


class Steps(NamedTuple):
    """What happened, step by step."""

    reward: np.ndarray
    last: np.ndarray
    explored: np.ndarray


class CompiledWorld:
    """An environment of pure functions: many rounds in one call."""

    def __init__(self, environment: Environment, seed: int):
        self.kind = self.environment = environment
        self.world = jax.jit(training.first_step, static_argnums=0)(environment, jax.random.key(seed), 0)
        self.observation = np.asarray(jax.jit(environment.observe)(self.world.state))  # an example

    def rounds(self, agent: Agent, mind: Mind, until_steps: int, until_episodes: int) -> Iterator[tuple[Mind, Steps]]:
        """Rounds until so many steps or episodes have been lived through; nothing is lost where this is cut short."""
        most = self.environment.max_episode_steps if agent.learn_every is None else agent.learn_every
        config = Config(self.environment, agent, max(1, STEPS_A_CALL // most))
        while mind.n_steps < until_steps and mind.n_episodes < until_episodes:
            mind, world, log, n_rounds = _rounds(config, mind, self.world, until_steps, until_episodes)
            log = jax.tree.map(lambda leaf, n=int(n_rounds): np.asarray(leaf)[:n], log)
            happened = np.arange(log.reward.shape[1]) < log.length[:, None]
            self.world = world
            yield mind, Steps(log.reward[happened], log.last[happened], log.explored[happened])

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

    def leaves(self) -> dict[str, np.ndarray]:
        """Where the environment stands, to be stored."""
        return {f"world/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.world))}

    def restore(self, arrays: dict[str, np.ndarray]) -> bool:
        """Go back to where `leaves` were taken; whether that was possible."""
        leaves, structure = jax.tree.flatten(self.world)
        self.world = jax.tree.unflatten(structure, [arrays[f"world/{i}"] for i in range(len(leaves))])
        return True


class SteppedWorld:
    """A Gymnasium environment, a step at a time.

    Episode i is always reset with the same seed, so that any moment can be gone back to: by resetting, and playing
    the episode's actions again.
    """

    def __init__(self, adapter: GymnasiumAdapter, seed: int):
        self.kind = self.adapter = adapter
        self.seed = seed
        self.number = 0  # of the episode under way
        self.actions: list[int] = []  # of the episode under way, as of the last whole round
        self.observation = self._begin(0)
        self._amid_a_round = False

    def rounds(self, agent: Agent, mind: Mind, until_steps: int, until_episodes: int) -> Iterator[tuple[Mind, Steps]]:
        """Rounds until so many steps or episodes have been lived through; nothing is lost where this is cut short."""
        n_steps = int(mind.n_steps)
        most = agent.learn_every or MOST_STEPS
        if self._amid_a_round:  # something failed there
            self._go_back()
        while n_steps < until_steps and self.number < until_episodes:
            self._amid_a_round = True
            number, actions = self.number, list(self.actions)
            block: list[Transition] = []
            explored: list[bool] = []
            while len(block) < most and not (agent.learn_every is None and block and block[-1].last):
                choice = _act(agent, mind.key, mind.members.params, self.observation, n_steps + len(block), number)
                action, exploring = (leaf.item() for leaf in jax.device_get(choice))
                block.append(self._step(action))
                actions.append(action)
                explored.append(exploring)
                if block[-1].last:
                    number, actions = number + 1, []
                    self.observation = self._begin(number)
            mind = _learn(agent, mind, _stacked(block, agent), len(block), number - self.number)
            n_steps += len(block)
            self.number, self.actions, self._amid_a_round = number, actions, False
            yield (
                mind,
                Steps(*(np.array(part) for part in ([t.reward for t in block], [t.last for t in block], explored))),
            )

    def encode(self, observations: Any) -> tuple[np.ndarray, bool]:
        """Observations along a leading axis, and whether there was but one."""
        several = self.adapter.split(observations)
        rows = [self.adapter.encode(one) for one in ([observations] if several is None else several)]
        return np.stack(rows), several is None

    def decode(self, actions: Any) -> Any:
        """Actions as the environment calls them."""
        return self.adapter.decode(actions)

    def leaves(self) -> dict[str, np.ndarray]:
        """Where the environment stands, to be stored."""
        return {
            "world/observation": self.observation,
            "world/number": np.asarray(self.number),
            "world/actions": np.asarray(self.actions, np.int32),
        }

    def restore(self, arrays: dict[str, np.ndarray]) -> bool:
        """Go back to where `leaves` were taken; whether that was possible."""
        self.number, self.actions = int(arrays["world/number"]), arrays["world/actions"].tolist()
        self._go_back()
        if np.array_equal(self.observation, arrays["world/observation"]):
            return True
        warnings.warn(
            f"env: {self.adapter.name} does not repeat itself: the same seed and actions led elsewhere than when the "
            "agent was saved. The episode under way then is begun again, so that the run goes on, but not bit for bit.",
            stacklevel=4,
        )
        self.actions, self.observation = [], self._begin(self.number)
        return False

    def _begin(self, number: int) -> np.ndarray:
        return self.adapter.reset(int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0]))

    def _go_back(self) -> None:
        self.observation = self._begin(self.number)
        for action in self.actions:
            self._step(action)
        self._amid_a_round = False

    def _step(self, action: int) -> Transition:
        before = self.observation
        after, reward, terminated, truncated = self.adapter.step(action)
        self.observation = after
        return Transition(before, np.int32(action), np.float32(reward), after, terminated, terminated or truncated)


def _stacked(block: list[Transition], agent: Agent) -> Transition:
    """One array a field; episodes are padded to powers of two, so that few lengths are compiled."""
    rows = agent.learn_every or 1 << (len(block) - 1).bit_length()
    padded = block + [block[-1]] * (rows - len(block))
    stacked = Transition(*(np.stack([np.asarray(part) for part in parts]) for parts in zip(*padded, strict=True)))
    return stacked._replace(reward=stacked.reward * np.float32(agent.reward_scale))


_act = jax.jit(training.act)
_learn = jax.jit(training.learn, donate_argnums=1)  # the buffer is not copied for every lesson


@jax.jit
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
