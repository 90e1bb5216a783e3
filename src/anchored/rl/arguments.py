"""The arguments of `QEnsembleAgent`: how they are checked, and how the configuration of training follows from them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

import jax
import numpy as np

from anchored import checks
from anchored.errors import ArgumentError
from anchored.inference import compilation
from anchored.inference.solvers.optimizers import OptimizerFactory, check_optimizer
from anchored.model.adapters import as_network
from anchored.model.layered_prior import default_layer_scales
from anchored.model.networks import ACTIVATIONS, Network
from anchored.model.priors import Prior
from anchored.rl import paper_agent
from anchored.rl.config import REPLAYS, AgentConfig, QLearningConfig
from anchored.rl.environments.environment import Spaces
from anchored.rl.environments.gymnasium_adapter import GymnasiumAdapter
from anchored.rl.environments.images import is_image
from anchored.rl.exploration import EXPLORATIONS, Exploration
from anchored.rl.image_network import image_network
from anchored.rl.q_network import QNetwork, Rescaled, anchor_strength, q_prior
from anchored.rl.schedules import LinearSchedule
from anchored.types import Params

MAX_INTEGER = 2**31 - 1  # steps, updates and episodes are counted in 32 bits
MIN_REAL, MAX_REAL = (float(x) for x in (np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max))
MAX_EXPLORATION_PARAMETER = 1e30  # sums and differences of a few such numbers stay finite in single precision
CHANGEABLE = (  # arguments that `QEnsembleAgent.load` can change
    "exploration", "gamma", "learning_rate", "batch_size", "double_q", "n_step", "replay", "reward_scale",
    "noise_variance",
)  # fmt: skip
LEARNING_STARTS = {"steps": 500, "episodes": 10}  # the defaults of `learning_starts`


@dataclass(frozen=True)
class AgentArguments:
    """All arguments of `QEnsembleAgent` except the environment, under the same names."""

    n_estimators: int  # number of members
    exploration: str | Exploration  # name in EXPLORATIONS, or a rule
    hidden_layer_sizes: Sequence[int]  # number of units in each hidden layer
    activation: str  # name in ACTIVATIONS
    network: object | None  # anything that `as_network` accepts
    prior_scale: float | Sequence[float]  # of the last layer, or of each layer
    noise_variance: float  # of the Q-targets
    gamma: float  # discount factor of a step
    learning_rate: float | LinearSchedule  # of the optimiser
    optimizer: str | OptimizerFactory  # name, or function of the learning rate
    batch_size: int  # transitions in one gradient step
    buffer_size: int  # capacity in transitions
    learning_starts: int | None  # steps or episodes before the first update; None for the default in LEARNING_STARTS
    train_freq: int | Literal["episode"]  # steps between updates; "episode" for an update after each episode
    gradient_steps: int  # number in one update
    target_update_interval: int | None  # in environment steps; None for no target networks
    double_q: bool  # whether to use double Q-learning
    n_step: int  # rewards summed before the value of the next state is used
    replay: str  # name in REPLAYS
    averaged_share: float | None  # latest share of the gradient steps, averaged for the greedy policy; None for none
    reward_scale: float | Literal["auto"]  # factor of rewards when they are learnt from
    rescale_observations: bool  # whether to rescale entries with declared bounds to [−1, 1]
    seed: int  # random seed of the run
    preset: str | None  # "paper" for the prior and penalty of the author's script, which no other arguments describe

    def check(self) -> None:
        """Raise if an argument cannot be used, or if this process cannot run JAX programs."""
        compilation.check_process()
        if self.preset is not None:
            checks.one_of("preset", self.preset, ("paper",))
        for name in ("n_estimators", "batch_size", "buffer_size", "gradient_steps", "n_step"):
            _check_whole(name, getattr(self, name))
        if self.learning_starts is not None:
            _check_whole("learning_starts", self.learning_starts, 0, "or None")
        if self.target_update_interval is not None:
            _check_whole("target_update_interval", self.target_update_interval, 1, "or None")
        if self.train_freq != "episode":
            _check_whole("train_freq", self.train_freq, 1, 'or "episode"')
        _check_whole("seed", self.seed, 0, "or None")
        self._check_reals()
        for name in ("double_q", "rescale_observations"):
            if not isinstance(getattr(self, name), bool | np.bool_):
                raise ValueError(f"{name} must be True or False, got {getattr(self, name)!r}")
        checks.one_of("replay", self.replay, REPLAYS)
        check_optimizer(self.optimizer)
        _check_exploration(self.exploration)
        if self.network is None:
            checks.one_of("activation", self.activation, ACTIVATIONS)
            for size in _as_list("hidden_layer_sizes", self.hidden_layer_sizes):
                _check_whole("hidden_layer_sizes", size)  # type: ignore[arg-type]

    def _check_reals(self) -> None:
        """Raise if an argument that is a real number cannot be used."""
        _check_learning_rate(self.learning_rate)
        if self.reward_scale != "auto":
            _check_positive("reward_scale", self.reward_scale, 'or "auto"')
        if not checks.is_real(self.noise_variance) or self.noise_variance < 0:
            raise ValueError(f"noise_variance must be a number of at least 0, got {self.noise_variance!r}")
        if self.noise_variance > 0:
            _check_positive("noise_variance", self.noise_variance)
        if not checks.is_real(self.gamma) or not 0 <= self.gamma <= 1:
            raise ValueError(f"gamma must lie between 0 and 1, got {self.gamma!r}")
        share = self.averaged_share
        if share is not None and not (checks.is_real(share) and 0 < share <= 1):
            raise ValueError(f"averaged_share must be above 0 and at most 1, or None, got {share!r}")
        for scale in _as_list("prior_scale", self.prior_scale):
            _check_positive("prior_scale", scale)


def build_config(arguments: AgentArguments, spaces: Spaces, observation: np.ndarray) -> AgentConfig:
    """Build the configuration of an agent from its arguments and its environment.

    Parameters
    ----------
    arguments
        Arguments that have been checked.
    spaces
        The environment's actions and observations.
    observation
        An observation, encoded as the network receives it; only its shape and dtype matter.

    Returns
    -------
    AgentConfig
        The configuration that training takes.

    Raises
    ------
    ValueError
        If the network or its prior does not fit the environment.
    """
    if isinstance(spaces, GymnasiumAdapter):
        _check_vectorised(arguments, spaces.n_envs)
    if arguments.replay == "rare" and spaces.n_observations is None:
        raise ArgumentError(
            "replay", 'can be "rare" only if observations are integers, which can be counted', 'or use "uniform"'
        )
    network, prior = _network_and_prior(arguments, spaces, observation)
    learning = QLearningConfig(
        network,
        prior,
        _anchor_strength(prior, arguments.noise_variance),
        n_estimators=arguments.n_estimators,
        gamma=float(arguments.gamma),
        learning_rate=_learning_rate(arguments.learning_rate),
        optimizer=arguments.optimizer,
        batch_size=arguments.batch_size,
        gradient_steps=arguments.gradient_steps,
        own_batches=True,
        n_envs=spaces.n_envs if isinstance(spaces, GymnasiumAdapter) else 1,
        observations_once=isinstance(spaces, GymnasiumAdapter) and spaces.observes_images,
        target_update_interval=arguments.target_update_interval,
        double_q=arguments.double_q,
        n_step=arguments.n_step,
        replay=arguments.replay,
        n_observations=spaces.n_observations,
        averaged_share=None if arguments.averaged_share is None else float(arguments.averaged_share),
    )
    if arguments.preset == "paper":
        learning = paper_agent.with_script_prior(learning)
    learning_starts, exploration = arguments.learning_starts, arguments.exploration
    if learning_starts is None:
        learning_starts = LEARNING_STARTS["episodes" if arguments.train_freq == "episode" else "steps"]
    return AgentConfig(
        learning,
        EXPLORATIONS[exploration] if isinstance(exploration, str) else exploration,
        train_freq=arguments.train_freq,
        learning_starts=learning_starts,
        buffer_size=arguments.buffer_size,
        reward_scale=None if arguments.reward_scale == "auto" else float(arguments.reward_scale),
    )


def _check_vectorised(arguments: AgentArguments, n_envs: int) -> None:
    """Raise if `arguments` cannot be used with `n_envs` environments at once."""
    if n_envs > 1 and arguments.train_freq == "episode":
        raise ArgumentError(
            "train_freq",
            'must be a number of steps in vectorised environments, got "episode"',
            "or pass one environment",
        )
    if n_envs > 1 and arguments.buffer_size < 8 * n_envs:
        raise ArgumentError("buffer_size", f"must be at least {8 * n_envs}, eight times the number of environments")


def check_learn(
    total_timesteps: int | None,
    total_episodes: int | None,
    checkpoint_every: int,
    eval_env: object,
    eval_every: int | None,
    n_eval_episodes: int,
) -> None:
    """Raise if an argument of `QEnsembleAgent.learn`, where the arguments are documented, cannot be used."""
    if total_timesteps is None and total_episodes is None:
        raise ValueError("total_timesteps or total_episodes must be given, so that training ends")
    for name, value in (("total_timesteps", total_timesteps), ("total_episodes", total_episodes)):
        if value is not None:
            checks.whole(name, value)
    for name, value in (("checkpoint_every", checkpoint_every), ("n_eval_episodes", n_eval_episodes)):
        checks.whole(name, value)
    if eval_every is not None:
        checks.whole("eval_every", eval_every)
    elif eval_env is not None:
        raise ValueError("eval_every must be given together with eval_env: the number of steps between evaluations")


def _network_and_prior(arguments: AgentArguments, spaces: Spaces, observation: np.ndarray) -> tuple[Network, Prior]:
    """Return the network, with its inputs rescaled if `arguments` say so, and the prior of its parameters."""
    module = arguments.network
    if module is None:
        sizes = tuple(int(size) for size in arguments.hidden_layer_sizes)
        if is_image(observation.shape, observation.dtype):
            module = image_network(observation, sizes, spaces.n_actions, arguments.activation)
        else:
            module = QNetwork(sizes, spaces.n_actions, spaces.n_observations, arguments.activation)
    network = as_network(module)
    rows = observation[None] if observation.dtype != np.uint8 else observation[None].astype(np.result_type(float))
    params = network.init(jax.random.key(0), rows)  # values, not only shapes: `layered_prior` needs them
    prior = q_prior(network, params, _layer_scales(network, arguments.prior_scale))
    if arguments.rescale_observations and spaces.observation_bounds is not None:
        low, high = spaces.observation_bounds
        network = Rescaled(network, tuple((low + high) / 2), tuple((high - low) / 2))
    elif observation.dtype == np.uint8:
        network = Rescaled(network, (0.0,), (255.0 if arguments.rescale_observations else 1.0,))
    shape = jax.eval_shape(network.apply, params, observation[None]).shape
    if shape != (1, spaces.n_actions):
        raise ValueError(
            f"network: its outputs for one observation have shape {shape}, but must have shape "
            f"(1, {spaces.n_actions}), since the environment has {spaces.n_actions} actions"
        )
    return network, prior


def _anchor_strength(prior: Prior, noise_variance: float) -> Params:
    """Return `anchor_strength`; raise if it is not finite."""
    with np.errstate(all="ignore"):
        strength = anchor_strength(prior, noise_variance)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(strength)):
        raise ValueError(
            f"prior_scale is too small: noise_variance / prior_scale² overflows for noise_variance={noise_variance!r}"
        )
    return strength


def _layer_scales(network: Network, prior_scale: float | Sequence[float]) -> tuple[float, ...]:
    """Return the prior scale of each layer; a single number `prior_scale` is that of the last layer."""
    if isinstance(network, QNetwork):
        hidden_scale = 2**0.5 if network.activation == "relu" else 1.0
        defaults: tuple[float, ...] = (1.0, *[hidden_scale] * (network.n_layers - 2), 1.0)
        defaults = defaults if network.n_layers > 1 else (1.0,)
    else:
        defaults = default_layer_scales(network, 1.0)
    if np.ndim(prior_scale) == 0:
        return (*defaults[:-1], float(prior_scale))  # type: ignore[arg-type]
    scales = tuple(float(scale) for scale in prior_scale)  # type: ignore[union-attr]
    if len(scales) != len(defaults):
        raise ValueError(f"prior_scale must be one number or {len(defaults)}, one for each layer, got {len(scales)}")
    return scales


def _learning_rate(rate: float | LinearSchedule) -> float | LinearSchedule:
    """Return the learning rate, or the schedule, with floats."""
    if isinstance(rate, LinearSchedule):
        return LinearSchedule(float(rate.start), float(rate.end), float(rate.n_steps))
    return float(rate)


def _check_learning_rate(rate: object) -> None:
    """Raise unless `rate` is a positive number, or a schedule of positive numbers."""
    if isinstance(rate, LinearSchedule):
        for field in fields(rate):
            _check_positive(f"learning_rate.{field.name}", getattr(rate, field.name))
    elif callable(rate):
        raise TypeError(
            "learning_rate: a function cannot be compiled with the agent, nor saved; pass a number, or "
            "anchored.rl.LinearSchedule(start, end, n_steps), where n_steps counts environment steps"
        )
    else:
        _check_positive("learning_rate", rate, "or a LinearSchedule")  # type: ignore[arg-type]


def _check_exploration(exploration: object) -> None:
    """Raise unless `exploration` is a known name, or an exploration rule with finite parameters."""
    if isinstance(exploration, str):
        checks.one_of("exploration", exploration, EXPLORATIONS)
    elif isinstance(exploration, type) or not callable(exploration) or not hasattr(exploration, "probabilities"):
        raise TypeError(
            f"exploration must be one of {sorted(EXPLORATIONS)} or an object of anchored.rl.exploration, such as "
            f"Thompson(), got {exploration!r}"
        )
    elif any(leaf is exploration for leaf in jax.tree.leaves(exploration)):
        raise TypeError(
            f"exploration: {type(exploration).__name__} is not a pytree; make it a frozen dataclass and decorate it "
            "with anchored.trees.register"
        )
    elif not all(_is_finite(leaf) for leaf in jax.tree.leaves(exploration)):
        raise ValueError(f"exploration must have finite numbers as parameters, got {exploration!r}")


def _is_finite(leaf: object) -> bool:
    """Return whether a parameter of an exploration rule is a number that training can compute with."""
    array = np.asarray(leaf)
    if array.dtype.kind not in "biuf":
        return False
    return bool(
        (np.abs(array.astype(float)) <= (MAX_EXPLORATION_PARAMETER if array.dtype.kind == "f" else MAX_INTEGER)).all()
    )


def _check_whole(name: str, value: int, minimum: int = 1, alternative: str = "") -> None:
    """Raise unless `value` is a whole number from `minimum` to MAX_INTEGER; messages also mention the `alternative`."""
    checks.whole(name, value, minimum, alternative)
    if value > MAX_INTEGER:
        raise ValueError(f"{name} must be below 2³¹, got {value!r}")


def _check_positive(name: str, value: float, alternative: str = "") -> None:
    """Raise unless `value` is a positive number of single precision; messages also mention the `alternative`."""
    checks.positive(name, value, alternative)
    if not MIN_REAL <= float(value) <= MAX_REAL:
        raise ValueError(f"{name} must be representable in single precision, got {value!r}")


def _as_list(name: str, value: float | Sequence[float]) -> list[float]:
    """Return the argument `name`, one number or a sequence of numbers, as a list of Python numbers."""
    if isinstance(value, str) or value is None:
        raise ValueError(f"{name} must be a number or a sequence of numbers, got {value!r}")
    if name == "hidden_layer_sizes" and np.ndim(value) == 0:
        raise ValueError(f"{name} must be a sequence, such as (64, 64), got {value!r}")
    return np.ravel(value).tolist()
