"""The errata of the paper."""

from typing import NamedTuple


class Erratum(NamedTuple):
    """An error in the paper and its correction."""

    place: str  # in the paper
    printed: str  # what the paper says, and what is wrong with it
    right: str  # the correction
    figures: tuple[str, ...]  # names of the figures that show it


ERRATA = (
    Erratum(
        "eq. 30",
        "C Σp⁻¹ C⁻¹ Σp C⁻¹, where C = Σp⁻¹ + Σ_like⁻¹. The factors are in the wrong order, and inverted. For isotropic "
        "Σp the product is the posterior's covariance itself.",
        "Σ₀ = Σp C Σp = Σp + Σp A Σp, where A is the precision of the likelihood. A may be singular, since "
        "it is not inverted.",
        ("theorem",),
    ),
    Erratum(
        "eq. 31",
        "λ₁³I + λ₁²Σ_like⁻¹, which is right only for λ₁ = 1.",
        "λ₁I + λ₁²Σ_like⁻¹.",
        ("figure_8",),
    ),
    Erratum(
        "eq. 33, and λ₃ after it",
        "(λ₁³ + λ₁²λ₂)I. It has the same error, and the variance λ₂ is inverted.",
        "(λ₁ + λ₁²/λ₂)I. This is still a poor approximation if the data determine some directions well.",
        ("figure_8", "theorem"),
    ),
    Erratum(
        "“regularised about their initialisation values”",
        "Anchors from the prior itself, Σ₀ = Σp, do not give the posterior: the covariance P Σp⁻¹ P is too small by "
        "P A P, where P is the posterior's covariance.",
        "Add noise with the variance of the observations to each member's targets, drawn once. Then the covariance is "
        "P, exactly for linear models and for the last layer.",
        ("theorem", "convergence"),
    ),
    Erratum(
        "“converges to the corresponding GP”",
        "This is not true if all layers are trained: a wide network is then linear in all its parameters, and the "
        "limit is another process.",
        "It is exactly true if only the last layer is trained, with noisy targets (Proposition 1). The limit for all "
        "layers is known in closed form, and is close.",
        ("convergence", "figure_1"),
    ),
    Erratum(
        "eq. 2, one λ",
        "There is one λ for all parameters. The released code divides by the size of the batch instead of N.",
        "Each layer has its own λ = σ²/s², where s² is the prior variance of the layer. Divide by N, the number of "
        "rows, even on a minibatch.",
        (),
    ),
)
