"""Where an agent lives: an environment it plays rounds in, compiled whole or stepped from Python."""

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored.rl import replay, training
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter
from anchored.rl.replay import Transition
from anchored.rl.training import Agent, Config, Mind, World

STEPS_A_CALL = 1000  # about how often a long run comes up for air


class Steps(NamedTuple):
    """What happened, step by step."""

    reward: np.ndarray
    last: np.ndarray
    explored: np.ndarray


class CompiledWorld:
    """An environment of pure functions: many rounds in one call."""

    def __init__(self, environment: Environment, seed: int):
        self.kind = self.environment = environment
        self.seed = seed
        self.world = jax.jit(training.first_step, static_argnums=0)(environment, jax.random.key(seed), 0)

    def observation(self) -> Any:
        """What is seen now."""
        return np.asarray(jax.jit(self.environment.observe)(self.world.state))

    def play(self, agent: Agent, mind: Mind, until_steps: int, until_episodes: int) -> tuple[Mind, Steps]:
        """Some rounds, fewer where so many steps or episodes have been lived through."""
        most = self.environment.max_episode_steps if agent.learn_every is None else agent.learn_every
        config = Config(self.environment, agent, max(1, STEPS_A_CALL // most))
        mind, self.world, log, n_rounds = _rounds(config, mind, self.world, until_steps, until_episodes)
        log = jax.tree.map(lambda leaf: np.asarray(leaf)[: int(n_rounds)], log)
        happened = np.arange(log.reward.shape[1]) < log.length[:, None]
        return mind, Steps(log.reward[happened], log.last[happened], log.explored[happened])

    def leaves(self) -> dict[str, np.ndarray]:
        """Where the environment stands, to be stored."""
        return {f"world/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.world))}

    def restore(self, arrays: dict[str, np.ndarray], mind: Mind) -> None:
        leaves, structure = jax.tree.flatten(self.world)
        self.world = jax.tree.unflatten(structure, [arrays[f"world/{i}"] for i in range(len(leaves))])


class SteppedWorld:
    """A Gymnasium environment, a step at a time.

    Episode i is always reset with the same seed, so that a run can be taken up again where it stood: the
    environment is reset and the episode's actions, which are in the buffer, are played again.
    """

    def __init__(self, adapter: GymnasiumAdapter, seed: int):
        self.kind = self.adapter = adapter
        self.seed = seed
        self.n_steps = 0  # in this episode
        self._observation = adapter.reset(self._episode_seed(0))

    def observation(self) -> np.ndarray:
        """What is seen now."""
        return self._observation

    def play(self, agent: Agent, mind: Mind, until_steps: int, until_episodes: int) -> tuple[Mind, Steps]:
        """Some rounds, fewer where so many steps or episodes have been lived through."""
        n_steps, n_episodes = int(mind.n_steps), int(mind.n_episodes)
        happened: list[Transition] = []
        explored: list[bool] = []
        while len(happened) < STEPS_A_CALL and n_steps < until_steps and n_episodes < until_episodes:
            block: list[Transition] = []
            ended = 0
            while not block or (len(block) != agent.learn_every and not (agent.learn_every is None and block[-1].last)):
                action, exploring = jax.device_get(
                    _act(agent, mind.key, mind.members.params, self._observation, n_steps, n_episodes)
                )
                block.append(self._step(int(action)))
                explored.append(bool(exploring))
                n_steps += 1
                if block[-1].last:
                    ended += 1
                    n_episodes += 1
                    self.n_steps = 0
                    self._observation = self.adapter.reset(self._episode_seed(n_episodes))
            mind = _learn(agent, mind, _stacked(block, agent), len(block), ended)
            happened += block
        reward, last = ([getattr(step, name) for step in happened] for name in ("reward", "last"))
        return mind, Steps(np.array(reward, float), np.array(last, bool), np.array(explored, bool))

    def _step(self, action: int) -> Transition:
        before = self._observation
        after, reward, terminated, truncated = self.adapter.step(action)
        self._observation = after
        self.n_steps += 1
        return Transition(before, np.int32(action), np.float32(reward), after, terminated, terminated or truncated)

    def leaves(self) -> dict[str, np.ndarray]:
        """Where the environment stands, to be stored."""
        return {"world/observation": self._observation, "world/n_steps": np.asarray(self.n_steps)}

    def restore(self, arrays: dict[str, np.ndarray], mind: Mind) -> None:
        """Play the actions of the episode under way again."""
        n_steps = int(arrays["world/n_steps"])
        if n_steps > mind.buffer.capacity:
            raise ValueError(
                f"the episode under way had {n_steps} steps when it was saved, more than the buffer_size of "
                f"{mind.buffer.capacity} remembers, so it cannot be taken up again. Use a larger buffer."
            )
        seen = self.adapter.reset(self._episode_seed(int(mind.n_episodes)))
        places = np.asarray(replay.newest(mind.buffer, n_steps))[::-1]
        for action in np.asarray(mind.buffer.transitions.action)[places]:
            seen, *_ = self.adapter.step(int(action))
        if not np.array_equal(seen, arrays["world/observation"]):
            raise ValueError(
                f"env: {self.adapter.name} does not repeat itself: the same seed and actions led elsewhere than when "
                "the agent was saved. Pass an environment like the one it was trained in, whose randomness comes "
                "from reset(seed=...) alone."
            )
        self._observation, self.n_steps = seen, n_steps

    def _episode_seed(self, number: int) -> int:
        return int(np.random.SeedSequence([self.seed, number]).generate_state(1)[0])


def _stacked(block: list[Transition], agent: Agent) -> Transition:
    """One array a field; episodes are padded to powers of two, so that few lengths are compiled."""
    rows = agent.learn_every or 1 << (len(block) - 1).bit_length()
    padded = block + [block[-1]] * (rows - len(block))
    stacked = Transition(*(np.stack([np.asarray(part) for part in parts]) for parts in zip(*padded, strict=True)))
    return stacked._replace(reward=stacked.reward * np.float32(agent.reward_scale))


_act = jax.jit(training.act)
_learn = jax.jit(training.learn, donate_argnums=1)


@partial(jax.jit, donate_argnums=(1, 2))
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
