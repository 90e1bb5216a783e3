"""Compare a fit with the exact posterior for the same prior, noise and data.

A certificate distinguishes three causes of a difference: Monte-Carlo error, which exact draws from the posterior, as
many as there are members, have too; incomplete training, since Theorem 1 of the paper assumes that every member reaches
the minimum of its loss; and the error that theory predicts for the kind of anchoring.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from anchored.certification import references
from anchored.certification.comparison import Comparison, distances_of_exact_draws, moments, train_further
from anchored.certification.diagnosis import (
    MATERIAL_GAP,
    MATERIAL_RATIO,
    Finding,
    Optimisation,
    Range,
    diagnose,
    members_needed,
)
from anchored.certification.references import Reference
from anchored.errors import ArgumentError
from anchored.inference.posterior import Posterior
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.gaussian_process import GaussianProcess
from anchored.methods.hmc import HMC
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP, RBFNetwork
from anchored.types import Data, Units

N_POINTS = 200  # number of points at which marginals are compared, by default
MAX_POINTS = 500  # largest number of such points; more are thinned out
N_MATRICES = 8  # matrices of rows × rows that are in memory at the same time


@dataclass(frozen=True)
class Certificate:
    """The result of `certify`; `print` it, or plot it with `plots.CertificateDisplay`.

    Distances have these names: `mean_gap`, the root mean square over points of the difference between means, in
    posterior standard deviations (s.d.); `std_ratio`, `std_ratio_low` and `std_ratio_high`, the mean, minimum and
    maximum over points of the ensemble's s.d. divided by the posterior's, where 1 means equal; `kl`, the mean over
    points of KL(exact ‖ ensemble) between the distributions of a noisy observation, in nats; `wasserstein`, the mean
    over points of the 2-Wasserstein distance between the marginals without noise, in units of y. Distances of two fits
    can be compared if their `reference` is the same.

    Attributes
    ----------
    summary : str
        The finding in one sentence, with its numbers.
    finding : Finding
        The most serious cause of the difference from the exact posterior, or `Finding.BAYESIAN` if none was found.
    distances : dict of str to float
        Distances of the ensemble from the exact posterior.
    perfect : dict of str to Range
        Distances of perfect draws: ensembles of `n_members` exact draws from the reference.
    predicted : dict of str to float, or None
        Distances that theory predicts for infinitely many members with this anchoring; None if there is no theory.
    optimisation : Optimisation or None
        How far further training moves the members; None if the method is not an anchored ensemble, or stops early.
    to_wide_limit : dict of str to float, or None
        Distances from the posterior of infinitely wide layers; None unless the reference is the posterior given each
        member's features.
    reference : str
        Description of the exact posterior.
    asymptotic : bool
        Whether the reference is the limit of infinite width, which the network only approximates.
    n_members : int
        Effective number of independent members.
    n_rows : int
        Number of training rows.
    mean, std : (points, outputs) array
        Mean and s.d. of the ensemble, in units of y; where each member has a reference of its own, after
        `Reference.aligned`.
    exact_mean, exact_std : (points, outputs) array
        Mean and s.d. of the exact posterior, in units of y.
    predicted_std : (points, outputs) array or None
        S.d. that theory predicts for infinitely many members, in units of y.
    """

    summary: str
    finding: Finding
    distances: dict[str, float]
    perfect: dict[str, Range]
    predicted: dict[str, float] | None
    optimisation: Optimisation | None
    to_wide_limit: dict[str, float] | None
    reference: str
    asymptotic: bool
    n_members: int
    n_rows: int
    mean: np.ndarray
    std: np.ndarray
    exact_mean: np.ndarray
    exact_std: np.ndarray
    predicted_std: np.ndarray | None

    @staticmethod
    def members_needed(precision: float = 0.1) -> int:
        """Return the number of members for which the Monte-Carlo error is at most `precision`, between 0 and 1.

        This holds for the relative error of the s.d., and for the error of the mean divided by the s.d.
        """
        return members_needed(precision)

    def __str__(self) -> str:
        names = {
            "mean_gap": "mean gap, posterior s.d.",
            "std_ratio": "s.d. / posterior s.d.",
            "kl": "KL of an observation, nats",
            "wasserstein": "2-Wasserstein, units of y",
        }
        lines = [self.summary, "", f"{'':30}{'measured':>10}{f'{self.n_members} perfect draws':>26}{'theory':>10}"]
        for name, label in names.items():
            perfect = self.perfect[name]
            theory = "" if self.predicted is None else f"{self.predicted[name]:.3f}"
            interval = f"{perfect.mean:.3f} ({perfect.low:.3f}–{perfect.high:.3f})"
            lines.append(f"{label:30}{self.distances[name]:10.3f}{interval:>26}{theory:>10}")
        low, high = self.distances["std_ratio_low"], self.distances["std_ratio_high"]
        lines.append(f"{'s.d. ratio, range over points':30}{f'{low:.2f}–{high:.2f}':>10}")
        if self.optimisation is not None:
            o = self.optimisation
            lines.append(
                f"further training of {o.n_members} members moves the mean by {o.mean_shift:.3f} and the s.d. by "
                f"{o.std_shift:.3f} posterior s.d.; gradient {o.gradient:.2f}"
            )
        if self.to_wide_limit is not None:
            ratio, gap = self.to_wide_limit["std_ratio"], self.to_wide_limit["mean_gap"]
            is_far = abs(ratio - 1) > MATERIAL_RATIO or gap > MATERIAL_GAP
            needs_units = self.finding is Finding.BAYESIAN and is_far
            remedy = "; use more units, not more members, to reduce this" if needs_units else ""
            lines.append(
                f"compared with infinitely wide layers: s.d. ratio {ratio:.2f}, mean gap {gap:.2f} s.d.{remedy}"
            )
        if self.optimisation is not None and self.optimisation.gradient > 1:
            lines.append(
                "(the gradient need not vanish at the minimum of a ReLU network, which may be at a kink; how far mean "
                "and s.d. move is what matters)"
            )
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
    """Compare a fit with the exact posterior for the same prior, noise, architecture and data.

    Parameters
    ----------
    fitted : AnchoredRegressor, BayesianRegressor or Posterior
        A fitted estimator, or the posterior of a method, with the Gaussian likelihood.
    X : (rows, features) array
        The inputs that it was fitted to. For a Posterior, pass inputs, targets and weights as its method received
        them, which is not checked: for an estimator's `posterior_`, standardised and encoded inputs, standardised
        targets, and weights that are smaller for outliers.
    y : (rows,) or (rows, outputs) array
        The targets that it was fitted to.
    X_eval : (points, features) array, optional
        Inputs at which marginals are compared; of more than 500, an even selection is used. By default, 200 random
        points on lines through pairs of training rows, up to a quarter of their distance beyond either row.
    sample_weight : (rows,) array, optional
        The weights that it was fitted with.
    max_memory_gb : float
        Memory limit, in GB, of the matrices of rows × rows that closed forms and the further training of members need.
    reference : None, `methods.GaussianProcess()` or `methods.HMC()`
        The exact posterior to compare with. None chooses the closed form that suits the fit: the posterior given each
        member's features if only the last layer is trained, otherwise that of infinitely wide layers. To rank fits,
        pass the same reference for all: `GaussianProcess()` is the posterior of infinitely wide layers, and `HMC()`
        samples from the posterior of the network itself, which may take long.

    Returns
    -------
    Certificate
        The finding, the distances, and the numbers that it was derived from.

    Raises
    ------
    ArgumentError
        If the data are not those of the fit (known only of estimators), or need more memory than `max_memory_gb`.
    ValueError
        If there is no exact posterior for the likelihood or the network.

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
    posterior, data, points, units = _read_arguments(fitted, X, y, X_eval, sample_weight)
    if not isinstance(reference, HMC) or isinstance(references.method_of(posterior), AnchoredEnsemble):
        _check_memory(data, points, max_memory_gb)
    if not isinstance(reference, GaussianProcess | HMC | None):
        raise ValueError(
            f"reference must be None, or GaussianProcess() or HMC() of anchored.methods, which are exact; got "
            f"{reference!r}"
        )
    is_small = len(data.inputs) < 2000  # threads would slow down the many factorisations of small matrices
    with threadpool_limits(1 if is_small else None, user_api="blas"):
        if isinstance(reference, HMC):
            exact = references.sampled(reference, posterior, data, points)
        else:
            exact = (references.nearest if reference is None else references.wide)(posterior, data, points)
        return _certificate(posterior, exact, data, points, units)


def _certificate(
    posterior: Posterior, reference: Reference, data: Data, points: np.ndarray, units: Units
) -> Certificate:
    """Compare `posterior` with `reference` at `points`, all in standardised units; `units` are those of y."""
    target = posterior.target
    noise_variance = references.noise_of(target, data)
    compare = Comparison(reference.mean, reference.std, noise_variance, units.scale)
    outputs = posterior.outputs(points.astype(posterior.dtype))[
        ..., : data.targets.shape[1]
    ]  # without outputs for the noise
    n_members = max(1, int(posterior.n_effective))
    if len(reference.means) > 1:  # each member is compared with a component of its own
        outputs, n_members = outputs[: len(reference.means)], min(n_members, len(reference.means))
    mean, std = moments(reference.aligned(outputs))
    fit_noise_variance = posterior.predict_regression(points.astype(posterior.dtype)).aleatoric_variance
    measured = compare(mean, std, fit_noise_variance)
    perfect = distances_of_exact_draws(compare, reference, n_members)
    predicted = None if reference.predicted is None else compare(*reference.predicted)
    optimisation = train_further(posterior, data, points, reference.std)
    to_wide_limit = None
    if len(reference.means) > 1 and isinstance(target.network, MLP | RBFNetwork):
        wide_mean, wide_std = references.wide_process(posterior, data).predict(points, return_std=True)
        compare_with_limit = Comparison(wide_mean, wide_std, noise_variance, units.scale)
        to_wide_limit = compare_with_limit(*moments(outputs), fit_noise_variance)
    finding, summary = diagnose(
        posterior, reference, measured, perfect, predicted, optimisation, to_wide_limit, len(data.inputs)
    )
    return Certificate(
        summary, finding, measured, perfect, predicted, optimisation, to_wide_limit, reference.description,
        reference.asymptotic, n_members, len(data.inputs), mean * units.scale + units.mean,
        std * units.scale, reference.mean * units.scale + units.mean, reference.std * units.scale,
        None if reference.predicted is None else reference.predicted[1] * units.scale,
    )  # fmt: skip


# Arguments


def _read_arguments(
    fitted: object, X: ArrayLike, y: ArrayLike, X_eval: ArrayLike | None, sample_weight: ArrayLike | None
) -> tuple[Posterior, Data, np.ndarray, Units]:
    """Check the arguments of `certify`; return the posterior, its training rows, the points, and the units of y.

    Rows and points are in the units that the members were trained in.
    """
    if isinstance(fitted, Posterior):
        posterior = fitted
        data, points, units = _as_data(X, y, sample_weight), X_eval, Units()
        points = None if points is None else np.asarray(points, np.float64)
    elif hasattr(fitted, "_for_certificate") and not isinstance(fitted, type):
        posterior, data, points, units = fitted._for_certificate(X, y, X_eval, sample_weight)
    else:
        raise TypeError(
            f"fitted: cannot certify a {type(fitted).__name__}. Pass a fitted AnchoredRegressor (for a pipeline, its "
            "last step and the data transformed by the other steps) or the Posterior of a method."
        )
    points = _points(np.asarray(data.inputs)) if points is None else points
    if points.ndim != data.inputs.ndim or points.shape[1:] != data.inputs.shape[1:] or len(points) == 0:
        raise ValueError(f"X_eval must have rows of shape {data.inputs.shape[1:]}, as X has, got {points.shape}")
    likelihood = posterior.target.likelihood
    if not isinstance(likelihood, Gaussian):
        raise ValueError(
            f"fitted: there is no closed form for the posterior with a {type(likelihood).__name__} "
            "likelihood; only regression with Gaussian noise can be certified"
        )
    has_weight = data.weights.min(axis=1) > 0
    data = Data(*(np.asarray(part, np.float64)[has_weight] for part in data))
    if len(points) > MAX_POINTS:
        points = points[np.linspace(0, len(points) - 1, MAX_POINTS).astype(int)]
    return posterior, data, points, units


def _as_data(X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Data:
    """Return the training rows as a method receives them, in float64; raise a ValueError if they are invalid."""
    inputs, targets = np.asarray(X, np.float64), np.asarray(y, np.float64)
    weights = np.ones(len(targets)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if not len(inputs) == len(targets) == len(weights) > 0:
        raise ValueError(
            f"X, y and sample_weight must have the same number of rows, at least one, got {len(inputs)}, "
            f"{len(targets)} and {len(weights)}"
        )
    if np.any(weights < 0) or not np.any(weights > 0):
        raise ValueError("sample_weight must not be negative, and at least one must be positive")
    return Data(inputs, targets.reshape(len(targets), -1), weights.reshape(len(targets), -1))


def _points(inputs: np.ndarray) -> np.ndarray:
    """Return N_POINTS random points on lines through pairs of rows, up to a quarter of their distance beyond a row."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(len(inputs), size=(2, N_POINTS))
    position = rng.uniform(
        -0.25, 1.25, size=(N_POINTS, *[1] * (inputs.ndim - 1))
    )  # 0 at the first row, 1 at the second
    return inputs[first] + position * (inputs[second] - inputs[first])


def _check_memory(data: Data, points: np.ndarray, max_memory_gb: float) -> None:
    """Raise an ArgumentError if the exact posterior at `points` needs more memory than `max_memory_gb`."""
    if not isinstance(max_memory_gb, int | float) or not max_memory_gb > 0:
        raise ArgumentError("max_memory_gb", f"must be a positive number, got {max_memory_gb!r}")
    n_outputs = data.targets.shape[1]
    needed = 8 * N_MATRICES * (len(data.inputs) * n_outputs + len(points)) ** 2 / 1e9
    if needed > max_memory_gb:
        max_rows = (int(np.sqrt(max_memory_gb * 1e9 / (8 * N_MATRICES))) - len(points)) // n_outputs
        raise ArgumentError(
            "max_memory_gb",
            f"is {max_memory_gb:g}, but the exact posterior of {len(data.inputs):,} rows needs about {needed:.1f} GB",
            f"raise it, or fit and certify with at most {max(max_rows, 0):,} rows",
        )
