"""QEnsembleAgent: an anchored ensemble of Q-networks in any environment with finitely many actions."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.inference.compilation import jit
from anchored.inference.convergence import DivergenceError
from anchored.rl import evaluation, persistence, settings, training
from anchored.rl.exploration import Exploration, Greedy
from anchored.rl.history import History
from anchored.rl.progress import Progress
from anchored.rl.worlds import CompiledWorld, SteppedWorld, world_of

NEVER = 2**31 - 1
STEPS_A_LOOK = 1000  # at the members, and between moves of the progress bar


class Moment(NamedTuple):
    """All that changes in a round. It is kept in one assignment, which an interrupt comes before or after."""

    mind: training.Mind
    place: Any  # where the environment stands
    history: History


class QEnsembleAgent:
    """Q-learning by an ensemble whose spread says what it does not know yet, and so where to look.

    Parameters
    ----------
    env
        A Gymnasium environment with a Discrete action space, the name of one, or one of `anchored.rl.environments`,
        which is compiled together with the agent and many times faster.
    n_estimators
        Members of the ensemble.
    exploration
        "thompson" (Algorithm 1, which decides anew at every step), "member" (one member followed for an episode) or
        "index" (one draw from the members' normal followed for an episode), which suit rewards that only many steps
        in a row lead to; "epsilon", "greedy", or an object of `anchored.rl.exploration`.
    hidden_layer_sizes
        Of each network.
    activation
        Of its hidden units.
    network
        In the place of the two above, of any kind that the estimators take.
    prior_scale
        Standard deviation of Q-values before anything is learnt, in units of reward × `reward_scale`, or one scale
        for each layer. Exploration needs it to be of the order of the values that are to be learnt.
    noise_variance
        Of the targets; the pull to a member's anchor is noise variance / prior variance. 0: no pull.
    gamma
        The discount of later rewards.
    learning_rate
        Of the optimiser.
    optimizer
        By its name in optax, or a factory from learning rate to optax transformation.
    batch_size
        Transitions in a step of the optimiser.
    buffer_size
        Transitions remembered.
    learning_starts
        Steps before the first lesson (episodes, where `train_freq` is "episode"); None: 500 (or 10).
    train_freq
        Steps between lessons, or "episode" for one at the end of each.
    gradient_steps
        Steps of the optimiser in a lesson.
    target_update_interval
        Steps of the optimiser between copies to the target networks; None: no such networks.
    double_q
        Double Q-learning.
    n_step
        Steps of reward before a value is trusted.
    replay
        "uniform", or "uncertainty": steps come up again the more often, the more members disagree on them.
    reward_scale
        Rewards are multiplied by it before they are learnt.
    rescale_observations
        Bring observations to [−1, 1] where the environment says what their bounds are.
    seed
        Of everything, below 2³¹; None draws one.
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
        learning_starts: int | None = None,
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
        arguments = {name: value for name, value in locals().items() if name not in ("self", "env")}
        settings.check(arguments)
        arguments["seed"] = int(np.random.SeedSequence().generate_state(1)[0] >> 1) if seed is None else int(seed)
        world = world_of(env, arguments["seed"])
        agent = settings.build(arguments, world.kind, world.observation)
        mind = _new_mind(jax.random.key(arguments["seed"]), agent, world.observation)
        self._go_on(arguments, world, agent, Moment(mind, world.start, History()), [])

    def _go_on(
        self,
        arguments: dict[str, Any],
        world: CompiledWorld | SteppedWorld,
        agent: training.Agent,
        now: Moment,
        evaluations: list[tuple[int, list[float]]],
    ) -> None:
        self.arguments, self.seed = arguments, arguments["seed"]
        self.world, self.agent, self.now = world, agent, now
        self.evaluations = evaluations  # step number, returns
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
        elif eval_env is not None:
            raise ValueError("eval_every must be given together with eval_env: how often should the agent be judged?")
        if checkpoint is not None:
            persistence.check(self, checkpoint)
        until_steps = NEVER if total_timesteps is None else self.n_steps + total_timesteps
        until_episodes = NEVER if total_episodes is None else self.n_episodes + total_episodes
        judging = nullcontext() if eval_every is None else evaluation.judge(eval_env, self.world)
        with judging as judge, Progress(progress_bar, total_timesteps, total_episodes) as progress:
            while self.n_steps < until_steps and self.n_episodes < until_episodes:
                save_at = _next(self.n_steps, checkpoint_every if checkpoint is not None else None)
                judge_at = _next(self.n_steps, eval_every)
                self._play(min(until_steps, save_at, judge_at), until_episodes, progress)
                if judge is not None and self.n_steps >= judge_at:
                    self.evaluations.append((self.n_steps, self._judged(judge, n_eval_episodes)))
                if self.n_steps >= save_at:
                    self.save(checkpoint)
        if checkpoint is not None:
            self.save(checkpoint)
        return self

    def _play(self, until_steps: int, until_episodes: int, progress: Progress) -> None:
        before = self.n_steps, self.n_episodes
        rounds = self.world.rounds(self.agent, self.mind, self.now.place, until_steps, until_episodes)
        for mind, place, steps in rounds:
            self.now = Moment(mind, place, self.history.record(*steps))
            if self.n_steps - before[0] >= STEPS_A_LOOK:
                self._look(before, progress)
                before = self.n_steps, self.n_episodes
        self._look(before, progress)

    def _look(self, before: tuple[int, int], progress: Progress) -> None:
        """Show how far it is, and that no member is lost."""
        progress.advance(self.n_steps - before[0], self.n_episodes - before[1], self.history.returns)
        lost = np.flatnonzero(~np.asarray(_finite(self.mind.members.params)))
        if len(lost):
            raise DivergenceError(
                f"members {lost.tolist()} no longer have finite weights after {self.n_steps} steps. Use a smaller "
                "learning_rate, a smaller reward_scale, or target networks (target_update_interval)."
            )

    def predict(self, observation: Any, deterministic: bool = False) -> tuple[Any, None]:
        """An action for one observation or for each of several: the ensemble's best, or one drawn from
        `action_probabilities` (so that "member" and "index" choose anew at each call).

        Observations and actions are the environment's own. The second value is always None, as is
        Stable-Baselines3's custom for agents without memory.
        """
        rows, single = self._rows(observation)
        if deterministic:
            actions = np.asarray(_members(self.agent, self.mind.members.params, rows)).mean(0).argmax(1)
        else:
            chances = self._chances(rows)
            actions = (
                (self._random.random((len(rows), 1)) > np.cumsum(chances, 1)).sum(1).clip(max=chances.shape[1] - 1)
            )
        actions = self.world.decode(actions)
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
        chances = self._chances(rows)
        return chances[0] if single else chances

    def _chances(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(_probabilities(self.agent, self.mind.members.params, rows, self.mind.n_episodes))

    def evaluate(self, n_episodes: int = 100, env: Any = None) -> np.ndarray:
        """Returns of greedy episodes, in an environment apart from the one that is learnt in."""
        checks.whole("n_episodes", n_episodes)
        with evaluation.judge(env, self.world) as judge:
            return np.array(self._judged(judge, n_episodes))

    def save(self, path: Any) -> None:
        """All that learning needs: a run that is saved, loaded and goes on equals the run that was never cut.

        Only the random numbers of `predict` begin anew.
        """
        persistence.save(self, path)

    @classmethod
    def load(cls, path: Any, env: Any = None, network: Any = None) -> Self:
        """An agent where `save` left it; environments and networks that are code of yours are passed again.

        So is a Gymnasium environment with wrappers of its own or with arguments other than numbers and words. Any
        other is made from its id, which must be registered already: a file names no code to import or call. It is
        brought to where it stood by playing the episode's actions again.
        """
        names = [name for name in inspect.signature(QEnsembleAgent).parameters if name not in ("env", "network")]
        saved = persistence.load(path, names, env, network)
        loaded = cls.__new__(cls)
        now = Moment(saved.mind, saved.place, saved.history)
        loaded._go_on(saved.arguments, saved.world, saved.agent, now, saved.evaluations)
        return loaded

    @property
    def mind(self) -> training.Mind:
        return self.now.mind

    @property
    def history(self) -> History:
        """Returns, lengths and exploration of all episodes so far."""
        return self.now.history

    @property
    def n_steps(self) -> int:
        return int(self.mind.n_steps)

    @property
    def n_episodes(self) -> int:
        return int(self.mind.n_episodes)

    def _rows(self, observation: Any) -> tuple[np.ndarray, bool]:
        """Observations along a leading axis, and whether there was but one."""
        try:
            return self.world.encode(observation)
        except (TypeError, ValueError) as error:
            raise ValueError(f"observation: cannot use {observation!r}: {error}") from error

    def _judged(self, judge: evaluation.Judge, n_episodes: int) -> list[float]:
        greedy = training.Agent(self.agent.learning, Greedy())
        return judge(greedy, self.mind.members.params, self.seed, n_episodes)


def _next(now: int, every: int | None) -> int:
    """The next multiple of `every`."""
    return NEVER if every is None else (now // every + 1) * every


@jit
def _new_mind(key, agent, observation):
    return training.new_mind(key, agent, observation)


@jit
def _members(agent, params, rows):
    """Every member's values, (members, rows, actions)."""
    return jax.vmap(agent.learning.network.apply, in_axes=(0, None))(params, rows)


@jit
def _probabilities(agent, params, rows, n_episodes):
    q = _members(agent, params, rows)
    return jax.vmap(partial(agent.exploration.probabilities, number=n_episodes), in_axes=1)(q)


@jit
def _finite(params):
    """For each member, whether all of its weights are."""
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(1) for leaf in jax.tree.leaves(params)]
    return jnp.stack(leaves).all(0)
