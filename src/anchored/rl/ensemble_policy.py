"""The part of an agent that does not train: actions, Q-values, probabilities, parameters and spaces."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from anchored import checks
from anchored.rl import evaluation, policy, training
from anchored.rl.environments.environment import Environment
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter, Observation
from anchored.rl.environments.spaces import gymnasium_spaces
from anchored.rl.history import History
from anchored.rl.run import Run
from anchored.rl.training import TrainState

if TYPE_CHECKING:
    import gymnasium


class EnsemblePolicy:
    """The part of `QEnsembleAgent` that does not train.

    Parameters
    ----------
    run
        Everything that the agent consists of.
    """

    def __init__(self, run: Run):
        self.arguments, self.runner, self.config, self.run_state, self.evaluations = run
        self.seed = run.arguments.seed
        self._generator = np.random.default_rng(self.seed)  # used by `predict` only

    def predict(
        self, observation: Observation, state: object = None, episode_start: object = None, deterministic: bool = False
    ) -> tuple[int | np.ndarray, object]:
        """Choose an action for one observation, or one action for each of several.

        Parameters
        ----------
        observation
            An observation as the environment returns it, or several: an array with a leading axis, or a list.
        state, episode_start
            Not used; policies of Stable-Baselines3 that have a recurrent state need them.
        deterministic
            Whether to take the action with the highest mean Q-value. Otherwise the action is drawn from
            `action_probabilities`, independently at each call, even for exploration by "member" and "index".

        Returns
        -------
        tuple
            The action, an int, or an array (observations,) of actions, as the environment's `step` takes them; and
            `state`, unchanged.
        """
        rows, is_single = self._encode(observation)
        if deterministic:
            indices = self._member_values(rows).mean(0).argmax(1)
        else:
            cumulative = np.cumsum(self._probabilities(rows), 1)
            sampled = (self._generator.random((len(rows), 1)) > cumulative).sum(1)
            indices = sampled.clip(max=cumulative.shape[1] - 1)
        actions = self.runner.decode(indices)
        return (int(actions[0]) if is_single else actions), state

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
        """Return every member's Q-values for encoded observations `rows`, (members, rows, actions).

        The averaged parameters are used, if there are any.
        """
        return np.asarray(policy.q_values(self.config.learning.network, self.train_state.members.policy, rows))

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

    def _evaluate(self, evaluator: evaluation.Evaluator, n_episodes: int) -> list[float]:
        """Return the returns of `n_episodes` greedy episodes."""
        return evaluator(self.config.greedy, self.train_state.members, self.seed, n_episodes)

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
    def n_envs(self) -> int:
        """Number of environments that step at once."""
        return self.config.learning.n_envs

    @property
    def n_episodes(self) -> int:
        """Number of finished episodes so far."""
        return int(self.train_state.n_episodes)

    @property
    def observation_space(self) -> "gymnasium.Space":
        """The Gymnasium space of the environment's observations."""
        return gymnasium_spaces(self.runner.spaces, self.runner.observation)[0]

    @property
    def action_space(self) -> "gymnasium.Space":
        """The Gymnasium space of the environment's actions."""
        return gymnasium_spaces(self.runner.spaces, self.runner.observation)[1]

    def get_env(self) -> Any:
        """Return the environment that the agent learns in.

        Callbacks of Stable-Baselines3 read its `num_envs`, which is set to 1 if the environment has no such attribute.
        """
        spaces = self.runner.spaces
        env: Any = spaces.env if isinstance(spaces, GymnasiumAdapter) else spaces
        if not hasattr(env, "num_envs"):
            with suppress(AttributeError):  # raised by a frozen dataclass
                env.num_envs = 1
        return env

    def get_vec_normalize_env(self) -> None:
        """Return None, as there is no `VecNormalize`; callbacks of Stable-Baselines3 call this method."""

    def get_parameters(self) -> dict[str, Any]:
        """Return the parameters of all members as NumPy arrays, with a leading axis of members.

        Returns
        -------
        dict
            The parameters of the "members", their "anchors", the parameters of their target networks, "targets", and
            the averaged parameters that the greedy policy follows, "averages". The last two may be None.
        """
        members = self.train_state.members
        named = {"members": members.params, "anchors": members.anchors, "targets": members.targets}
        named["averages"] = members.averages
        return {name: jax.tree.map(np.asarray, params) for name, params in named.items()}

    def _encode(self, observation: Observation) -> tuple[np.ndarray, bool]:
        """Return one or several observations as encoded rows, (observations, ...), and whether there was only one."""
        try:
            return self.runner.encode(observation)
        except (TypeError, ValueError) as error:
            raise ValueError(f"observation: cannot use {observation!r}: {error}") from error
