"""How Bayesian is a fit? Its spread beside the exact posterior under the same prior, noise and data.

What separates the two is split: what M perfect draws from the posterior would show as well (Monte-Carlo error), what
further training would change (Theorem 1 assumes optimal MAP estimates), and what the theory of this anchoring predicts.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from anchored import trees
from anchored.certification import references
from anchored.certification.diagnosis import (
    MATERIAL_GAP,
    MATERIAL_RATIO,
    Finding,
    Optimisation,
    Range,
    diagnose,
    members_needed,
)
from anchored.certification.distances import distances
from anchored.certification.references import Reference
from anchored.errors import ArgumentError
from anchored.exact.processes import covariance_root
from anchored.inference.posterior import MemberPosterior, Posterior
from anchored.inference.solvers import gauss_newton
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import member_problems
from anchored.methods.anchored_ensemble import AnchoredEnsemble, trained_parameters
from anchored.methods.gaussian_process import GaussianProcess
from anchored.methods.hmc import HMC
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP, RBFNetwork, last_layer_mask
from anchored.types import Data, Params

N_POINTS = 200  # where the two are compared, unless told
MOST_POINTS = 500
N_PERFECT = 200  # ensembles of perfect draws, for what chance does
MOST_CONTINUED = 10  # members whose training goes on, to see whether it was over
MATRICES = 8  # of rows × rows held at once, all told


@dataclass(frozen=True)
class Certificate:
    """What `certify` found; `print` it, or draw it with `plots.CertificateDisplay`.

    Distances: `mean_gap` is the root mean square over points of the gap between means in posterior s.d.;
    `std_ratio`, `std_ratio_low`, `std_ratio_high` the mean and range of ensemble s.d. over posterior s.d.; `kl` the
    mean KL(exact ‖ ensemble) of an observation, in nats; `wasserstein` the mean 2-Wasserstein distance of the
    functions, in units of y. Those of two fits can be compared where `reference` is the same.
    """

    verdict: str
    finding: Finding
    distances: dict[str, float]
    perfect: dict[str, Range]  # the same for as many draws from the exact posterior
    predicted: dict[str, float] | None  # the same for infinitely many members of this kind, in theory
    optimisation: Optimisation | None
    to_wide_limit: dict[str, float] | None  # to infinitely wide layers, where the reference is not that already
    reference: str
    asymptotic: bool  # whether the reference is a limit that the network is only near
    n_members: int  # independent ones, or as many as they are worth
    n_rows: int
    mean: np.ndarray  # (points, outputs), of the ensemble, in units of y
    std: np.ndarray
    exact_mean: np.ndarray
    exact_std: np.ndarray
    predicted_std: np.ndarray | None

    @staticmethod
    def members_needed(precision: float = 0.1) -> int:
        """Members for a relative error of the s.d., and of the mean in s.d., of at most `precision`."""
        return members_needed(precision)

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
            far = self.finding is Finding.BAYESIAN and (abs(ratio - 1) > MATERIAL_RATIO or gap > MATERIAL_GAP)
            remedy = "; more units, not more members, would close that" if far else ""
            lines.append(f"beside infinitely wide layers: s.d. ratio {ratio:.2f}, mean gap {gap:.2f} s.d.{remedy}")
        if self.optimisation is not None and self.optimisation.gradient > 1:
            lines.append("(a ReLU network's minimum lies on kinks, where a gradient is left: what counts is the move)")
        lines.append(f"members for 10 % precision: {self.members_needed(0.1)}; compared at {len(self.mean)} points")
        lines.append(f"reference: {self.reference}")
        return "\n".join(lines)


def certify(
    fitted: object,
    X: ArrayLike,
    y: ArrayLike,
    X_eval: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    max_memory_gb: float = 2.0,
    reference: GaussianProcess | HMC | None = None,
) -> Certificate:
    """Compare a fit with the exact posterior under its own prior, noise, architecture and data.

    Parameters
    ----------
    fitted : a fitted `AnchoredRegressor`, or the `Posterior` of a method with Gaussian noise
    X : the inputs it was fitted to, again
        An estimator recognises its data; a Posterior takes them as its method did (an estimator's `posterior_`:
        standardised).
    y : the targets, again
    sample_weight : the weights, again
    X_eval : rows to compare at, at most 500 of them
        By default, 200 points on lines through pairs of training rows, up to a quarter beyond either end.
    max_memory_gb : float
        The exact posterior needs matrices of rows × rows; it refuses what does not fit.
    reference : None, `methods.GaussianProcess()` or `methods.HMC()`
        What counts as the truth. None is the closed form that suits the fit: given each member's own features where
        the last layer alone is trained, at infinite width otherwise. To rank fits, name one truth for all:
        `GaussianProcess()` is infinite width for every fit; `HMC()` draws from the posterior of the network as it is,
        which takes as long as it takes.

    Examples
    --------
    >>> import numpy as np
    >>> from anchored import AnchoredRegressor, certify
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(40, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=40)
    >>> settings = dict(noise_variance=0.01, prior_scale=2.0, random_state=0)
    >>> exact = AnchoredRegressor(100, (200,), trainable="last_layer", anchoring="randomized", **settings)
    >>> print(certify(exact.fit(X, y), X, y).finding)
    bayesian
    """
    posterior, data, points, y_scale = _read(fitted, X, y, X_eval, sample_weight)
    _check_memory(data, points, max_memory_gb)
    if not isinstance(reference, GaussianProcess | HMC | None):
        raise ValueError(
            f"reference must be None, GaussianProcess() or HMC() of anchored.methods, got {reference!r}, which does "
            "not draw from the exact posterior"
        )
    few = len(data.inputs) < 2000  # threads cost more than they bring to the many factorisations of small matrices
    with threadpool_limits(1 if few else None, user_api="blas"):
        if isinstance(reference, HMC):
            truth = references.sampled(reference, posterior, data, points)
        else:
            truth = (references.nearest if reference is None else references.wide)(posterior, data, points)
        return _certificate(posterior, truth, data, points, y_scale)


def _certificate(
    posterior: Posterior, reference: Reference, data: Data, points: np.ndarray, y_scale: np.ndarray
) -> Certificate:
    target = posterior.target
    noise = references.noise_of(target, data)
    compare = _Comparison(reference.mean, reference.std, noise, y_scale)
    outputs = posterior.outputs(points.astype(posterior.dtype))[..., : data.targets.shape[1]]  # without variance heads
    mean, std = _moments(reference.aligned(outputs))
    own_noise = posterior.predict_numbers(points.astype(posterior.dtype)).aleatoric_variance
    found = compare(mean, std, own_noise)
    n_members = max(1, int(posterior.n_effective))
    perfect = _perfect(compare, reference, n_members)
    predicted = None if reference.predicted is None else compare(*reference.predicted)
    optimisation = _optimisation(posterior, data, points, reference.std)
    to_wide_limit = None
    if len(reference.means) > 1 and isinstance(target.network, MLP | RBFNetwork):
        wide_mean, wide_std = references.wide_process(posterior, data).predict(points, return_std=True)
        to_wide_limit = _Comparison(wide_mean, wide_std, noise, y_scale)(*_moments(outputs), own_noise)
    finding, verdict = diagnose(
        posterior, reference, found, perfect, predicted, optimisation, to_wide_limit, len(data.inputs)
    )
    return Certificate(
        verdict, finding, found, perfect, predicted, optimisation, to_wide_limit, reference.description,
        reference.asymptotic, n_members, len(data.inputs), mean * y_scale, std * y_scale,
        reference.mean * y_scale, reference.std * y_scale,
        None if reference.predicted is None else reference.predicted[1] * y_scale,
    )  # fmt: skip


# What is compared


def _read(
    fitted: object, X: ArrayLike, y: ArrayLike, X_eval: ArrayLike | None, sample_weight: ArrayLike | None
) -> tuple[Posterior, Data, np.ndarray, np.ndarray]:
    """The posterior, its training data and where to compare, all in the units the members were trained in."""
    if isinstance(fitted, Posterior):
        posterior = fitted
        data, points, y_scale = _as_data(X, y, sample_weight), X_eval, np.ones(1)
        points = None if points is None else np.asarray(points, np.float64)
    elif hasattr(fitted, "_for_certificate") and not isinstance(fitted, type):
        posterior, data, points, y_scale = fitted._for_certificate(X, y, X_eval, sample_weight)
    else:
        raise TypeError(
            f"fitted: cannot certify a {type(fitted).__name__}. Pass a fitted AnchoredRegressor (of a pipeline, its "
            "last step, with the data that reach it) or the Posterior of a method."
        )
    points = _points(np.asarray(data.inputs)) if points is None else points
    if points.ndim != data.inputs.ndim or points.shape[1:] != data.inputs.shape[1:] or len(points) == 0:
        raise ValueError(f"X_eval must be rows like those of X, {data.inputs.shape[1:]}, got the shape {points.shape}")
    likelihood = posterior.target.likelihood
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


def _as_data(X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Data:
    """Rows as a method takes them, which is as they were given to its `fit`."""
    inputs, targets = np.asarray(X, np.float64), np.asarray(y, np.float64)
    weights = np.ones(len(targets)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if not len(inputs) == len(targets) == len(weights) > 0:
        raise ValueError(
            f"X, y and sample_weight must have as many rows, got {len(inputs)}, {len(targets)} and {len(weights)}"
        )
    if np.any(weights < 0) or not np.any(weights > 0):
        raise ValueError("sample_weight must not be negative, and some must be positive")
    return Data(inputs, targets.reshape(len(targets), -1), weights.reshape(len(targets), -1))


def _points(inputs: np.ndarray) -> np.ndarray:
    """Points on lines through pairs of rows, up to a quarter beyond either end: in, between and around the data."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(len(inputs), size=(2, N_POINTS))
    along = rng.uniform(-0.25, 1.25, size=(N_POINTS, *[1] * (inputs.ndim - 1)))
    return inputs[first] + along * (inputs[second] - inputs[first])


def _check_memory(data: Data, points: np.ndarray, max_memory_gb: float) -> None:
    if not isinstance(max_memory_gb, int | float) or not max_memory_gb > 0:
        raise ArgumentError("max_memory_gb", f"must be a positive number, got {max_memory_gb!r}")
    n_outputs = data.targets.shape[1]
    needed = 8 * MATRICES * (len(data.inputs) * n_outputs + len(points)) ** 2 / 1e9
    if needed > max_memory_gb:
        most = (int(np.sqrt(max_memory_gb * 1e9 / (8 * MATRICES))) - len(points)) // n_outputs
        raise ArgumentError(
            "max_memory_gb",
            f"is {max_memory_gb:g}, and the exact posterior of {len(data.inputs):,} rows needs about {needed:.1f} GB",
            f"raise it, or fit and certify with at most {max(most, 0):,} rows",
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

    def __call__(self, mean: np.ndarray, std: np.ndarray, own_noise: np.ndarray | None = None) -> dict[str, float]:
        return distances(self.mean, self.std, mean, std, self.noise, own_noise, self.y_scale)


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
        found.append(compare(*_moments(reference.aligned(draws))))
    columns = {name: np.array([one[name] for one in found]) for name in found[0]}
    return {n: Range(float(v.mean()), *np.quantile(v, [0.025, 0.975]).tolist()) for n, v in columns.items()}


def _optimisation(posterior: Posterior, data: Data, points: np.ndarray, exact_std: np.ndarray) -> Optimisation | None:
    """Let some members train on, each about its own anchor and with its own targets."""
    record, model = posterior.record, posterior.target
    if record is None or record.training is None or not isinstance(posterior, MemberPosterior):
        return None
    method = record.method
    if not isinstance(method, AnchoredEnsemble) or getattr(method.solver, "early_stopping", False):
        return None  # a member stopped early is not at its minimum, and is not meant to be
    n_numbers = data.targets.size
    members = np.arange(min(posterior.n_members, MOST_CONTINUED if n_numbers <= 1500 else 3))
    trained, anchors = (trees.take(tree, members) for tree in (trained_parameters(posterior), record.training.anchors))
    key = jax.random.wrap_key_data(jnp.asarray(record.key))
    dtype = jax.tree.leaves(trained)[0].dtype
    rows = Data(*(part.astype(dtype) for part in data))
    lengths, before, after = [], [], []
    with jax.enable_x64(dtype == np.float64):  # targets drawn in the precision the members were trained in
        stack = member_problems(key, method.training_config(), model, rows, members)
    own = model if method.trainable == "all" else _last_layer_free(model, trees.take(trained, 0))
    for i in members.tolist():
        anchor, params = trees.take(anchors, i), trees.take(trained, i)
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
