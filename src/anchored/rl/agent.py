"""QEnsembleAgent: an anchored ensemble of Q-networks in any environment with finitely many actions."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks, compilation
from anchored.networks import ACTIVATIONS, as_network
from anchored.priors import default_layer_scales
from anchored.rl import evaluation, persistence, q_learning, training
from anchored.rl.environments import GymnasiumAdapter
from anchored.rl.exploration import EXPLORATIONS, Exploration, Greedy
from anchored.rl.history import History
from anchored.rl.progress import Progress
from anchored.rl.q_network import QNetwork, Rescaled
from anchored.rl.worlds import CompiledWorld, SteppedWorld
from anchored.solvers.first_order import check_optimizer
from anchored.training import DivergenceError

NEVER = 2**31 - 1
REPLAYS = ("uniform", "uncertainty")


class QEnsembleAgent:
    """Q-learning by an ensemble whose spread says what it does not know yet, and so where to look.

    Parameters
    ----------
    env : a Gymnasium environment with a Discrete action space, the name of one, or one of `anchored.rl.environments`,
        which is compiled together with the agent and many times faster.
    n_estimators : members of the ensemble.
    exploration : "thompson" (Algorithm 1, which decides anew at every step), "member" (one member followed for an
        episode) or "index" (one draw from the members' normal followed for an episode), which suit rewards that only
        many steps in a row lead to; "epsilon", "greedy", or an object of `anchored.rl.exploration`.
    hidden_layer_sizes, activation : of each network; or `network`, of any kind that the estimators take.
    prior_scale : standard deviation of Q-values before anything is learnt, in units of reward × `reward_scale`, or
        one scale for each layer. Exploration needs it to be of the order of the values that are to be learnt.
    noise_variance : of the targets; the pull to a member's anchor is noise variance / prior variance. 0: no pull.
    gamma, learning_rate, optimizer, batch_size, buffer_size : as everywhere.
    learning_starts : steps before the first lesson (episodes, where `train_freq` is "episode").
    train_freq : steps between lessons, or "episode" for one at the end of each.
    gradient_steps : steps of the optimiser in a lesson.
    target_update_interval : steps of the optimiser between copies to the target networks; None: no such networks.
    double_q, n_step : double Q-learning; steps of reward before a value is trusted.
    replay : "uniform", or "uncertainty": steps come up again the more often, the more members disagree on them.
    reward_scale : rewards are multiplied by it before they are learnt.
    rescale_observations : bring observations to [−1, 1] where the environment says what their bounds are.
    seed : of everything; None draws one.
    """

    def __init__(
        self,
        env: Any,
        n_estimators: int = 10,
        exploration: str | Exploration = "thompson",
        *,
        hidden_layer_sizes: Sequence[int] = (64, 64),
        activation: str = "relu",
        network: Any = None,
        prior_scale: float | Sequence[float] = 3.0,
        noise_variance: float = 0.01,
        gamma: float = 0.99,
        learning_rate: float = 1e-3,
        optimizer: str | Callable = "adam",
        batch_size: int = 128,
        buffer_size: int = 50_000,
        learning_starts: int = 500,
        train_freq: int | str = 4,
        gradient_steps: int = 2,
        target_update_interval: int | None = 100,
        double_q: bool = True,
        n_step: int = 3,
        replay: str = "uniform",
        reward_scale: float = 1.0,
        rescale_observations: bool = True,
        seed: int | None = None,
    ):
        compilation.use_cache()
        self.arguments = {name: value for name, value in locals().items() if name not in ("self", "env")}
        _check(self.arguments)
        self.seed = int(np.random.SeedSequence().generate_state(1)[0] >> 1) if seed is None else int(seed)
        self.arguments["seed"] = self.seed
        self.world = _world(env, self.seed)
        self.history = History()
        self.evaluations: list[tuple[int, list[float]]] = []  # step number, returns
        self.agent = self._build()
        self.mind = _new_mind(jax.random.key(self.seed), self.agent, self.world.observation())
        self._random = np.random.default_rng(self.seed)  # of `predict` alone

    def learn(
        self,
        total_timesteps: int | None = None,
        total_episodes: int | None = None,
        progress_bar: bool = False,
        checkpoint: Any = None,
        checkpoint_every: int = 10_000,
        eval_env: Any = None,
        eval_every: int | None = None,
        n_eval_episodes: int = 10,
    ) -> Self:
        """So many more steps or episodes, whichever comes first; whole rounds of `train_freq` are always finished.

        `checkpoint` names a file that is replaced every so many steps: a run that is killed loses no more than the
        steps since then. With `eval_every`, greedy episodes are played on `eval_env`, which is kept apart, and
        recorded in `evaluations`.
        """
        if total_timesteps is None and total_episodes is None:
            raise ValueError("total_timesteps or total_episodes must be given: how long should the agent learn?")
        for name, value in (("total_timesteps", total_timesteps), ("total_episodes", total_episodes)):
            if value is not None:
                checks.whole(name, value)
        for name, value in (("checkpoint_every", checkpoint_every), ("n_eval_episodes", n_eval_episodes)):
            checks.whole(name, value)
        if eval_every is not None:
            checks.whole("eval_every", eval_every)
        until_steps = NEVER if total_timesteps is None else self.n_steps + total_timesteps
        until_episodes = NEVER if total_episodes is None else self.n_episodes + total_episodes
        judge = evaluation.judge(eval_env, self.world) if eval_every is not None else None
        next_save = self.n_steps + checkpoint_every
        next_judgement = self.n_steps + eval_every if eval_every is not None else NEVER
        with Progress(progress_bar, total_timesteps, total_episodes) as progress:
            while self.n_steps < until_steps and self.n_episodes < until_episodes:
                pause = min(until_steps, next_save if checkpoint is not None else NEVER, next_judgement)
                before = self.n_steps, self.n_episodes
                self.mind, steps = self.world.play(self.agent, self.mind, pause, until_episodes)
                self.history.record(*steps)
                self._check_members()
                if judge is not None and self.n_steps >= next_judgement:
                    self.evaluations.append((self.n_steps, self._judged(judge, n_eval_episodes)))
                    next_judgement += eval_every  # type: ignore[operator]
                if checkpoint is not None and self.n_steps >= next_save:
                    self.save(checkpoint)
                    next_save += checkpoint_every
                progress.advance(self.n_steps - before[0], self.n_episodes - before[1], self.history.returns)
        if checkpoint is not None:
            self.save(checkpoint)
        return self

    def predict(self, observation: Any, deterministic: bool = False) -> tuple[Any, None]:
        """An action for one observation or for each of several: the ensemble's best, or one as exploration would.

        The second value is always None, as is Stable-Baselines3's custom for agents without memory.
        """
        rows, single = self._rows(observation)
        if deterministic:
            actions = np.asarray(_members(self.agent, self.mind.members.params, rows)).mean(0).argmax(1)
        else:
            chances = self.action_probabilities(rows)
            actions = (
                (self._random.random((len(rows), 1)) > np.cumsum(chances, 1)).sum(1).clip(max=chances.shape[1] - 1)
            )
        return (int(actions[0]) if single else actions), None

    def q_values(self, observation: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and standard deviation over members of each action's value, and the members' own, in units of reward.

        Shapes (actions,), (actions,), (members, actions) for one observation; several add a leading axis of theirs.
        """
        rows, single = self._rows(observation)
        q = np.asarray(_members(self.agent, self.mind.members.params, rows)) / self.agent.reward_scale
        q = np.moveaxis(q, 0, 1)  # (rows, members, actions)
        std = q.std(1, ddof=1) if q.shape[1] > 1 else np.zeros_like(q[:, 0])
        return (q[0].mean(0), std[0], q[0]) if single else (q.mean(1), std, q)

    def action_probabilities(self, observation: Any) -> np.ndarray:
        """How likely exploration is to take each action, now: (actions,), or (observations, actions)."""
        rows, single = self._rows(observation)
        chances = np.asarray(_probabilities(self.agent, self.mind.members.params, rows, self.mind.n_episodes))
        return chances[0] if single else chances

    def evaluate(self, n_episodes: int = 100, env: Any = None) -> np.ndarray:
        """Returns of greedy episodes, in an environment apart from the one that is learnt in."""
        checks.whole("n_episodes", n_episodes)
        return np.array(self._judged(evaluation.judge(env, self.world), n_episodes))

    def save(self, path: Any) -> None:
        """Everything: a run that is saved, loaded and goes on equals the run that was never cut."""
        persistence.save(self, path)

    @classmethod
    def load(cls, path: Any, env: Any = None, network: Any = None) -> Self:
        """An agent where `save` left it; environments and networks that are code of yours are passed again."""
        return persistence.load(cls, path, env, network)

    @property
    def n_steps(self) -> int:
        return int(self.mind.n_steps)

    @property
    def n_episodes(self) -> int:
        return int(self.mind.n_episodes)

    def _build(self) -> training.Agent:
        """The agent as the pure functions know it."""
        asked: Any = self.arguments
        kind = self.world.kind
        network = asked["network"]
        if network is None:
            sizes = tuple(int(size) for size in asked["hidden_layer_sizes"])
            network = QNetwork(sizes, kind.n_actions, kind.n_observations, asked["activation"])
        network = as_network(network)
        observation = self.world.observation()
        like = jax.eval_shape(network.init, jax.random.key(0), observation[None])
        prior = q_learning.q_prior(network, like, _layer_scales(network, asked["prior_scale"]))
        bounds = kind.observation_bounds
        if asked["rescale_observations"] and bounds is not None:
            low, high = bounds
            network = Rescaled(network, tuple((low + high) / 2), tuple((high - low) / 2))
        shape = jax.eval_shape(network.apply, like, observation[None]).shape
        if shape != (1, kind.n_actions):
            raise ValueError(
                f"network: its outputs for one observation have shape {shape}, but the environment has "
                f"{kind.n_actions} actions: (1, {kind.n_actions}) is needed"
            )
        by_episode = asked["train_freq"] == "episode"
        learning = q_learning.QLearning(
            network,
            prior,
            q_learning.strength_of(prior, asked["noise_variance"]),
            n_estimators=asked["n_estimators"],
            discount=asked["gamma"],
            learning_rate=asked["learning_rate"],
            optimizer=asked["optimizer"],
            batch_size=asked["batch_size"],
            n_updates=asked["gradient_steps"],
            target_update=asked["target_update_interval"],
            double=asked["double_q"],
            n_steps=asked["n_step"],
            replay=asked["replay"],
        )
        exploration = asked["exploration"]
        return training.Agent(
            learning,
            EXPLORATIONS[exploration] if isinstance(exploration, str) else exploration,
            None if by_episode else asked["train_freq"],
            asked["learning_starts"] if by_episode else asked["learning_starts"] // asked["train_freq"],
            asked["buffer_size"],
            asked["reward_scale"],
        )

    def _rows(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Observations along a leading axis, and whether there was but one."""
        seen = self.world.observation()
        try:
            rows = np.asarray(observation, seen.dtype)
        except (TypeError, ValueError) as error:
            raise ValueError(f"observation must be an array of numbers, got {observation!r}") from error
        single = rows.ndim == seen.ndim
        if rows.shape[(0 if single else 1) :] != seen.shape or rows.ndim > seen.ndim + 1:
            raise ValueError(
                f"observation must have shape {seen.shape}, with a leading axis for several, got {rows.shape}"
            )
        return (rows[None] if single else rows), single

    def _judged(self, judge: evaluation.Judge, n_episodes: int) -> list[float]:
        greedy = training.Agent(self.agent.learning, Greedy())
        return judge(greedy, self.mind.members.params, self.seed, n_episodes)

    def _check_members(self) -> None:
        lost = np.flatnonzero(~np.asarray(_finite(self.mind.members.params)))
        if len(lost):
            raise DivergenceError(
                f"members {lost.tolist()} no longer have finite weights after {self.n_steps} steps. Use a smaller "
                "learning_rate, a smaller reward_scale, or target networks (target_update_interval)."
            )


def _world(env: Any, seed: int) -> CompiledWorld | SteppedWorld:
    ours = all(hasattr(env, name) for name in ("observe", "max_episode_steps", "n_observations"))
    return CompiledWorld(env, seed) if ours and not isinstance(env, type) else SteppedWorld(GymnasiumAdapter(env), seed)


def _layer_scales(network: Any, prior_scale: float | Sequence[float]) -> tuple[float, ...]:
    if not np.isscalar(prior_scale):
        scales = tuple(float(scale) for scale in prior_scale)  # type: ignore[union-attr]
        wanted = len(network.hidden_layer_sizes) + 1 if isinstance(network, QNetwork) else 2
        if len(scales) != wanted:
            raise ValueError(f"prior_scale must be one number or {wanted}, one for each layer, got {len(scales)}")
        return scales
    if not isinstance(network, QNetwork):
        return (*default_layer_scales(network, 1.0)[:-1], float(prior_scale))  # type: ignore[arg-type]
    deeper = 2**0.5 if network.activation == "relu" else 1.0
    return (1.0, *[deeper] * (len(network.hidden_layer_sizes) - 1), float(prior_scale))  # type: ignore[arg-type]


def _check(asked: dict[str, Any]) -> None:
    """Raise where an argument cannot be used."""
    for name in ("n_estimators", "batch_size", "buffer_size", "gradient_steps", "n_step"):
        checks.whole(name, asked[name])
    checks.whole("learning_starts", asked["learning_starts"], 0)
    if asked["target_update_interval"] is not None:
        checks.whole("target_update_interval", asked["target_update_interval"], 1, "or None")
    if asked["train_freq"] != "episode":
        checks.whole("train_freq", asked["train_freq"], 1, 'or "episode"')
    for name in ("learning_rate", "reward_scale"):
        checks.positive(name, asked[name])
    if not checks.is_real(asked["noise_variance"]) or asked["noise_variance"] < 0:
        raise ValueError(f"noise_variance must be a number of at least 0, got {asked['noise_variance']!r}")
    if not checks.is_real(asked["gamma"]) or not 0 <= asked["gamma"] <= 1:
        raise ValueError(f"gamma must lie between 0 and 1, got {asked['gamma']!r}")
    for scale in np.ravel(asked["prior_scale"]):
        checks.positive("prior_scale", float(scale))
    checks.one_of("replay", asked["replay"], REPLAYS)
    check_optimizer(asked["optimizer"])
    if isinstance(asked["exploration"], str):
        checks.one_of("exploration", asked["exploration"], EXPLORATIONS)
    elif not callable(asked["exploration"]) or not hasattr(asked["exploration"], "probabilities"):
        raise TypeError(
            f"exploration must be one of {sorted(EXPLORATIONS)} or an object of anchored.rl.exploration, got "
            f"{asked['exploration']!r}"
        )
    if asked["seed"] is not None:
        checks.whole("seed", asked["seed"], 0, "or None")
    if asked["network"] is None:
        checks.one_of("activation", asked["activation"], ACTIVATIONS)
        for size in asked["hidden_layer_sizes"]:
            checks.whole("hidden_layer_sizes", size)


@jax.jit
def _new_mind(key, agent, observation):
    return training.new_mind(key, agent, observation)


@jax.jit
def _members(agent, params, rows):
    return jax.vmap(agent.learning.network.apply, in_axes=(0, None))(params, rows)


@jax.jit
def _probabilities(agent, params, rows, n_episodes):
    q = jax.vmap(agent.learning.network.apply, in_axes=(0, None))(params, rows)
    return jax.vmap(partial(agent.exploration.probabilities, number=n_episodes), in_axes=1)(q)


@jax.jit
def _finite(params):
    """For each member, whether all of its weights are."""
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(1) for leaf in jax.tree.leaves(params)]
    return jnp.stack(leaves).all(0)
