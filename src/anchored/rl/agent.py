"""QEnsembleAgent: an anchored ensemble of Q-networks in any environment with finitely many actions."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks
from anchored.inference.compilation import jit
from anchored.inference.failures import DivergenceError
from anchored.inference.solvers.optimizers import OptimizerFactory
from anchored.model.networks import Network
from anchored.rl import evaluation, persistence, training
from anchored.rl.arguments import AgentArguments, build_config
from anchored.rl.config import AgentConfig
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import Observation
from anchored.rl.exploration import Exploration
from anchored.rl.history import History
from anchored.rl.persistence import Path, Run, RunState
from anchored.rl.progress import ProgressBar
from anchored.rl.runners import make_runner
from anchored.rl.training import TrainState
from anchored.types import Array, Key, Params

if TYPE_CHECKING:
    import gymnasium

NEVER = 2**31 - 1
STEPS_PER_CHECK = 1000  # of the members, and between updates of the progress bar


class QEnsembleAgent:
    """Q-learning with an anchored ensemble, whose spread directs exploration to what is uncertain.

    Parameters
    ----------
    env
        A Gymnasium environment with a Discrete action space, the name of one, or one of `anchored.rl.environments`,
        which is compiled together with the agent and many times faster.
    n_estimators
        Number of members of the ensemble.
    exploration
        "thompson" (Algorithm 1, which decides anew at every step), "member" (one member followed for an episode) or
        "index" (one draw from the normal fitted to the members, followed for an episode), which suit rewards that
        need many right steps in a row; "epsilon", "greedy", or an object of `anchored.rl.exploration`.
    hidden_layer_sizes
        Of each network.
    activation
        Of its hidden units.
    network
        A network of any kind that the estimators accept, in place of the two above.
    prior_scale
        Standard deviation of Q-values under the prior, in units of reward × `reward_scale`, or one scale for each
        layer. Exploration needs it to be of the order of the values that are to be learnt.
    noise_variance
        Of the targets; the pull to a member's anchor is noise variance / prior variance. 0: no pull.
    gamma
        Discount factor.
    learning_rate
        Of the optimiser.
    optimizer
        Its name in optax, or a function from the learning rate to an optax transformation.
    batch_size
        Transitions in one gradient step.
    buffer_size
        Capacity of the replay buffer, in transitions.
    learning_starts
        Steps before the first update (episodes if `train_freq` is "episode"); None: 500 (or 10).
    train_freq
        Steps between updates, or "episode" for one at the end of each.
    gradient_steps
        Gradient steps in one update.
    target_update_interval
        Gradient steps between copies to the target networks; None: no target networks.
    double_q
        Whether to use double Q-learning.
    n_step
        Number of rewards summed before the value of the next state is used.
    replay
        "uniform", or "uncertainty": transitions are replayed in proportion to the members' disagreement.
    reward_scale
        Rewards are multiplied by it before they are learnt.
    rescale_observations
        Whether to bring observations to [−1, 1] where the environment declares bounds.
    seed
        Random seed for everything that is drawn, below 2³¹; None draws one.
    """

    def __init__(
        self,
        env: "Environment | gymnasium.Env | str",
        n_estimators: int = 10,
        exploration: str | Exploration = "thompson",
        *,
        hidden_layer_sizes: Sequence[int] = (64, 64),
        activation: str = "relu",
        network: object | None = None,
        prior_scale: float | Sequence[float] = 3.0,
        noise_variance: float = 0.01,
        gamma: float = 0.99,
        learning_rate: float = 1e-3,
        optimizer: str | OptimizerFactory = "adam",
        batch_size: int = 128,
        buffer_size: int = 50_000,
        learning_starts: int | None = None,
        train_freq: int | Literal["episode"] = 4,
        gradient_steps: int = 2,
        target_update_interval: int | None = 100,
        double_q: bool = True,
        n_step: int = 3,
        replay: str = "uniform",
        reward_scale: float = 1.0,
        rescale_observations: bool = True,
        seed: int | None = None,
    ):
        given = {name: value for name, value in locals().items() if name not in ("self", "env")}
        if seed is None:
            given["seed"] = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
        arguments = AgentArguments(**given)
        arguments.check()
        arguments = replace(arguments, seed=int(arguments.seed))
        runner = make_runner(env, arguments.seed)
        config = build_config(arguments, runner.spaces, runner.observation)
        train_state = _init_train_state(jax.random.key(arguments.seed), config.greedy, runner.observation)
        self._set(Run(arguments, runner, config, RunState(train_state, runner.start, History()), []))

    def _set(self, run: Run) -> None:
        self.arguments, self.runner, self.config, self.run_state, self.evaluations = run
        self.seed = run.arguments.seed
        self._random = np.random.default_rng(self.seed)  # of `predict` alone

    def learn(
        self,
        total_timesteps: int | None = None,
        total_episodes: int | None = None,
        progress_bar: bool = False,
        checkpoint: Path | None = None,
        checkpoint_every: int = 10_000,
        eval_env: "Environment | gymnasium.Env | str | None" = None,
        eval_every: int | None = None,
        n_eval_episodes: int = 10,
    ) -> Self:
        """Train for more steps or episodes, and return the agent itself.

        Parameters
        ----------
        total_timesteps, total_episodes
            How many more; training ends with whichever is reached first, after a whole rollout of `train_freq`.
        progress_bar
            Whether to show one.
        checkpoint
            A file that the agent is saved to every `checkpoint_every` steps and at the end: a run that is killed loses
            no more than the steps since.
        checkpoint_every
            In steps.
        eval_env
            The environment for evaluation; None for another one like the agent's own.
        eval_every
            Steps between evaluations: `n_eval_episodes` greedy episodes, whose returns are added to `evaluations`.
        n_eval_episodes
            Episodes in one evaluation.
        """
        self._check_learn(total_timesteps, total_episodes, checkpoint_every, eval_env, eval_every, n_eval_episodes)
        if checkpoint is not None:
            persistence.check(self.arguments, checkpoint)
        until_steps = NEVER if total_timesteps is None else self.n_steps + total_timesteps
        until_episodes = NEVER if total_episodes is None else self.n_episodes + total_episodes
        evaluating = nullcontext() if eval_every is None else evaluation.evaluator(eval_env, self.runner)
        with evaluating as evaluator, ProgressBar(progress_bar, total_timesteps, total_episodes) as progress:
            while self.n_steps < until_steps and self.n_episodes < until_episodes:
                save_at = _next(self.n_steps, checkpoint_every if checkpoint is not None else None)
                evaluate_at = _next(self.n_steps, eval_every)
                self._train(min(until_steps, save_at, evaluate_at), until_episodes, progress)
                if evaluator is not None and self.n_steps >= evaluate_at:
                    self.evaluations.append((self.n_steps, self._evaluate(evaluator, n_eval_episodes)))
                if checkpoint is not None and self.n_steps >= save_at:
                    self.save(checkpoint)
        if checkpoint is not None:
            self.save(checkpoint)
        return self

    def _check_learn(
        self,
        total_timesteps: int | None,
        total_episodes: int | None,
        checkpoint_every: int,
        eval_env: object,
        eval_every: int | None,
        n_eval_episodes: int,
    ) -> None:
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
            raise ValueError("eval_every must be given together with eval_env: how often is the agent evaluated?")

    def _train(self, until_steps: int, until_episodes: int, progress: ProgressBar) -> None:
        before = self.n_steps, self.n_episodes
        train_state, env_state, _ = self.run_state
        rollouts = self.runner.rollouts(self.config, train_state, env_state, until_steps, until_episodes)  # type: ignore[arg-type]
        for train_state, env_state, steps in rollouts:
            self.run_state = RunState(train_state, env_state, self.history.record(*steps))
            if self.n_steps - before[0] >= STEPS_PER_CHECK:
                self._check(before, progress)
                before = self.n_steps, self.n_episodes
        self._check(before, progress)

    def _check(self, before: tuple[int, int], progress: ProgressBar) -> None:
        """Show the progress since `before`, and raise if a member has diverged."""
        progress.advance(self.n_steps - before[0], self.n_episodes - before[1], self.history.returns)
        diverged = np.flatnonzero(~np.asarray(_is_finite(self.train_state.members.params)))
        if len(diverged):
            raise DivergenceError(
                f"members {diverged.tolist()} no longer have finite weights after {self.n_steps} steps. Use a smaller "
                "learning_rate, a smaller reward_scale, or target networks (target_update_interval)."
            )

    def predict(self, observation: Observation, deterministic: bool = False) -> tuple[int | np.ndarray, None]:
        """An action for one observation, or an array of actions for several.

        Observations and actions are the environment's own. If `deterministic`, the action is the one with the highest
        mean Q-value; otherwise it is drawn from `action_probabilities` (so that "member" and "index" choose anew at
        each call). The second value is always None, as in Stable-Baselines3 for policies without memory.
        """
        rows, single = self._rows(observation)
        if deterministic:
            indices = self._member_values(rows).mean(0).argmax(1)
        else:
            cumulative = np.cumsum(self._probabilities(rows), 1)
            drawn = (self._random.random((len(rows), 1)) > cumulative).sum(1)
            indices = drawn.clip(max=cumulative.shape[1] - 1)
        actions = self.runner.decode(indices)
        return (int(actions[0]) if single else actions), None

    def q_values(self, observation: Observation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Mean and standard deviation over members of each action's Q-value, and every member's, in units of reward.

        Shapes (actions,), (actions,) and (members, actions) for one observation; several add a leading axis.
        """
        rows, single = self._rows(observation)
        q = np.moveaxis(self._member_values(rows) / self.config.reward_scale, 0, 1)  # (rows, members, actions)
        std = q.std(1, ddof=1) if q.shape[1] > 1 else np.zeros_like(q[:, 0])
        return (q[0].mean(0), std[0], q[0]) if single else (q.mean(1), std, q)

    def action_probabilities(self, observation: Observation) -> np.ndarray:
        """The probability with which exploration takes each action in the current episode.

        Shape (actions,) for one observation, (observations, actions) for several.
        """
        rows, single = self._rows(observation)
        probabilities = self._probabilities(rows)
        return probabilities[0] if single else probabilities

    def _member_values(self, rows: np.ndarray) -> np.ndarray:
        return np.asarray(_member_values(self.config.learning.network, self.train_state.members.params, rows))

    def _probabilities(self, rows: np.ndarray) -> np.ndarray:
        network, params = self.config.learning.network, self.train_state.members.params
        probabilities = _action_probabilities(network, self.config.exploration, params, rows, self.n_episodes)
        return np.asarray(probabilities)

    def evaluate(self, n_episodes: int = 100, env: "Environment | gymnasium.Env | str | None" = None) -> np.ndarray:
        """The returns (n_episodes,) of greedy episodes in `env`, by default another environment like the agent's."""
        checks.whole("n_episodes", n_episodes)
        with evaluation.evaluator(env, self.runner) as evaluator:
            return np.array(self._evaluate(evaluator, n_episodes))

    def save(self, path: Path) -> None:
        """Write the agent to the file `path`, from which training continues as if it had never stopped.

        Only the random numbers of `predict` start again.
        """
        persistence.save(Run(self.arguments, self.runner, self.config, self.run_state, self.evaluations), path)

    @classmethod
    def load(
        cls, path: Path, env: "Environment | gymnasium.Env | str | None" = None, network: object | None = None
    ) -> Self:
        """The agent that `save` wrote to the file `path`.

        Environments and networks that are code of yours are passed again as `env` and `network`. So is a Gymnasium
        environment with wrappers of its own or with arguments other than numbers and words. Any other is made from its
        id, which must be registered already: a file names no code to import or call. It is brought to the saved state
        by playing the episode's actions again.
        """
        loaded = cls.__new__(cls)
        loaded._set(persistence.load(path, env, network))
        return loaded

    @property
    def train_state(self) -> TrainState:
        """Members, replay buffer, optimiser and counters."""
        return self.run_state.train_state

    @property
    def history(self) -> History:
        """Returns, lengths and explored steps of all episodes so far."""
        return self.run_state.history

    @property
    def n_steps(self) -> int:
        """Steps so far."""
        return int(self.train_state.n_steps)

    @property
    def n_episodes(self) -> int:
        """Finished episodes so far."""
        return int(self.train_state.n_episodes)

    def _rows(self, observation: Observation) -> tuple[np.ndarray, bool]:
        """Observations along a leading axis, and whether there was only one."""
        try:
            return self.runner.encode(observation)
        except (TypeError, ValueError) as error:
            raise ValueError(f"observation: cannot use {observation!r}: {error}") from error

    def _evaluate(self, evaluator: evaluation.Evaluator, n_episodes: int) -> list[float]:
        return evaluator(self.config.greedy, self.train_state.members.params, self.seed, n_episodes)


def _next(step: int, every: int | None) -> int:
    """The next multiple of `every` after `step`."""
    return NEVER if every is None else (step // every + 1) * every


@jit
def _init_train_state(key: Key, config: AgentConfig, observation: np.ndarray) -> TrainState:
    return training.init_train_state(key, config, observation)


@partial(jit, static_argnums=(0,))
def _member_values(network: Network, params: Params, rows: np.ndarray) -> Array:
    """Every member's Q-values, (members, rows, actions)."""
    return jax.vmap(network.apply, in_axes=(0, None))(params, rows)


@partial(jit, static_argnums=(0,))
def _action_probabilities(
    network: Network, exploration: Exploration, params: Params, rows: np.ndarray, episode: int
) -> Array:
    q = _member_values(network, params, rows)
    return jax.vmap(partial(exploration.probabilities, number=episode), in_axes=1)(q)


@jit
def _is_finite(params: Params) -> Array:
    """Whether all parameters of each member are finite, (members,)."""
    leaves = [jnp.isfinite(leaf).reshape(leaf.shape[0], -1).all(1) for leaf in jax.tree.leaves(params)]
    return jnp.stack(leaves).all(0)
