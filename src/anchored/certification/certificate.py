"""Compare a fit with the exact posterior for the same prior, noise and data.

A certificate distinguishes three causes of a difference:

- Monte-Carlo error, which an ensemble of exact draws from the posterior has too
- incomplete training, since Theorem 1 of the paper assumes that every member reaches the minimum of its loss
- the error that theory predicts for the kind of anchoring
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from threadpoolctl import threadpool_limits

from anchored.certification import references
from anchored.certification.arguments import check_memory, read_arguments
from anchored.certification.comparison import Comparison, distances_of_exact_draws, mean_and_std, train_further
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
from anchored.inference.posterior import Posterior
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.gaussian_process import GaussianProcess
from anchored.methods.hmc import HMC
from anchored.model.networks import MLP, RBFNetwork
from anchored.types import Data, Units


@dataclass(frozen=True)
class Certificate:
    """The result of `certify`. It can be printed, or plotted with `plots.CertificateDisplay`.

    Distances have the following names, where s.d. stands for standard deviation:

    - `mean_gap`: root mean square over points of the difference between means, in s.d. of the posterior
    - `std_ratio`, `std_ratio_low`, `std_ratio_high`: mean, minimum and maximum over points of the ensemble's s.d.
      divided by the posterior's; 1 means equal
    - `kl`: mean over points of KL(exact ‖ ensemble) between the distributions of a noisy observation, in nats
    - `wasserstein`: mean over points of the 2-Wasserstein distance between the marginals without noise, in units of y

    Distances of two fits can be compared if they have the same `reference`.

    Attributes
    ----------
    summary : str
        The finding in one sentence, with its numbers.
    finding : Finding
        The most serious cause of the difference from the exact posterior, or `Finding.BAYESIAN` if none was found.
    distances : dict of str to float
        Distances of the ensemble from the exact posterior.
    distances_of_exact_draws : dict of str to Range
        Distances of ensembles of `n_members` exact draws from the reference.
    predicted : dict of str to float, or None
        Distances that theory predicts for infinitely many members with this anchoring; None if there is no theory.
    optimisation : Optimisation or None
        How far further training moves the members; None if the method is not an anchored ensemble, or uses early
        stopping, or if there is no record of the training.
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
        Mean and s.d. of the ensemble, in units of y. If the reference has one component for each member, they are
        computed after `Reference.aligned`.
    exact_mean, exact_std : (points, outputs) array
        Mean and s.d. of the exact posterior, in units of y.
    predicted_std : (points, outputs) array or None
        S.d. that theory predicts for infinitely many members, in units of y.
    """

    summary: str
    finding: Finding
    distances: dict[str, float]
    distances_of_exact_draws: dict[str, Range]
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
        labels = {
            "mean_gap": "mean gap, posterior s.d.",
            "std_ratio": "s.d. / posterior s.d.",
            "kl": "KL of an observation, nats",
            "wasserstein": "2-Wasserstein, units of y",
        }
        lines = [self.summary, "", f"{'':30}{'measured':>10}{f'{self.n_members} exact draws':>26}{'theory':>10}"]
        for name, label in labels.items():
            exact_draws = self.distances_of_exact_draws[name]
            theory = "" if self.predicted is None else f"{self.predicted[name]:.3f}"
            interval = f"{exact_draws.mean:.3f} ({exact_draws.low:.3f}–{exact_draws.high:.3f})"
            lines.append(f"{label:30}{self.distances[name]:10.3f}{interval:>26}{theory:>10}")
        low, high = self.distances["std_ratio_low"], self.distances["std_ratio_high"]
        lines.append(f"{'s.d. ratio, range over points':30}{f'{low:.2f}–{high:.2f}':>10}")
        if self.optimisation is not None:
            found = self.optimisation
            lines.append(
                f"further training of {found.n_members} members moves the mean by {found.mean_shift:.3f} and the s.d. "
                f"by {found.std_shift:.3f} posterior s.d.; gradient {found.gradient:.2f}"
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
                "(the gradient need not vanish at the minimum of a ReLU network, which may be at a kink; what matters "
                "is how far mean and s.d. move)"
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
        The inputs of the fit. For a Posterior, pass the inputs, targets and weights that its method was given; this is
        not checked. For the `posterior_` of an estimator, these are standardised and encoded inputs, standardised
        targets, and weights that are smaller for outliers.
    y : (rows,) or (rows, outputs) array
        The targets of the fit.
    X_eval : (points, features) array, optional
        Inputs at which marginals are compared. If there are more than 500, they are thinned evenly. By default, 200
        random points on lines through pairs of training rows, up to a quarter of their distance beyond either row.
    sample_weight : (rows,) array, optional
        The weights of the fit.
    max_memory_gb : float
        Memory limit, in GB, for the rows × rows matrices of closed forms and of the further training of members.
    reference : None, `methods.GaussianProcess()` or `methods.HMC()`
        The exact posterior to compare with. None chooses the closed form that suits the fit: the posterior given each
        member's features if only the last layer is trained, otherwise the posterior of infinitely wide layers. To rank
        fits, pass the same reference for all. `GaussianProcess()` is the posterior of infinitely wide layers. `HMC()`
        samples from the posterior of the network itself, which may take long.

    Returns
    -------
    Certificate
        The finding, and the distances and other numbers that it was derived from.

    Raises
    ------
    ArgumentError
        If the data are not those of the fit (checked only for estimators), or need more memory than `max_memory_gb`, or
        if there is no closed form for the network or the likelihood. The error names settings that have one.
    ValueError
        If another argument is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> from anchored import AnchoredRegressor, certify
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-2, 2, size=(100, 2))
    >>> y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * rng.normal(size=100)
    >>> settings = dict(noise_variance=0.01, prior_scale=2.0, random_state=1, activation="relu")
    >>> exact = AnchoredRegressor(100, (300,), trainable="last_layer", anchoring="randomized", **settings)
    >>> print(certify(exact.fit(X, y), X, y).finding)
    bayesian
    """
    posterior, data, points, units = read_arguments(fitted, X, y, X_eval, sample_weight)
    if not isinstance(reference, HMC) or isinstance(references.method_of(posterior), AnchoredEnsemble):
        check_memory(data, points, max_memory_gb)
    if not isinstance(reference, GaussianProcess | HMC | None):
        raise ValueError(
            f"reference must be None, or an exact method of anchored.methods, GaussianProcess() or HMC(), got "
            f"{reference!r}"
        )
    is_small = len(data.inputs) < 2000  # threads would slow down the factorisations of many small matrices
    with threadpool_limits(1 if is_small else None, user_api="blas"):
        if isinstance(reference, HMC):
            exact = references.sampled(reference, posterior, data, points)
        else:
            exact = (references.closed_form if reference is None else references.wide)(posterior, data, points)
        return _certificate(posterior, exact, data, points, units)


def _certificate(
    posterior: Posterior, reference: Reference, data: Data, points: np.ndarray, units: Units
) -> Certificate:
    """Compare `posterior` with `reference` at `points`, all in standardised units, and return the certificate.

    `data` holds the training rows, and `units` are the units of y.
    """
    target = posterior.target
    noise_variance = references.noise_of(target, data)
    compare = Comparison(reference.mean, reference.std, noise_variance, units.scale)
    outputs = posterior.outputs(points.astype(posterior.dtype))
    outputs = outputs[..., : data.targets.shape[1]]  # without log-variance outputs
    n_members = max(1, int(posterior.n_effective))
    if len(reference.means) > 1:  # each member is compared with a component of its own
        outputs, n_members = outputs[: len(reference.means)], min(n_members, len(reference.means))
    mean, std = mean_and_std(reference.aligned(outputs))
    fit_noise_variance = posterior.predict_regression(points.astype(posterior.dtype)).aleatoric_variance
    measured = compare(mean, std, fit_noise_variance)
    exact_draws = distances_of_exact_draws(compare, reference, n_members)
    predicted = None if reference.predicted is None else compare(*reference.predicted)
    optimisation = train_further(posterior, data, points, reference.std)
    to_wide_limit = None
    if len(reference.means) > 1 and isinstance(target.network, MLP | RBFNetwork):
        wide_mean, wide_std = references.wide_process(posterior, data).predict(points, return_std=True)
        compare_with_limit = Comparison(wide_mean, wide_std, noise_variance, units.scale)
        to_wide_limit = compare_with_limit(*mean_and_std(outputs), fit_noise_variance)
    finding, summary = diagnose(
        posterior, reference, measured, exact_draws, predicted, optimisation, to_wide_limit, len(data.inputs)
    )
    return Certificate(
        summary, finding, measured, exact_draws, predicted, optimisation, to_wide_limit, reference.description,
        reference.asymptotic, n_members, len(data.inputs), mean * units.scale + units.mean,
        std * units.scale, reference.mean * units.scale + units.mean, reference.std * units.scale,
        None if reference.predicted is None else reference.predicted[1] * units.scale,
    )  # fmt: skip
