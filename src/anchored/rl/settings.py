"""The agent's arguments: checked, and made into the agent that the pure functions know."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from anchored import checks
from anchored.inference import compilation
from anchored.inference.solvers.first_order import check_optimizer
from anchored.model.layered_prior import default_layer_scales
from anchored.model.networks import ACTIVATIONS, as_network
from anchored.rl.exploration import EXPLORATIONS
from anchored.rl.q_learning import REPLAYS, QLearning, q_prior, strength_of
from anchored.rl.q_network import QNetwork, Rescaled
from anchored.rl.training import Agent

LARGEST = 2**31 - 1  # whole number: steps, updates and episodes are counted in 32 bits
SMALLEST_REAL, LARGEST_REAL = (float(x) for x in (np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max))
LARGEST_PARAMETER = 1e30  # of an exploration: sums and differences of a few stay finite
STARTS_AFTER = {"steps": 500, "episodes": 10}


def check(asked: dict[str, Any]) -> None:
    """Raise where an argument cannot be used, or this process cannot compute."""
    compilation.check_process()
    for name in ("n_estimators", "batch_size", "buffer_size", "gradient_steps", "n_step"):
        _check_whole(name, asked[name])
    if asked["learning_starts"] is not None:
        _check_whole("learning_starts", asked["learning_starts"], 0, "or None")
    if asked["target_update_interval"] is not None:
        _check_whole("target_update_interval", asked["target_update_interval"], 1, "or None")
    if asked["train_freq"] != "episode":
        _check_whole("train_freq", asked["train_freq"], 1, 'or "episode"')
    for name in ("learning_rate", "reward_scale"):
        _check_positive(name, asked[name])
    if not checks.is_real(asked["noise_variance"]) or asked["noise_variance"] < 0:
        raise ValueError(f"noise_variance must be a number of at least 0, got {asked['noise_variance']!r}")
    if asked["noise_variance"] > 0:
        _check_positive("noise_variance", asked["noise_variance"])
    if not checks.is_real(asked["gamma"]) or not 0 <= asked["gamma"] <= 1:
        raise ValueError(f"gamma must lie between 0 and 1, got {asked['gamma']!r}")
    for scale in _listed("prior_scale", asked["prior_scale"]):
        _check_positive("prior_scale", scale)
    for name in ("double_q", "rescale_observations"):
        if not isinstance(asked[name], bool | np.bool_):
            raise ValueError(f"{name} must be True or False, got {asked[name]!r}")
    checks.one_of("replay", asked["replay"], REPLAYS)
    check_optimizer(asked["optimizer"])
    _check_exploration(asked["exploration"])
    if asked["seed"] is not None:
        _check_whole("seed", asked["seed"], 0, "or None")
    if asked["network"] is None:
        checks.one_of("activation", asked["activation"], ACTIVATIONS)
        for size in _listed("hidden_layer_sizes", asked["hidden_layer_sizes"]):
            _check_whole("hidden_layer_sizes", size)


def build(asked: dict[str, Any], kind: Any, observation: np.ndarray) -> Agent:
    """The agent for an environment of this kind, which is seen as `observation` is."""
    network, prior = _network_and_prior(asked, kind, observation)
    by_episode = asked["train_freq"] == "episode"
    learning = QLearning(
        network,
        prior,
        _strength(prior, asked["noise_variance"]),
        n_estimators=asked["n_estimators"],
        discount=float(asked["gamma"]),
        learning_rate=float(asked["learning_rate"]),
        optimizer=asked["optimizer"],
        batch_size=asked["batch_size"],
        n_updates=asked["gradient_steps"],
        target_update=asked["target_update_interval"],
        double=asked["double_q"],
        n_steps=asked["n_step"],
        replay=asked["replay"],
    )
    starts = asked["learning_starts"]
    if starts is None:
        starts = STARTS_AFTER["episodes" if by_episode else "steps"]
    exploration = asked["exploration"]
    return Agent(
        learning,
        EXPLORATIONS[exploration] if isinstance(exploration, str) else exploration,
        learn_every=None if by_episode else asked["train_freq"],
        burn_in=starts if by_episode else starts // asked["train_freq"],
        capacity=asked["buffer_size"],
        reward_scale=float(asked["reward_scale"]),
    )


def _network_and_prior(asked: dict[str, Any], kind: Any, observation: np.ndarray) -> tuple[Any, Any]:
    network = asked["network"]
    if network is None:
        sizes = tuple(int(size) for size in asked["hidden_layer_sizes"])
        network = QNetwork(sizes, kind.n_actions, kind.n_observations, asked["activation"])
    network = as_network(network)
    params = network.init(jax.random.key(0), observation[None])  # its values hint at priors
    prior = q_prior(network, params, _layer_scales(network, asked["prior_scale"]))
    if asked["rescale_observations"] and kind.observation_bounds is not None:
        low, high = kind.observation_bounds
        network = Rescaled(network, tuple((low + high) / 2), tuple((high - low) / 2))
    shape = jax.eval_shape(network.apply, params, observation[None]).shape
    if shape != (1, kind.n_actions):
        raise ValueError(
            f"network: its outputs for one observation have shape {shape}, but the environment has "
            f"{kind.n_actions} actions: (1, {kind.n_actions}) is needed"
        )
    return network, prior


def _strength(prior: Any, noise_variance: float) -> Any:
    """The pull to the anchors, which must not be beyond the numbers that it is computed with."""
    with np.errstate(all="ignore"):
        strength = strength_of(prior, noise_variance)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(strength)):
        raise ValueError(f"prior_scale is too small: noise_variance / prior_scale² is infinite for {noise_variance!r}")
    return strength


def _layer_scales(network: Any, prior_scale: float | Sequence[float]) -> tuple[float, ...]:
    if isinstance(network, QNetwork):
        deeper = 2**0.5 if network.activation == "relu" else 1.0
        usual: tuple[float, ...] = (1.0, *[deeper] * (len(network.hidden_layer_sizes) - 1), 1.0)
        usual = usual if network.hidden_layer_sizes else (1.0,)
    else:
        usual = default_layer_scales(network, 1.0)
    if np.ndim(prior_scale) == 0:
        return (*usual[:-1], float(prior_scale))  # type: ignore[arg-type]
    scales = tuple(float(scale) for scale in prior_scale)  # type: ignore[union-attr]
    if len(scales) != len(usual):
        raise ValueError(f"prior_scale must be one number or {len(usual)}, one for each layer, got {len(scales)}")
    return scales


def _check_exploration(exploration: Any) -> None:
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
        raise ValueError(f"exploration must be made of finite numbers, got {exploration!r}")


def _is_finite(leaf: Any) -> bool:
    array = np.asarray(leaf)
    if array.dtype.kind not in "biuf":
        return False
    return bool((np.abs(array.astype(float)) <= (LARGEST_PARAMETER if array.dtype.kind == "f" else LARGEST)).all())


def _check_whole(name: str, value: Any, least: int = 1, alternative: str = "") -> None:
    checks.whole(name, value, least, alternative)
    if value > LARGEST:
        raise ValueError(f"{name} must be below 2³¹, got {value!r}")


def _check_positive(name: str, value: Any) -> None:
    checks.positive(name, value)
    if not SMALLEST_REAL <= float(value) <= LARGEST_REAL:
        raise ValueError(f"{name} must be a number that single precision can hold, got {value!r}")


def _listed(name: str, value: Any) -> list[Any]:
    """One number or several, as a list of Python's."""
    if isinstance(value, str) or value is None:
        raise ValueError(f"{name} must be a number or a sequence of numbers, got {value!r}")
    listed = np.ravel(value).tolist()
    if name == "hidden_layer_sizes" and np.ndim(value) == 0:
        raise ValueError(f"{name} must be a sequence, such as (64, 64), got {value!r}")
    return listed
