"""QEnsembleAgent: an anchored ensemble of Q-networks in any environment with finitely many actions."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, Self

import jax
import numpy as np

from anchored import checks
from anchored.inference.compilation import jit
from anchored.inference.failures import DivergenceError
from anchored.inference.solvers.optimizers import OptimizerFactory
from anchored.rl import evaluation, persistence, policy, training
from anchored.rl.arguments import AgentArguments, build_config, check_learn
from anchored.rl.config import AgentConfig
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import Observation
from anchored.rl.exploration import Exploration
from anchored.rl.history import History
from anchored.rl.persistence import Path, Run, RunState
from anchored.rl.progress import ProgressBar
from anchored.rl.runners import make_runner
from anchored.rl.training import TrainState
from anchored.types import Key

if TYPE_CHECKING:
    import gymnasium

NEVER = 2**31 - 1  # more steps or episodes than a run can have
STEPS_PER_CHECK = 1000  # steps between checks for divergence, which also update the progress bar


class QEnsembleAgent:
    """Q-learning with an anchored ensemble: the members' disagreement about Q-values directs exploration.

    Parameters
    ----------
    env
        A Gymnasium environment with a Discrete action space, its name, a dm_env environment, or an environment of
        `anchored.rl.environments`. The latter is compiled together with the agent, which is many times faster.
    n_estimators
        Number of members of the ensemble.
    exploration
        "thompson" (Algorithm 1 of the paper: a new draw at every step), "paired" (the same, with actions compared
        within each member), "member" (follow one random member for a whole
        episode), "index" (follow one draw from the normal distribution fitted to the members for a whole episode),
        "epsilon", "greedy", or an object of `anchored.rl.exploration`. "member" and "index" suit tasks whose reward
        needs many correct actions in a row.
    hidden_layer_sizes
        Number of units in each hidden layer of a member.
    activation
        Name of the activation of the hidden units.
    network
        Any network that the estimators accept; it replaces `hidden_layer_sizes` and `activation`.
    prior_scale
        Standard deviation of Q-values under the prior, in units of reward × `reward_scale`, or one scale for each
        layer. For exploration to work it should be of the same order as the Q-values to be learnt.
    noise_variance
        Variance of the noise of the Q-targets. The strength of the penalty on the distance from a member's anchor is
        noise variance / prior variance; 0 means no penalty.
    gamma
        Discount factor of a step.
    learning_rate
        Learning rate of the optimiser.
    optimizer
        Name of an optax optimiser, or a function from the learning rate to an optax transformation.
    batch_size
        Number of transitions in one gradient step.
    buffer_size
        Capacity of the replay buffer, in transitions.
    learning_starts
        Number of steps before the first update (episodes if `train_freq` is "episode"); None means 500 (or 10).
    train_freq
        Number of steps between updates, or "episode" for one update at the end of each episode.
    gradient_steps
        Number of gradient steps in one update.
    target_update_interval
        Number of environment steps between copies of the members to their target networks; None means no target
        networks.
    double_q
        Whether to use double Q-learning.
    n_step
        Number of rewards summed before the value of the next state is used.
    replay
        "uniform", or "uncertainty": the probability of replaying a transition is proportional to the members'
        disagreement.
    reward_scale
        Factor of rewards when they are learnt from, which brings Q-values to the order of `prior_scale`. "auto" scales
        rewards down if the mean absolute reward so far, earned at every step, would give a Q-value beyond 10, and
        never scales them up.
    rescale_observations
        Whether to rescale observations to [−1, 1], for entries whose bounds the environment declares.
    seed
        Random seed for everything that is drawn, below 2³¹; None chooses one at random.
    """

    def __init__(
        self,
        env: "Environment | gymnasium.Env | str",
        n_estimators: int = 10,
        exploration: str | Exploration = "member",
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
        target_update_interval: int | None = 8,
        double_q: bool = True,
        n_step: int = 1,
        replay: str = "uniform",
        reward_scale: float | Literal["auto"] = "auto",
        rescale_observations: bool = True,
        seed: int | None = None,
    ):
        values = {name: value for name, value in locals().items() if name not in ("self", "env")}
        if seed is None:
            values["seed"] = int(np.random.SeedSequence().generate_state(1)[0] >> 1)
        arguments = AgentArguments(**values)
        arguments.check()
        arguments = replace(arguments, seed=int(arguments.seed))
        runner = make_runner(env, arguments.seed)
        config = build_config(arguments, runner.spaces, runner.observation)
        train_state = _init_train_state(jax.random.key(arguments.seed), config.greedy, runner.observation)
        self._set(Run(arguments, runner, config, RunState(train_state, runner.start, History()), []))

    def _set(self, run: Run) -> None:
        """Store the parts of `run` as attributes."""
        self.arguments, self.runner, self.config, self.run_state, self.evaluations = run
        self.seed = run.arguments.seed
        self._generator = np.random.default_rng(self.seed)  # used by `predict` only

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
        """Train for a number of further steps or episodes.

        Parameters
        ----------
        total_timesteps, total_episodes
            Number of further steps and episodes. Training ends when either is reached, after a whole rollout (see
            `train_freq`). At least one of the two must be given.
        progress_bar
            Whether to show a progress bar.
        checkpoint
            File to save the agent to, every `checkpoint_every` steps and at the end. A run that is killed loses only
            the steps since the last checkpoint.
        checkpoint_every
            Number of steps between checkpoints.
        eval_env
            Environment for evaluation; None makes another environment like the agent's.
        eval_every
            Number of steps between evaluations; None means no evaluation. An evaluation plays `n_eval_episodes` greedy
            episodes and appends (number of steps, returns) to `evaluations`.
        n_eval_episodes
            Number of episodes in one evaluation.

        Returns
        -------
        QEnsembleAgent
            The agent itself.
        """
        check_learn(total_timesteps, total_episodes, checkpoint_every, eval_env, eval_every, n_eval_episodes)
        if checkpoint is not None:
            persistence.check(self.arguments, checkpoint)
        until_steps = NEVER if total_timesteps is None else self.n_steps + total_timesteps
        until_episodes = NEVER if total_episodes is None else self.n_episodes + total_episodes
        evaluation_context = nullcontext() if eval_every is None else evaluation.evaluator(eval_env, self.runner)
        with evaluation_context as evaluator, ProgressBar(progress_bar, total_timesteps, total_episodes) as progress:
            while self.n_steps < until_steps and self.n_episodes < until_episodes:
                save_at = _next_multiple(self.n_steps, checkpoint_every if checkpoint is not None else None)
                evaluate_at = _next_multiple(self.n_steps, eval_every)
                self._train(min(until_steps, save_at, evaluate_at), until_episodes, progress)
                if evaluator is not None and self.n_steps >= evaluate_at:
                    self.evaluations.append((self.n_steps, self._evaluate(evaluator, n_eval_episodes)))
                if checkpoint is not None and self.n_steps >= save_at:
                    self.save(checkpoint)
        if checkpoint is not None:
            self.save(checkpoint)
        return self

    def _train(self, until_steps: int, until_episodes: int, progress: ProgressBar) -> None:
        """Run rollouts until the run has `until_steps` steps or `until_episodes` episodes in total."""
        before = self.n_steps, self.n_episodes
        train_state, env_state, _ = self.run_state
        rollouts = self.runner.rollouts(self.config, train_state, env_state, until_steps, until_episodes)  # type: ignore[arg-type]
        for train_state, env_state, steps in rollouts:
            self.run_state = RunState(train_state, env_state, self.history.record(*steps))
            if self.n_steps - before[0] >= STEPS_PER_CHECK:
                self._report(before, progress)
                before = self.n_steps, self.n_episodes
        self._report(before, progress)

    def _report(self, before: tuple[int, int], progress: ProgressBar) -> None:
        """Show the progress since `before`, a number of steps and of episodes, and raise if a member has diverged."""
        progress.advance(self.n_steps - before[0], self.n_episodes - before[1], self.history.returns)
        diverged = np.flatnonzero(~np.asarray(policy.is_finite(self.train_state.members.params)))
        if len(diverged):
            raise DivergenceError(
                f"members {diverged.tolist()} have weights that are not finite after {self.n_steps} steps. Use a "
                "smaller learning_rate, a smaller reward_scale, or target networks (target_update_interval)."
            )

    def predict(self, observation: Observation, deterministic: bool = False) -> tuple[int | np.ndarray, None]:
        """Choose an action for one observation, or one action for each of several.

        Parameters
        ----------
        observation
            An observation as the environment returns it, or several: an array with a leading axis, or a list.
        deterministic
            Whether to take the action with the highest mean Q-value. Otherwise the action is drawn from
            `action_probabilities`, independently at each call, even for exploration by "member" and "index".

        Returns
        -------
        tuple
            The action, an int, or an array (observations,) of actions, as the environment's `step` takes them; and
            None, as from a Stable-Baselines3 policy without recurrent state.
        """
        rows, is_single = self._encode(observation)
        if deterministic:
            indices = self._member_values(rows).mean(0).argmax(1)
        else:
            cumulative = np.cumsum(self._probabilities(rows), 1)
            sampled = (self._generator.random((len(rows), 1)) > cumulative).sum(1)
            indices = sampled.clip(max=cumulative.shape[1] - 1)
        actions = self.runner.decode(indices)
        return (int(actions[0]) if is_single else actions), None

    def q_values(self, observation: Observation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the Q-values of all actions for `observation`, in units of reward.

        Returns
        -------
        tuple
            Mean over members (actions,), standard deviation over members (actions,), and the Q-values of every member
            (members, actions). Several observations, as in `predict`, add a leading axis to each.
        """
        rows, is_single = self._encode(observation)
        scale = np.asarray(training.reward_scale(self.config, self.train_state.mean_reward))
        q = np.moveaxis(self._member_values(rows) / scale, 0, 1)  # (rows, members, actions)
        std = q.std(1, ddof=1) if q.shape[1] > 1 else np.zeros_like(q[:, 0])
        return (q[0].mean(0), std[0], q[0]) if is_single else (q.mean(1), std, q)

    def action_probabilities(self, observation: Observation) -> np.ndarray:
        """Return the probability with which exploration takes each action for `observation` in the current episode.

        The shape is (actions,) for one observation, (observations, actions) for several.
        """
        rows, is_single = self._encode(observation)
        probabilities = self._probabilities(rows)
        return probabilities[0] if is_single else probabilities

    def _member_values(self, rows: np.ndarray) -> np.ndarray:
        """Return every member's Q-values for encoded observations `rows`, (members, rows, actions)."""
        return np.asarray(policy.q_values(self.config.learning.network, self.train_state.members.params, rows))

    def _probabilities(self, rows: np.ndarray) -> np.ndarray:
        """Return the probability of each action, (rows, actions), for encoded observations `rows`."""
        network, params = self.config.learning.network, self.train_state.members.params
        probabilities = policy.action_probabilities(network, self.config.exploration, params, rows, self.n_episodes)
        return np.asarray(probabilities)

    def evaluate(self, n_episodes: int = 100, env: "Environment | gymnasium.Env | str | None" = None) -> np.ndarray:
        """Return the returns, (n_episodes,), of `n_episodes` greedy episodes in `env`, without learning.

        If `env` is None, another environment like the agent's is made.
        """
        checks.whole("n_episodes", n_episodes)
        with evaluation.evaluator(env, self.runner) as evaluator:
            return np.array(self._evaluate(evaluator, n_episodes))

    def save(self, path: Path) -> None:
        """Save the agent to the file `path`, with everything needed to resume training exactly.

        Only the random number generator of `predict` is not stored: it starts again from the seed.
        """
        persistence.save(Run(self.arguments, self.runner, self.config, self.run_state, self.evaluations), path)

    @classmethod
    def load(
        cls, path: Path, env: "Environment | gymnasium.Env | str | None" = None, network: object | None = None
    ) -> Self:
        """Load an agent from the file `path` that `save` wrote.

        Parameters
        ----------
        path
            The file.
        env
            The environment. It is required if the agent learnt in an environment class of yours, or in a Gymnasium
            environment with additional wrappers or with arguments other than numbers, strings and lists of these.
            Otherwise None suffices: the environment is made again. A Gymnasium environment is made from its id, which
            must already be registered, since loading imports no module that a file names; its state is restored by
            repeating the actions of the current episode.
        network
            The network, if one was passed to the constructor.

        Returns
        -------
        QEnsembleAgent
            The agent, ready to continue training.
        """
        loaded = cls.__new__(cls)
        loaded._set(persistence.load(path, env, network))
        return loaded

    @property
    def train_state(self) -> TrainState:
        """Members, optimiser state, replay buffer and counters."""
        return self.run_state.train_state

    @property
    def history(self) -> History:
        """Returns, lengths and numbers of exploring steps of all episodes so far."""
        return self.run_state.history

    @property
    def n_steps(self) -> int:
        """Number of steps so far."""
        return int(self.train_state.n_steps)

    @property
    def n_episodes(self) -> int:
        """Number of finished episodes so far."""
        return int(self.train_state.n_episodes)

    def _encode(self, observation: Observation) -> tuple[np.ndarray, bool]:
        """Return one or several observations as encoded rows, (observations, ...), and whether there was only one."""
        try:
            return self.runner.encode(observation)
        except (TypeError, ValueError) as error:
            raise ValueError(f"observation: cannot use {observation!r}: {error}") from error

    def _evaluate(self, evaluator: evaluation.Evaluator, n_episodes: int) -> list[float]:
        """Return the returns of `n_episodes` greedy episodes."""
        return evaluator(self.config.greedy, self.train_state.members, self.seed, n_episodes)


def _next_multiple(step: int, every: int | None) -> int:
    """Return the smallest multiple of `every` that is larger than `step`; NEVER if `every` is None."""
    return NEVER if every is None else (step // every + 1) * every


@jit
def _init_train_state(key: Key, config: AgentConfig, observation: np.ndarray) -> TrainState:
    """Call `training.init_train_state` in a compiled program."""
    return training.init_train_state(key, config, observation)
