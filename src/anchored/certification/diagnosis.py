"""Derive a finding, and a sentence that explains it, from the distances between a fit and the exact posterior."""

from enum import StrEnum

import numpy as np

from anchored.certification.distances import Optimisation, Range
from anchored.certification.references import Reference, method_of
from anchored.inference.posterior import Posterior

# Thresholds. A standard deviation is abbreviated s.d., and "posterior s.d." is the unit of differences between means.
MIN_RATIO = 0.2  # an ensemble is collapsed if its s.d., divided by the posterior's, is smaller
MAX_GAP_TO_LIMIT = 1.0  # there are too few units if the mean is farther from the mean of infinitely wide layers
MAX_RELATIVE_ERROR = 0.15  # there are too few members if the relative Monte-Carlo error of an s.d. is larger
MATERIAL_RATIO = 0.1  # a difference between the ratio of s.d. and 1 is ignored if it is smaller
MATERIAL_GAP = 0.25  # a mean gap, in posterior s.d., is ignored if it is smaller
MAX_GRADIENT = 5.0  # gradient, divided by √rows; the kinks of ReLUs cannot explain a larger one
MAX_SHIFT = 0.25  # members have not converged if further training moves mean or s.d. by more, in posterior s.d.


class Finding(StrEnum):
    """The most serious cause of a difference between a fit and the exact posterior; BAYESIAN if none was found."""

    BAYESIAN = "bayesian"
    TOO_FEW_MEMBERS = "too few members"
    TOO_FEW_UNITS = "too few units"
    NOT_CONVERGED = "not converged"
    COLLAPSED = "collapsed"
    TOO_NARROW = "too narrow"
    TOO_WIDE = "too wide"
    UNEVEN = "uneven"
    SHIFTED = "shifted"


Diagnosis = tuple[Finding, str]  # the finding, and a sentence that explains it with numbers


def members_needed(precision: float) -> int:
    """Return the number of members for which the Monte-Carlo error is at most `precision`, between 0 and 1.

    This holds for the relative error of the s.d., and for the error of the mean divided by the s.d.
    """
    if not 0 < precision < 1:
        raise ValueError(f"precision must lie between 0 and 1, got {precision!r}")
    return int(np.ceil(max(1 + 1 / (2 * precision**2), 1 / precision**2)))


def diagnose(
    posterior: Posterior,
    reference: Reference,
    distances: dict[str, float],
    exact_draws: dict[str, Range],
    predicted: dict[str, float] | None,
    optimisation: Optimisation | None,
    to_wide_limit: dict[str, float] | None,
    n_rows: int,
) -> Diagnosis:
    """Find the most serious cause of the difference between a fit and the exact posterior.

    Parameters
    ----------
    posterior : Posterior
        The fit.
    reference : Reference
        The exact posterior.
    distances : dict of str to float
        Distances between the two.
    exact_draws : dict of str to Range
        Distances of ensembles of as many exact draws from the reference as there are members.
    predicted : dict of str to float, or None
        Distances that theory predicts for infinitely many members with this anchoring; None if there is no theory.
    optimisation : Optimisation or None
        How far further training moves the members; None if the method is not an anchored ensemble, or uses early
        stopping.
    to_wide_limit : dict of str to float, or None
        Distances from the posterior of infinitely wide layers; None unless the reference is the posterior given each
        member's features.
    n_rows : int
        Number of training rows.

    Returns
    -------
    finding : Finding
        The cause.
    summary : str
        A sentence that explains it with numbers.
    """
    n_members = int(posterior.n_effective)
    at_width = " at infinite width" if reference.asymptotic else ""
    theory = "" if predicted is None else f" (theory for this anchoring{at_width}: {predicted['std_ratio']:.2f})"
    given_features = " given their features" if len(reference.means) > 1 else ""
    not_converged = None if optimisation is None else _not_converged(optimisation, n_rows)
    if not_converged is not None:
        return not_converged
    if n_members < 2:
        summary = "One member has no spread: use at least two members, and about fifty for a reliable spread."
        return Finding.TOO_FEW_MEMBERS, summary
    is_predicted = predicted is not None and predicted["std_ratio"] < 2 * MIN_RATIO
    has_shared_anchor = getattr(method_of(posterior), "has_shared_anchor", False)
    return (
        _collapsed(distances, exact_draws, has_shared_anchor, is_predicted)
        or _wrong_spread(distances, exact_draws, n_members, theory)
        or _shifted(distances, exact_draws, n_members)
        or _too_few(n_members, to_wide_limit, given_features)
        or _bayesian(distances, exact_draws, n_members, given_features)
    )


# Each function below takes some arguments of `diagnose`, and returns a diagnosis, or None if it does not apply.


def _not_converged(optimisation: Optimisation, n_rows: int) -> Diagnosis | None:
    """Diagnose that further training would change the ensemble."""
    shift = max(optimisation.mean_shift, optimisation.std_shift)
    if shift > MAX_SHIFT:
        return Finding.NOT_CONVERGED, (
            f"Not converged: further training would move the ensemble by {shift:.2f} posterior standard deviations; "
            "raise max_iter or learning_rate_init before trusting its spread."
        )
    if optimisation.gradient > MAX_GRADIENT * np.sqrt(n_rows):
        return Finding.NOT_CONVERGED, (
            f"Not converged: the gradient is {optimisation.gradient:.0f} posterior standard deviations long, but no "
            "step reduces the loss; train longer, or check noise_variance and the scale of the data."
        )
    return None


def _collapsed(
    distances: dict[str, float], exact_draws: dict[str, Range], has_shared_anchor: bool, is_predicted: bool
) -> Diagnosis | None:
    """Diagnose that members agree far too much.

    `has_shared_anchor` says whether all members are regularised towards the same point, and `is_predicted` whether
    theory predicts a spread nearly as small.
    """
    ratio = distances["std_ratio"]
    if ratio >= exact_draws["std_ratio"].low or not (has_shared_anchor or (ratio < MIN_RATIO and not is_predicted)):
        return None
    cause = (
        "since all are regularised towards the same point, not towards draws from the prior"
        if has_shared_anchor
        else "so they agree far more than the posterior allows"
    )
    summary = f"Collapsed: the members' standard deviation is {ratio:.1%} of the posterior's, {cause}."
    return Finding.COLLAPSED, summary


def _wrong_spread(
    distances: dict[str, float], exact_draws: dict[str, Range], n_members: int, theory: str
) -> Diagnosis | None:
    """Diagnose that the standard deviation is wrong, on average or at some points.

    `theory` is what theory predicts, in brackets, or an empty text.
    """
    ratio, exact_ratio = distances["std_ratio"], exact_draws["std_ratio"]
    if not exact_ratio.low <= ratio <= exact_ratio.high and abs(ratio - 1) > MATERIAL_RATIO:
        finding = Finding.TOO_NARROW if ratio < 1 else Finding.TOO_WIDE
        return finding, (
            f"{finding.capitalize()}: the members' standard deviation is {ratio:.2f} times the posterior's{theory}, "
            f"outside the range {_as_text(exact_ratio)} that Monte-Carlo error explains for {n_members} members."
        )
    low, high = distances["std_ratio_low"], distances["std_ratio_high"]
    if low < 0.8 * exact_draws["std_ratio_low"].low or high > 1.25 * exact_draws["std_ratio_high"].high:
        return Finding.UNEVEN, (
            f"Uneven: the members' standard deviation is right on average, but varies from {low:.2f} to {high:.2f} "
            f"times the posterior's between points, more than Monte-Carlo error explains for {n_members} members."
        )
    return None


def _shifted(distances: dict[str, float], exact_draws: dict[str, Range], n_members: int) -> Diagnosis | None:
    """Diagnose that the mean is wrong."""
    excess = np.sqrt(max(distances["mean_gap"] ** 2 - exact_draws["mean_gap"].mean ** 2, 0))
    if distances["mean_gap"] <= exact_draws["mean_gap"].high or excess <= MATERIAL_GAP:
        return None
    return Finding.SHIFTED, (
        f"Shifted: the ensemble's mean is off by {excess:.2f} posterior standard deviations more than Monte-Carlo "
        f"error explains for {n_members} members, though its spread is right."
    )


def _too_few(n_members: int, to_wide_limit: dict[str, float] | None, given_features: str) -> Diagnosis | None:
    """Diagnose that there are too few members, or too few units.

    `given_features` says in words what the posterior is conditioned on, besides the data.
    """
    relative_error = 1 / np.sqrt(2 * (n_members - 1))
    if relative_error > MAX_RELATIVE_ERROR:
        return Finding.TOO_FEW_MEMBERS, (
            f"Too few members: no other problem was found, but {n_members} members have a Monte-Carlo error of "
            f"±{relative_error:.0%} for each standard deviation; {members_needed(0.1)} members have ±7 %."
        )
    if to_wide_limit is None:
        return None
    ratio, gap = to_wide_limit["std_ratio"], to_wide_limit["mean_gap"]
    if 0.5 < ratio < 2 and gap <= MAX_GAP_TO_LIMIT:
        return None
    return Finding.TOO_FEW_UNITS, (
        f"Too few units: the members follow the exact posterior{given_features}, but compared with infinitely wide "
        f"layers their standard deviation is {ratio:.2f} times as large, and their mean is off by {gap:.1f} "
        "standard deviations."
    )


def _bayesian(
    distances: dict[str, float], exact_draws: dict[str, Range], n_members: int, given_features: str
) -> Diagnosis:
    """Return the diagnosis if no problem was found."""
    ratio, exact_ratio = distances["std_ratio"], exact_draws["std_ratio"]
    if not exact_ratio.low <= ratio <= exact_ratio.high:
        return Finding.BAYESIAN, (
            f"Bayesian to within 10 %: the members' standard deviation is {ratio:.2f} times the exact "
            f"posterior's{given_features}, where {n_members} exact draws would have {_as_text(exact_ratio)}."
        )
    return Finding.BAYESIAN, (
        f"Bayesian: the members cannot be distinguished from {n_members} draws of the exact posterior{given_features} "
        f"(standard deviation {ratio:.2f} times the posterior's, where exact draws have "
        f"{_as_text(exact_ratio)})."
    )


def _as_text(interval: Range) -> str:
    """Return the central 95 % interval as text."""
    return f"{interval.low:.2f}–{interval.high:.2f}"
