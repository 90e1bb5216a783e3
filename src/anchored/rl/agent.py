"""QEnsembleAgent: an anchored ensemble of Q-networks in any environment with finitely many actions."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from anchored import checks
from anchored.inference.failures import DivergenceError
from anchored.inference.solvers.optimizers import OptimizerFactory
from anchored.rl import evaluation, paper_agent, persistence, policy
from anchored.rl.arguments import AgentArguments, check_learn
from anchored.rl.callbacks import AnyCallback, Callbacks
from anchored.rl.ensemble_policy import EnsemblePolicy
from anchored.rl.environments.environment import Environment
from anchored.rl.evaluation import check_same_spaces
from anchored.rl.exploration import Exploration
from anchored.rl.logger import Logger, NoLogger, log
from anchored.rl.persistence import Path
from anchored.rl.progress import ProgressBar
from anchored.rl.replay import cut_episode
from anchored.rl.run import Run, RunState, new_run
from anchored.rl.runners import make_runner
from anchored.rl.schedules import LinearSchedule

if TYPE_CHECKING:
    import gymnasium

NEVER = 2**31 - 1  # more steps or episodes than a run can have
STEPS_PER_CHECK = 1000  # steps between checks for divergence, which also update the progress bar


class QEnsembleAgent(EnsemblePolicy):
    """Q-learning with an anchored ensemble: the members' disagreement about Q-values directs exploration.

    Parameters
    ----------
    env
        A Gymnasium environment with a Discrete action space, its name, several such environments at once from
        `gymnasium.make_vec`, a dm_env environment, or an environment of `anchored.rl.environments`. The latter is
        compiled together with the agent, which is many times faster.
    n_estimators
        Number of members of the ensemble.
    exploration
        "thompson" (Algorithm 1 of the paper: a new draw at every step), "paired" (the same, with actions compared
        within each member), "member" (follow one random member for a whole
        episode), "index" (follow one draw from the normal distribution fitted to the members for a whole episode),
        "epsilon", "greedy", or an object of `anchored.rl.exploration`. "member" and "index" suit tasks whose reward
        needs many correct actions in a row.
    hidden_layer_sizes
        Number of units in each hidden layer of a member. For images, convolutions come before these layers.
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
        Learning rate of the optimiser, or a `LinearSchedule` in environment steps.
    optimizer
        Name of an optax optimiser, or a function from the learning rate to an optax transformation.
    batch_size
        Number of transitions in one gradient step.
    buffer_size
        Capacity of the replay buffer, in transitions.
    learning_starts
        Number of steps before the first update (episodes if `train_freq` is "episode"); None means 500 (or 10).
    train_freq
        Number of steps between updates, or "episode" for one update at the end of each episode. With several
        environments at once, each of them takes this number of steps, so that there are fewer updates for each
        transition.
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
        "uniform"; "uncertainty": the probability of replaying a transition is proportional to the members'
        disagreement; or "rare", for integer observations: it is inversely proportional to the number of stored
        transitions with the same observation and action, so that each of these pairs is replayed equally often.
    averaged_share
        Each member's parameters are averaged over this latest share of the gradient steps so far; None for no average.
        `q_values`, `predict` and `evaluate` use the averages, exploration does not. Without averages, the greedy policy
        fluctuates with the last batches.
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
        learning_rate: float | LinearSchedule = 1e-3,
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
        averaged_share: float | None = 0.1,
        reward_scale: float | Literal["auto"] = "auto",
        rescale_observations: bool = True,
        seed: int | None = None,
    ):
        values = {name: value for name, value in locals().items() if name not in ("self", "env", "__class__")}
        self._set(new_run(env, AgentArguments(**{**values, "preset": None})))

    @classmethod
    def paper(cls, env: "Environment | gymnasium.Env | str", seed: int | None = None) -> Self:
        """Return the agent of figure 4 of the paper, with the settings of the author's script.

        It has ten networks of 1,000 tanh units, Thompson sampling, and one step of SGD at the end of each episode.

        Parameters
        ----------
        env
            The environment; the paper's is CartPole with at most 200 steps in an episode, `CartPole(200)`.
        seed
            Random seed, as in the constructor.
        """
        agent = cls.__new__(cls)
        arguments = AgentArguments(**paper_agent.ARGUMENTS, seed=seed, preset="paper")  # type: ignore[arg-type]
        agent._set(new_run(env, arguments))
        return agent

    def _set(self, run: Run) -> None:
        """Store the parts of `run`, and what is not saved: the logger, and where `num_timesteps` starts."""
        super().__init__(run)
        self.logger: Logger = NoLogger()
        self._first_timestep = 0

    @property
    def num_timesteps(self) -> int:
        """Number of steps since the last call of `learn` with `reset_num_timesteps`; `n_steps` counts all."""
        return self.n_steps - self._first_timestep

    def set_logger(self, logger: Logger) -> None:
        """Log to `logger` during `learn`: a `FileLogger`, or one of Stable-Baselines3."""
        self.logger = logger

    def dump_logs(self) -> None:
        """Write a row of the log now, if an episode has ended; `learn` does so every `log_interval` episodes."""
        if self.n_episodes > 0:
            log(self.logger, self, self.num_timesteps)

    def set_env(self, env: "Environment | gymnasium.Env | str") -> None:
        """Continue in another environment `env` with the same spaces; the current episode is discarded."""
        runner = make_runner(env, self.seed)
        check_same_spaces(runner.spaces, self.runner.spaces)
        self.run_state = RunState(
            self.train_state._replace(buffer=cut_episode(self.train_state.buffer, self.n_envs)),
            runner.start_of(self.n_episodes),
            self.history.without_current(self.n_envs),
        )
        self.runner = runner

    def learn(
        self,
        total_timesteps: int | None = None,
        callback: AnyCallback | None = None,
        log_interval: int = 4,
        reset_num_timesteps: bool = True,
        progress_bar: bool = False,
        *,
        total_episodes: int | None = None,
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
        callback
            Function of (locals, globals) that returns False to end the training, callback of Stable-Baselines3, or a
            list of these. They are called once for each step, after the rollout that it belongs to; in compiled
            environments, after about 1,000 steps. `locals` has "self", "rewards", "dones" and "infos".
        log_interval
            Number of episodes between rows of the log, if there is one: see `set_logger`.
        reset_num_timesteps
            Whether `num_timesteps` counts from the start of this call. Nothing else depends on it.
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
        checks.whole("log_interval", log_interval)
        callbacks = Callbacks(callback, self)
        if reset_num_timesteps:
            self._first_timestep = self.n_steps
        if checkpoint is not None:
            persistence.check(self.arguments, checkpoint)
        until_steps = NEVER if total_timesteps is None else self.n_steps + total_timesteps
        until_episodes = NEVER if total_episodes is None else self.n_episodes + total_episodes
        evaluation_context = nullcontext() if eval_every is None else evaluation.evaluator(eval_env, self.runner)
        continues = True
        callbacks.start()
        with evaluation_context as evaluator, ProgressBar(progress_bar, total_timesteps, total_episodes) as progress:
            while continues and self.n_steps < until_steps and self.n_episodes < until_episodes:
                save_at = _next_multiple(self.n_steps, checkpoint_every if checkpoint is not None else None)
                evaluate_at = _next_multiple(self.n_steps, eval_every)
                until = min(until_steps, save_at, evaluate_at)
                continues = self._train(until, until_episodes, callbacks, log_interval, progress)
                if evaluator is not None and self.n_steps >= evaluate_at:
                    self.evaluations.append((self.n_steps, self._evaluate(evaluator, n_eval_episodes)))
                if checkpoint is not None and self.n_steps >= save_at:
                    self.save(checkpoint)
        if checkpoint is not None:
            self.save(checkpoint)
        callbacks.end()
        return self

    def _train(
        self, until_steps: int, until_episodes: int, callbacks: Callbacks, log_interval: int, progress: ProgressBar
    ) -> bool:
        """Run rollouts until the run has `until_steps` steps or `until_episodes` episodes in total.

        Returns False if one of the `callbacks` ended the training before.
        """
        continues = True
        before = self.n_steps, self.n_episodes
        train_state, env_state, _ = self.run_state
        rollouts = self.runner.rollouts(self.config, train_state, env_state, until_steps, until_episodes)  # type: ignore[arg-type]
        for train_state, env_state, steps in rollouts:
            self.run_state = RunState(train_state, env_state, self.history.record(*steps))
            if not isinstance(self.logger, NoLogger) and _passes_multiple(
                self.n_episodes, int(steps.done.sum()), log_interval
            ):
                self.dump_logs()
            continues = callbacks.continues(steps)
            if not continues:
                break
            if self.n_steps - before[0] >= STEPS_PER_CHECK:
                self._report(before, progress)
                before = self.n_steps, self.n_episodes
        self._report(before, progress)
        return continues

    def _report(self, before: tuple[int, int], progress: ProgressBar) -> None:
        """Show the progress since `before`, a number of steps and of episodes, and raise if a member has diverged."""
        progress.advance(self.n_steps - before[0], self.n_episodes - before[1], self.history.returns)
        diverged = np.flatnonzero(~np.asarray(policy.is_finite(self.train_state.members.params)))
        if len(diverged):
            raise DivergenceError(
                f"members {diverged.tolist()} have weights that are not finite after {self.n_steps} steps. Use a "
                "smaller learning_rate, a smaller reward_scale, or target networks (target_update_interval)."
            )

    def save(self, path: Path) -> None:
        """Save the agent to the file `path`, with everything needed to resume training exactly.

        Only the random number generator of `predict` is not stored: it starts again from the seed.
        """
        persistence.save(self._run, path)

    @property
    def _run(self) -> Run:
        """All parts of the agent."""
        return Run(self.arguments, self.runner, self.config, self.run_state, self.evaluations)

    @classmethod
    def load(
        cls,
        path: Path,
        env: "Environment | gymnasium.Env | str | None" = None,
        network: object | None = None,
        **changed: Any,
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
        changed
            New values of arguments of the constructor, such as `learning_rate=1e-4`, instead of the stored values. Only
            arguments that the stored arrays do not depend on can be changed; they are listed in
            `anchored.rl.arguments.CHANGEABLE`.

        Returns
        -------
        QEnsembleAgent
            The agent, ready to continue training.
        """
        loaded = cls.__new__(cls)
        loaded._set(persistence.load(path, env, network, changed))
        return loaded

    def __reduce__(self) -> tuple:
        return _unpickle, (type(self), *persistence.to_bytes(self._run))

    def __repr__(self) -> str:
        shown = {"n_estimators": self.arguments.n_estimators, "exploration": self.arguments.exploration}
        values = ", ".join(f"{name}={value!r}" for name, value in {**shown, "seed": self.seed}.items())
        trained = f"{self.n_steps:,} steps, {self.n_episodes:,} episodes"
        return f"<{type(self).__name__}({self.runner.name}, {values}), {trained}>"


def _unpickle(cls: type[QEnsembleAgent], content: bytes, env: Any, network: object | None) -> QEnsembleAgent:
    """Return the agent that `__reduce__` turned into the content of a file, an environment and a network."""
    agent = cls.__new__(cls)
    agent._set(persistence.from_bytes(content, env, network))
    return agent


def _passes_multiple(count: int, increase: int, every: int) -> bool:
    """Return whether the last `increase` of `count` reached a multiple of `every`."""
    return count // every > (count - increase) // every


def _next_multiple(step: int, every: int | None) -> int:
    """Return the smallest multiple of `every` that is larger than `step`; NEVER if `every` is None."""
    return NEVER if every is None else (step // every + 1) * every
