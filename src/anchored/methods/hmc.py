"""Hamiltonian Monte Carlo: draws from the exact posterior, at the cost of very many passes over the data.

The No-U-Turn Sampler (Hoffman & Gelman 2014; Neal 1996 for networks) simulates trajectories with the Hamiltonian

    U(z) + ½ |momentum|²,    U(z) = −Σᵢ wᵢ log p(yᵢ | f(xᵢ; μ + s z)) + ½ |z|²,

where z = (θ − μ)/s are the parameters whitened by the prior N(μ, s²), so that one step size suits all layers, and w are
the weights of the rows. Up to a constant, the potential energy U is the negative log posterior. Network and likelihood
may be any. Each chain starts at its own draw from the prior.

Without data, the members are draws from the prior.
"""

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from anchored import checks, trees
from anchored.inference.compilation import jit
from anchored.inference.failures import DivergenceError
from anchored.inference.posterior import FitRecord, MemberPosterior, Posterior, key_data
from anchored.inference.solvers import blocks
from anchored.model.bayesian_model import BayesianModel, negative_log_likelihood
from anchored.types import Array, Data, Key, Number, OnProgress, Params

if TYPE_CHECKING:
    from numpyro.infer import NUTS
    from numpyro.infer.hmc import HMCState

STEPS_PER_CALL = 25  # steps of a chain between reports of progress
MAX_MONITORED_ROWS = 25  # largest number of training rows at which outputs are monitored
MAX_R_HAT, MIN_SAMPLE_SIZE = 1.05, 100  # a larger R̂ or a smaller effective sample size causes a warning


class Draws(NamedTuple):
    """Draws of a chain and their diagnostics. The leading axis counts the draws, which may be thinned in `params`."""

    params: Params  # parameters of the network, not whitened
    outputs: Array  # (draws, points, outputs) at the monitored points
    energy: Array  # (draws,) potential energy U, in nats
    acceptance: Array  # (draws,) mean acceptance probability of the trajectory
    diverging: Array  # (draws,) whether the trajectory diverged


@dataclass(frozen=True)
class ChainRecord(FitRecord):
    """How well the chains have mixed; `effective_sample_size` is the smallest of all monitored quantities."""

    r_hat: float = field(kw_only=True)  # the largest of all monitored quantities; 1 if chains agree
    divergences: int = field(kw_only=True)  # number of diverging trajectories
    acceptance: float = field(kw_only=True)  # mean acceptance probability
    seconds: float = field(kw_only=True)  # wall-clock time of sampling, without compilation


@dataclass(frozen=True)
class HMC:
    """Chains of the No-U-Turn Sampler, whose thinned draws are the members.

    Outputs of a network are identified, but its parameters are not, since hidden units can be permuted. The monitored
    quantities are therefore the log posterior and the outputs, at up to 25 training rows and at as many points between
    them, where the data constrain the outputs less. R̂ is the largest, and the effective sample size the smallest, of
    all monitored quantities.

    Attributes
    ----------
    n_chains : int
        Number of chains.
    n_warmup : int
        Number of warm-up steps of each chain.
    n_samples : int
        Number of draws of each chain after the warm-up.
    target_accept : float
        Acceptance probability for which the step size is adapted.
    max_tree_depth : int
        Largest depth of a trajectory's tree. A draw takes at most 2^max_tree_depth − 1 gradients.
    max_members : int
        Largest number of members. If there are more draws, they are thinned evenly.
    """

    n_chains: int = 4
    n_warmup: int = 500
    n_samples: int = 500
    target_accept: float = 0.8
    max_tree_depth: int = 10
    max_members: int = 1000

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Run all chains and return the posterior.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`. The reported loss is the mean of U. Chains run
        in separate threads: in one program, each draw would wait for the chain with the longest trajectory.
        """
        self.check(model)
        kept = _evenly_spaced(self.n_samples, self.max_members // self.n_chains)
        first_steps = [*range(-self.n_warmup, 0, STEPS_PER_CALL), *range(0, self.n_samples, STEPS_PER_CALL)]
        advance, starts = self.compiled(key, model, data)
        started = time.perf_counter()

        def run_chain(number: int) -> Draws:
            state, parts = starts[number], []
            for first in first_steps:  # number of the first step of each call; below 0 in the warm-up
                n = min(STEPS_PER_CALL, (0 if first < 0 else self.n_samples) - first)
                state, draws = advance(state, n)
                draws = jax.tree.map(lambda leaf, n=n: np.asarray(leaf)[:n], draws)
                if first >= 0:
                    within = kept[(kept >= first) & (kept < first + n)] - first
                    parts.append(draws._replace(params=trees.take(draws.params, within)))
                if on_progress is not None:
                    fraction = n / (self.n_chains * (self.n_warmup + self.n_samples))
                    on_progress(fraction, float(draws.energy.mean()))
            return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)

        chains = trees.stack(blocks.run(run_chain, range(self.n_chains)))
        seconds = time.perf_counter() - started
        r_hat, size = _convergence(chains)
        record = ChainRecord(
            self, key_data(key), model, effective_sample_size=size,
            r_hat=r_hat, divergences=int(chains.diverging.sum()), acceptance=float(chains.acceptance.mean()),
            seconds=seconds,
        )  # fmt: skip
        _warn_if_not_converged(record)
        members = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), chains.params)
        return MemberPosterior(model, members, record)

    def compiled(
        self, key: Key, model: BayesianModel, data: Data
    ) -> "tuple[Callable[[HMCState, Number], tuple[HMCState, Draws]], list[HMCState]]":
        """Compile the programs of a fit; `key`, `model` and `data` are as in `fit`.

        Returns
        -------
        advance : callable
            The function that takes a chain's state and a number of steps, and returns the later state and its draws.
        starts : list
            The first state of each chain.
        """
        settings = (self.n_warmup, self.target_accept, self.max_tree_depth)
        rows = np.asarray(data.inputs)[_evenly_spaced(len(data.inputs), MAX_MONITORED_ROWS)]
        monitored = np.concatenate([rows, (rows + np.roll(rows, 1, axis=0)) / 2])
        advance = partial(_advance, settings, model, data, monitored)
        starts = [_start(settings, jax.random.fold_in(key, chain), model, data) for chain in range(self.n_chains)]
        advance(starts[0], 0)
        return advance, starts

    def check(self, model: BayesianModel) -> None:
        """Raise a ValueError if a setting is invalid, or an ImportError if NumPyro is missing; accepts any `model`."""
        for name, minimum in (("n_chains", 1), ("n_warmup", 1), ("n_samples", 4), ("max_tree_depth", 1)):
            checks.whole(name, getattr(self, name), minimum)
        checks.fraction("target_accept", self.target_accept)
        checks.whole("max_members", self.max_members)
        if self.max_members < self.n_chains:
            raise ValueError(f"max_members must be at least n_chains={self.n_chains}, got {self.max_members}")
        checks.installed("numpyro", "HMC", "compare")


def _warn_if_not_converged(record: ChainRecord) -> None:
    """Warn if the diagnostics of `record` show that the chains have not converged."""
    problems = []
    if record.r_hat > MAX_R_HAT:
        problems.append(f"chains disagree (r_hat={record.r_hat:.2f}): raise n_warmup and n_samples")
    size = record.effective_sample_size
    if size < MIN_SAMPLE_SIZE:
        problems.append(f"the effective sample size is only {size:.0f}: raise n_samples or n_chains")
    if record.divergences:
        problems.append(f"{record.divergences} trajectories diverged: raise target_accept towards 1")
    if problems:
        warnings.warn("HMC: " + "; ".join(problems), ConvergenceWarning, stacklevel=3)


def _evenly_spaced(n: int, max_count: int) -> np.ndarray:
    """Return at most `max_count` of the numbers 0 to n − 1, evenly spaced."""
    return np.arange(n) if n <= max_count else np.linspace(0, n - 1, max_count).astype(int)


def _convergence(chains: Draws) -> tuple[float, float]:
    """Return the worst R̂ and effective sample size of the monitored quantities.

    Leaves of `chains` have the shape (chains, draws, ...).
    """
    from numpyro.diagnostics import effective_sample_size, split_gelman_rubin

    if not np.isfinite(chains.energy).all():
        raise DivergenceError(
            "HMC: the log posterior of a chain is not finite. Check X, y, sample_weight and noise_variance for extreme "
            "values, or use a smaller prior scale."
        )
    outputs = np.asarray(chains.outputs, np.float64).reshape(*chains.energy.shape, -1)
    is_varying = np.ptp(outputs, axis=(0, 1)) > 0  # an output may be constant, for example at x = 0 in a linear model
    monitored = np.concatenate([outputs[..., is_varying], np.asarray(chains.energy, np.float64)[..., None]], axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):  # R̂ is infinite or 0/0 if no chain moves
        r_hat, size = split_gelman_rubin(monitored), effective_sample_size(monitored)
    worst_r_hat = float(np.where(np.isnan(r_hat), np.inf, r_hat).max())
    return worst_r_hat, max(0.0, float(np.nan_to_num(size, nan=0.0).min()))


@partial(jit, static_argnums=(0,))
def _start(settings: tuple, key: Key, model: BayesianModel, data: Data) -> "HMCState":
    """Return the state of a chain that starts at a draw from the prior."""
    position_key, chain_key = jax.random.split(key)
    position = trees.normal_like(position_key, model.network.init(key, data.inputs[:1]))
    position = jax.tree.map(lambda z: z.astype(jnp.result_type(float)), position)  # required by NumPyro
    return _sampler(settings, model, data).init(chain_key, settings[0], position)


@partial(jit, static_argnums=(0,))
def _advance(
    settings: tuple, model: BayesianModel, data: Data, monitored: Array, state: "HMCState", n_steps: Number
) -> "tuple[HMCState, Draws]":
    """Return the state after `n_steps` more steps, and the draws, padded with zeros to STEPS_PER_CALL."""
    sampler = _sampler(settings, model, data)
    sampler.init(state.rng_key, settings[0], state.z)  # sets up the adaptation; the state it returns is not used

    def draw_of(state: "HMCState") -> Draws:
        params = model.prior.unwhiten(state.z)
        outputs = model.network.apply(params, monitored)
        return Draws(params, outputs, state.potential_energy, state.accept_prob, state.diverging)

    def step(i: Array, carry: "tuple[HMCState, Draws]") -> "tuple[HMCState, Draws]":
        state, draws = carry
        state = sampler.sample(state, (), {})
        return state, jax.tree.map(lambda leaves, leaf: leaves.at[i].set(leaf), draws, draw_of(state))

    empty = jax.tree.map(
        lambda leaf: jnp.zeros((STEPS_PER_CALL, *leaf.shape), leaf.dtype), jax.eval_shape(draw_of, state)
    )
    return jax.lax.fori_loop(0, n_steps, step, (state, empty))


def _sampler(settings: tuple, model: BayesianModel, data: Data) -> "NUTS":
    """Return NumPyro's sampler of whitened parameters; `settings` is (n_warmup, target_accept, max_tree_depth)."""
    from numpyro.infer import NUTS

    _, target_accept, max_tree_depth = settings

    def energy(z: object) -> Array:
        penalty = 0.5 * trees.total(jax.tree.map(jnp.square, z))
        return negative_log_likelihood(model, model.prior.unwhiten(z), data) + penalty

    return NUTS(potential_fn=energy, target_accept_prob=target_accept, max_tree_depth=max_tree_depth)
