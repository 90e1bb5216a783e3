"""How Bayesian is a fit? Its spread beside the exact posterior under the same prior, noise and data.

What separates the two is split: what M perfect draws from the posterior would show as well (Monte-Carlo error), what
further training would change (Theorem 1 assumes optimal MAP estimates), and what the theory of this anchoring predicts.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from anchored import metrics, references, trees
from anchored.exact.gaussian_process import covariance_root
from anchored.likelihoods import Gaussian
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.method import Posterior
from anchored.model import BayesianModel
from anchored.networks import MLP, RBFNetwork, last_layer_mask
from anchored.references import Reference
from anchored.solvers import gauss_newton
from anchored.solvers.gauss_newton import GaussNewton
from anchored.training import member_problems
from anchored.types import Data, Params

N_POINTS = 200  # where the two are compared, unless told
MOST_POINTS = 500
N_PERFECT = 200  # ensembles of perfect draws, for what chance does
MOST_CONTINUED = 10  # members whose training goes on, to see whether it was over
MATRICES = 8  # of rows × rows held at once, all told
COLLAPSED = 0.2  # of the posterior's standard deviation
COARSE = 0.15  # relative Monte-Carlo error of a standard deviation above which it dominates
MATERIAL_RATIO, MATERIAL_GAP = 0.1, 0.25  # departures worth a word: of the ratio from 1, of the mean in posterior s.d.
UNCONVERGED = 0.25  # posterior s.d. by which further training would still move mean or spread


class Range(NamedTuple):
    """What M perfect draws show: the mean, and the central 95 %."""

    mean: float
    low: float
    high: float


class Optimisation(NamedTuple):
    """Whether training was over: what members do when a second-order solver goes on from where they stand."""

    gradient: float  # √(gᵀ H⁻¹ g) of the MAP objective, in posterior standard deviations, mean over members
    mean_shift: float  # of the ensemble's mean, root mean square over points, in posterior s.d.
    std_shift: float  # of its standard deviation, likewise
    n_members: int


@dataclass(frozen=True)
class Certificate:
    """What `certify` found; `print` it, or draw it with `plots.CertificateDisplay`.

    Distances: `mean_gap` is the root mean square over points of the gap between means in posterior s.d.;
    `std_ratio`, `std_ratio_low`, `std_ratio_high` the mean and range of ensemble s.d. over posterior s.d.; `kl` the
    mean KL(exact ‖ ensemble) of an observation, in nats; `wasserstein` the mean 2-Wasserstein distance of the
    functions, in units of y.
    """

    verdict: str
    finding: str  # "bayesian", "too few members", "not converged", "collapsed", "too narrow", "too wide" or "shifted"
    distances: dict[str, float]
    perfect: dict[str, Range]  # the same for as many draws from the exact posterior
    predicted: dict[str, float] | None  # the same for infinitely many members of this kind, in theory
    optimisation: Optimisation | None
    to_wide_limit: (
        dict[str, float] | None
    )  # distances to infinitely wide layers, where the reference is not that already
    reference: str
    asymptotic: bool  # whether the reference is a limit that the network is only near
    n_members: int
    n_rows: int
    mean: np.ndarray  # (points, outputs), of the ensemble, in units of y
    std: np.ndarray
    exact_mean: np.ndarray
    exact_std: np.ndarray
    predicted_std: np.ndarray | None

    @staticmethod
    def members_needed(precision: float = 0.1) -> int:
        """Members for a relative error of the s.d., and of the mean in s.d., of at most `precision`."""
        if not 0 < precision < 1:
            raise ValueError(f"precision must lie between 0 and 1, got {precision!r}")
        return int(np.ceil(max(1 + 1 / (2 * precision**2), 1 / precision**2)))

    def __str__(self) -> str:
        names = {
            "mean_gap": "mean gap, posterior s.d.",
            "std_ratio": "s.d. / posterior s.d.",
            "kl": "KL of an observation, nats",
            "wasserstein": "2-Wasserstein, units of y",
        }
        lines = [self.verdict, "", f"{'':30}{'measured':>10}{f'{self.n_members} perfect draws':>26}{'theory':>10}"]
        for name, label in names.items():
            chance = self.perfect[name]
            theory = "" if self.predicted is None else f"{self.predicted[name]:.3f}"
            span = f"{chance.mean:.3f} ({chance.low:.3f}–{chance.high:.3f})"
            lines.append(f"{label:30}{self.distances[name]:10.3f}{span:>26}{theory:>10}")
        low, high = self.distances["std_ratio_low"], self.distances["std_ratio_high"]
        lines.append(f"{'s.d. ratio, range over points':30}{f'{low:.2f}–{high:.2f}':>10}")
        if self.optimisation is not None:
            o = self.optimisation
            lines.append(
                f"if training went on ({o.n_members} members): mean moves {o.mean_shift:.3f}, s.d. {o.std_shift:.3f} "
                f"posterior s.d.; gradient {o.gradient:.2f}"
            )
        if self.to_wide_limit is not None:
            ratio, gap = self.to_wide_limit["std_ratio"], self.to_wide_limit["mean_gap"]
            far = self.finding == "bayesian" and (abs(ratio - 1) > MATERIAL_RATIO or gap > MATERIAL_GAP)
            remedy = "; more units, not more members, would close that" if far else ""
            lines.append(f"beside infinitely wide layers: s.d. ratio {ratio:.2f}, mean gap {gap:.2f} s.d.{remedy}")
        lines.append(f"members for 10 % precision: {self.members_needed(0.1)}; compared at {len(self.mean)} points")
        lines.append(f"reference: {self.reference}")
        return "\n".join(lines)


def certify(
    fitted: Any,
    X: Any,
    y: Any,
    X_eval: Any = None,
    sample_weight: Any = None,
    max_memory_gb: float = 2.0,
    reference: Any = None,
) -> Certificate:
    """Compare a fit with the exact posterior under its own prior, noise, architecture and data.

    Parameters
    ----------
    fitted : a fitted `AnchoredRegressor`, or the `Posterior` of a method with Gaussian noise
    X, y, sample_weight : the data it was fitted to, again (an estimator recognises them)
    X_eval : rows to compare at, at most 500 of them
        By default, 200 points on lines through pairs of training rows, up to a quarter beyond either end.
    max_memory_gb : float
        The exact posterior needs matrices of rows × rows; it refuses what does not fit.
    reference : None, or a method such as `methods.HMC()`
        What counts as the truth. None is the closed form, which for a network with all layers trained is that of
        infinite width; a sampler draws from the posterior of the network as it is, which takes as long as it takes.

    Examples
    --------
    >>> import numpy as np
    >>> from anchored import AnchoredRegressor, certify
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(40, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40)
    >>> settings = dict(noise_variance=0.01, prior_scale=2.0, random_state=0)
    >>> exact = AnchoredRegressor(200, (500,), trainable="last_layer", anchoring="randomized", **settings)
    >>> certify(exact.fit(X, y), X, y).finding
    'bayesian'
    """
    posterior, data, points, y_scale = _read(fitted, X, y, X_eval, sample_weight)
    _check_memory(data, points, max_memory_gb)
    if reference is not None and not callable(getattr(reference, "fit", None)):
        raise ValueError(f"reference must be None or a method such as methods.HMC(), got {reference!r}")
    few = len(data.inputs) < 2000  # threads cost more than they bring to the many factorisations of small matrices
    with threadpool_limits(1 if few else None, user_api="blas"):
        if reference is None:
            truth = references.exact(posterior, data, points)
        else:
            truth = references.sampled(reference, posterior, data, points)
        return _certificate(posterior, truth, data, points, y_scale)


def _certificate(
    posterior: Posterior, reference: Reference, data: Data, points: np.ndarray, y_scale: np.ndarray
) -> Certificate:
    noise = references.noise_of(references.asked_model(posterior), data)
    compare = _Comparison(reference.mean, reference.std, noise, y_scale)
    outputs = posterior.outputs(points.astype(posterior.dtype))
    mean, std = _moments(outputs[..., : data.targets.shape[1]])  # without variance heads
    distances = compare(mean, std)
    perfect = _perfect(compare, reference, posterior.n_members)
    predicted = None if reference.predicted is None else compare(*reference.predicted)
    optimisation = _optimisation(posterior, data, points, reference.std)
    finding, verdict = _judge(posterior, distances, perfect, predicted, optimisation)
    to_wide_limit = None
    if not reference.asymptotic and isinstance(references.asked_model(posterior).network, MLP | RBFNetwork):
        wide_mean, wide_std = references.wide_process(posterior, data).predict(points, return_std=True)
        to_wide_limit = _Comparison(wide_mean, wide_std, noise, y_scale)(mean, std)
    return Certificate(
        verdict, finding, distances, perfect, predicted, optimisation, to_wide_limit, reference.description,
        reference.asymptotic, posterior.n_members, len(data.inputs), mean * y_scale, std * y_scale,
        reference.mean * y_scale, reference.std * y_scale,
        None if reference.predicted is None else reference.predicted[1] * y_scale,
    )  # fmt: skip


# What is compared


def _read(
    fitted: Any, X: Any, y: Any, X_eval: Any, sample_weight: Any
) -> tuple[Posterior, Data, np.ndarray, np.ndarray]:
    """The posterior, its training data and where to compare, all in the units the members were trained in."""
    if hasattr(fitted, "outputs") and hasattr(fitted, "diagnostics"):
        posterior = fitted
        targets = np.asarray(y, np.float64)
        weights = np.ones(len(targets)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        data = Data(np.asarray(X, np.float64), targets.reshape(len(targets), -1), weights.reshape(len(targets), -1))
        points, y_scale = _points(data.inputs) if X_eval is None else np.asarray(X_eval, np.float64), np.ones(1)
    elif hasattr(fitted, "posterior_") or hasattr(fitted, "fit"):
        posterior, data, points, y_scale = fitted._for_certificate(X, y, X_eval, sample_weight)
        points = _points(data.inputs) if points is None else points
    else:
        raise TypeError(f"fitted: cannot certify a {type(fitted).__name__}; pass a fitted estimator or a Posterior")
    likelihood = references.asked_model(posterior).likelihood
    if not isinstance(likelihood, Gaussian):
        raise ValueError(
            f"fitted: there is no closed form for the posterior with a {type(likelihood).__name__} "
            "likelihood; only regression with Gaussian noise can be certified"
        )
    counted = data.weights.min(axis=1) > 0
    data = Data(*(np.asarray(part, np.float64)[counted] for part in data))
    if len(points) > MOST_POINTS:
        points = points[np.linspace(0, len(points) - 1, MOST_POINTS).astype(int)]
    return posterior, data, points, y_scale


def _points(inputs: np.ndarray) -> np.ndarray:
    """Points on lines through pairs of rows, up to a quarter beyond either end: in, between and around the data."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(len(inputs), size=(2, N_POINTS))
    along = rng.uniform(-0.25, 1.25, size=(N_POINTS, *[1] * (inputs.ndim - 1)))
    return inputs[first] + along * (inputs[second] - inputs[first])


def _check_memory(data: Data, points: np.ndarray, max_memory_gb: float) -> None:
    needed = 8 * MATRICES * (len(data.inputs) + len(points)) ** 2 / 1e9
    if needed > max_memory_gb:
        most = int(np.sqrt(max_memory_gb * 1e9 / (8 * MATRICES))) - len(points)
        raise ValueError(
            f"X: the exact posterior of {len(data.inputs):,} rows needs about {needed:.1f} GB, and max_memory_gb is "
            f"{max_memory_gb:g}. Raise it, or fit and certify with at most {max(most, 0):,} rows."
        )


def _moments(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return outputs.mean(0), outputs.std(0, ddof=min(1, len(outputs) - 1))


@dataclass(frozen=True)
class _Comparison:
    """Distances of marginals to the exact ones."""

    mean: np.ndarray
    std: np.ndarray
    noise: np.ndarray
    y_scale: np.ndarray

    def __call__(self, mean: np.ndarray, std: np.ndarray) -> dict[str, float]:
        ratio = std / self.std
        observed, exact_observed = np.sqrt(std**2 + self.noise), np.sqrt(self.std**2 + self.noise)
        far = metrics.gaussian_wasserstein(self.mean, self.std, mean, std) * self.y_scale
        return {
            "mean_gap": float(np.sqrt(np.mean(((mean - self.mean) / self.std) ** 2))),
            "std_ratio": float(np.mean(ratio)),
            "std_ratio_low": float(np.min(ratio)),
            "std_ratio_high": float(np.max(ratio)),
            "kl": float(np.mean(metrics.gaussian_kl(self.mean, exact_observed, mean, observed))),
            "wasserstein": float(np.mean(far)),
        }


# What separates the two


def _perfect(compare: _Comparison, reference: Reference, n_members: int) -> dict[str, Range]:
    """Distances of M joint draws from the exact posterior, over many repeats: what chance does."""
    rng = np.random.default_rng(0)
    n_components, _, n_outputs = reference.means.shape
    component = np.arange(n_members) % n_components  # a draw for each member's features
    roots = [[covariance_root(c[..., k]) for k in range(n_outputs)] for c in reference.covariances]
    found = []
    for _ in range(N_PERFECT):
        normal = rng.standard_normal((n_members, *reference.means.shape[1:]))
        draws = np.empty_like(normal)
        for c in range(n_components):
            own = component == c
            for k in range(n_outputs):
                draws[own, :, k] = reference.means[c, :, k] + normal[own, :, k] @ roots[c][k].T
        found.append(compare(*_moments(draws)))
    columns = {name: np.array([one[name] for one in found]) for name in found[0]}
    return {n: Range(float(v.mean()), *np.quantile(v, [0.025, 0.975]).tolist()) for n, v in columns.items()}


def _optimisation(posterior: Posterior, data: Data, points: np.ndarray, exact_std: np.ndarray) -> Optimisation | None:
    """Let some members train on, each about its own anchor and with its own targets."""
    method, model = posterior.diagnostics.get("method"), references.asked_model(posterior)
    if not isinstance(method, AnchoredEnsemble):
        return None
    members = np.arange(min(posterior.n_members, MOST_CONTINUED))
    trained = trees.take(posterior.diagnostics["trained"].params, members)
    key = jax.random.wrap_key_data(jnp.asarray(posterior.diagnostics["key"]))
    dtype = jax.tree.leaves(trained)[0].dtype
    rows = Data(*(part.astype(dtype) for part in data))
    lengths, before, after = [], [], []
    stack = member_problems(key, method.recipe(model), model, rows, members)
    own = model if method.trainable == "all" else _last_layer_free(model, trees.take(trained, 0))
    for i in members:
        anchor, params = trees.take(stack.problem[0], i), trees.take(trained, i)
        problem = Data(stack.inputs, stack.targets[i], stack.weights[i])
        lengths.append(gauss_newton.full_step(anchor, params, own, problem)[1])
        further, _, _ = gauss_newton.solve(anchor, params, own, problem, GaussNewton(max_iter=20))
        before.append(model.network.apply(params, points))
        after.append(model.network.apply(further, points))
    (mean, std), (later_mean, later_std) = _moments(np.array(before)), _moments(np.array(after))
    shifts = ((later - now) / exact_std for later, now in ((later_mean, mean), (later_std, std)))
    mean_shift, std_shift = (float(np.sqrt(np.mean(shift**2))) for shift in shifts)
    return Optimisation(float(np.mean(lengths)), mean_shift, std_shift, len(members))


def _last_layer_free(model: BayesianModel, params: Params) -> BayesianModel:
    """The same model with the layers below pinned, by a prior that leaves them no room."""
    mask = last_layer_mask(model.network, params)
    scale = jax.tree.map(lambda is_last, s: s if is_last else np.float64(1e-30), mask, model.prior.scale)
    return replace(model, prior=replace(model.prior, scale=scale))


# What to make of it


def _judge(
    posterior: Posterior,
    distances: dict[str, float],
    perfect: dict[str, Range],
    predicted: dict[str, float] | None,
    optimisation: Optimisation | None,
) -> tuple[str, str]:
    """The finding, and the verdict in one sentence."""
    n_members, ratio, chance = posterior.n_members, distances["std_ratio"], perfect["std_ratio"]
    excess_gap = np.sqrt(max(distances["mean_gap"] ** 2 - perfect["mean_gap"].mean ** 2, 0))
    theory = "" if predicted is None else f" (theory for this anchoring: {predicted['std_ratio']:.2f})"
    if optimisation is not None and max(optimisation.mean_shift, optimisation.std_shift) > UNCONVERGED:
        moved = max(optimisation.mean_shift, optimisation.std_shift)
        return "not converged", (
            f"Not converged: further training would still move the ensemble by {moved:.2f} posterior standard "
            "deviations; raise max_iter or learning_rate_init before trusting its spread."
        )
    if n_members == 1:
        return "too few members", "One member has no spread: at least two are needed, and some fifty to trust it."
    if ratio < chance.low and (ratio < COLLAPSED or _anchored_to_one_point(posterior)):
        return "collapsed", (
            f"Collapsed: the members' standard deviation is {ratio:.1%} of the posterior's, since they are regularised "
            "towards one point, not about draws from the prior; what is left shows where training began."
        )
    if not chance.low <= ratio <= chance.high and abs(ratio - 1) > MATERIAL_RATIO:
        side = "narrow" if ratio < 1 else "wide"
        return f"too {side}", (
            f"Too {side}: the members' standard deviation is {ratio:.2f} of the posterior's{theory}, outside the "
            f"{chance.low:.2f}–{chance.high:.2f} that chance allows {n_members} members."
        )
    if distances["mean_gap"] > perfect["mean_gap"].high and excess_gap > MATERIAL_GAP:
        return "shifted", (
            f"Shifted: the ensemble's mean is {excess_gap:.2f} posterior standard deviations off beyond what chance "
            f"does to {n_members} members, though its spread is right."
        )
    coarse = 1 / np.sqrt(2 * (n_members - 1))
    if coarse > COARSE:
        return "too few members", (
            f"Too few members: Monte-Carlo error dominates, since {n_members} members know each standard deviation to "
            f"±{coarse:.0%} only; nothing worse is seen. {Certificate.members_needed(0.1)} would know it to ±7 %."
        )
    return "bayesian", (
        f"Bayesian: the members cannot be told from {n_members} draws of the exact posterior (standard deviation "
        f"{ratio:.2f} of its own, where chance allows {chance.low:.2f}–{chance.high:.2f})."
    )


def _anchored_to_one_point(posterior: Posterior) -> bool:
    anchoring = getattr(posterior.diagnostics.get("method"), "anchoring", "prior")
    return not isinstance(anchoring, str) and bool(np.all(np.asarray(anchoring) == 0))
