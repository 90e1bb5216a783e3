"""What to make of the distances between a fit and the exact posterior: one finding, and one sentence."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from anchored.certification.references import Reference, method_of
from anchored.inference.posterior import Posterior

COLLAPSED = 0.2  # of the posterior's standard deviation
FEW_UNITS = 1.0  # posterior s.d. from the mean of infinitely wide layers, or half or twice their s.d.
COARSE = 0.15  # relative Monte-Carlo error of a standard deviation above which it dominates
MATERIAL_RATIO, MATERIAL_GAP = 0.1, 0.25  # departures worth a word: of the ratio from 1, of the mean in posterior s.d.
STEEP = 5.0  # √rows: a gradient that no kink of a ReLU explains
UNCONVERGED = 0.25  # posterior s.d. by which further training would still move mean or spread


class Finding(StrEnum):
    """What a certificate says of a fit, in a word."""

    BAYESIAN = "bayesian"
    TOO_FEW_MEMBERS = "too few members"
    TOO_FEW_UNITS = "too few units"
    NOT_CONVERGED = "not converged"
    COLLAPSED = "collapsed"
    TOO_NARROW = "too narrow"
    TOO_WIDE = "too wide"
    UNEVEN = "uneven"
    SHIFTED = "shifted"


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


def members_needed(precision: float) -> int:
    """Members for a relative error of the s.d., and of the mean in s.d., of at most `precision`."""
    if not 0 < precision < 1:
        raise ValueError(f"precision must lie between 0 and 1, got {precision!r}")
    return int(np.ceil(max(1 + 1 / (2 * precision**2), 1 / precision**2)))


def diagnose(
    posterior: Posterior,
    reference: Reference,
    distances: dict[str, float],
    perfect: dict[str, Range],
    predicted: dict[str, float] | None,
    optimisation: Optimisation | None,
    to_wide_limit: dict[str, float] | None,
    n_rows: int,
) -> tuple[Finding, str]:
    """What separates a fit from the exact posterior, the gravest first.

    Args:
        posterior: The fit.
        reference: The exact posterior.
        distances: From the one to the other, by name.
        perfect: The same for as many draws from the exact posterior.
        predicted: The same for infinitely many members of this kind, where theory tells.
        optimisation: What further training would change, where it is known.
        to_wide_limit: Distances to infinitely wide layers, where the reference is not that already.
        n_rows: Of the training data.

    Returns:
        The finding, and a sentence with its numbers.
    """
    n_members, ratio, chance = int(posterior.n_effective), distances["std_ratio"], perfect["std_ratio"]
    allowed = f"{chance.low:.2f}–{chance.high:.2f}"
    excess_gap = np.sqrt(max(distances["mean_gap"] ** 2 - perfect["mean_gap"].mean ** 2, 0))
    where = " at infinite width" if reference.asymptotic else ""
    theory = "" if predicted is None else f" (theory for this anchoring{where}: {predicted['std_ratio']:.2f})"
    given = " for their features" if len(reference.means) > 1 else ""
    if optimisation is not None:
        moved = max(optimisation.mean_shift, optimisation.std_shift)
        if moved > UNCONVERGED:
            return Finding.NOT_CONVERGED, (
                f"Not converged: further training would still move the ensemble by {moved:.2f} posterior standard "
                "deviations; raise max_iter or learning_rate_init before trusting its spread."
            )
        if optimisation.gradient > STEEP * np.sqrt(n_rows):
            return Finding.NOT_CONVERGED, (
                f"Not converged: the gradient is {optimisation.gradient:.0f} posterior standard deviations long, and "
                "no step was found that helps; train longer, or look at noise_variance and the scale of the data."
            )
    if n_members < 2:
        return Finding.TOO_FEW_MEMBERS, "One member has no spread: at least two are needed, and some fifty to trust it."
    expected = predicted is not None and predicted["std_ratio"] < 2 * COLLAPSED
    to_one_point = getattr(method_of(posterior), "pulls_to_one_point", False)
    if ratio < chance.low and (to_one_point or (ratio < COLLAPSED and not expected)):
        cause = (
            "since they are pulled towards one point, not about draws from the prior"
            if to_one_point
            else "so they agree far more than the posterior allows"
        )
        return (
            Finding.COLLAPSED,
            f"Collapsed: the members' standard deviation is {ratio:.1%} of the posterior's, {cause}.",
        )
    if not chance.low <= ratio <= chance.high and abs(ratio - 1) > MATERIAL_RATIO:
        side = "narrow" if ratio < 1 else "wide"
        return Finding.TOO_NARROW if ratio < 1 else Finding.TOO_WIDE, (
            f"Too {side}: the members' standard deviation is {ratio:.2f} of the posterior's{theory}, outside the "
            f"{allowed} that chance allows {n_members} members."
        )
    low, high = distances["std_ratio_low"], distances["std_ratio_high"]
    if low < 0.8 * perfect["std_ratio_low"].low or high > 1.25 * perfect["std_ratio_high"].high:
        return Finding.UNEVEN, (
            f"Uneven: right on average, the members' standard deviation is {low:.2f} to {high:.2f} of the posterior's "
            f"from point to point, more than chance does to {n_members} members."
        )
    if distances["mean_gap"] > perfect["mean_gap"].high and excess_gap > MATERIAL_GAP:
        return Finding.SHIFTED, (
            f"Shifted: the ensemble's mean is {excess_gap:.2f} posterior standard deviations off beyond what chance "
            f"does to {n_members} members, though its spread is right."
        )
    coarse = 1 / np.sqrt(2 * (n_members - 1))
    if coarse > COARSE:
        return Finding.TOO_FEW_MEMBERS, (
            f"Too few members: Monte-Carlo error dominates, since {n_members} members know each standard deviation to "
            f"±{coarse:.0%} only; nothing worse is seen, and {members_needed(0.1)} would know it to ±7 %."
        )
    if to_wide_limit is not None:
        wide_ratio, gap = to_wide_limit["std_ratio"], to_wide_limit["mean_gap"]
        if not 0.5 < wide_ratio < 2 or gap > FEW_UNITS:
            return Finding.TOO_FEW_UNITS, (
                f"Too few units: the members are drawn rightly{given}, which are so few that beside infinitely wide "
                f"layers the standard deviation is {wide_ratio:.2f} and the mean {gap:.1f} standard deviations off."
            )
    if not chance.low <= ratio <= chance.high:
        return Finding.BAYESIAN, (
            f"Bayesian to within 10 %: the members' standard deviation is {ratio:.2f} of the exact posterior's{given}, "
            f"where chance alone would leave {n_members} members at {allowed}."
        )
    return Finding.BAYESIAN, (
        f"Bayesian: the members cannot be told from {n_members} draws of the exact posterior{given} (standard "
        f"deviation {ratio:.2f} of its own, where chance allows {allowed})."
    )
