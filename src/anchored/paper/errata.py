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
        "C Σp⁻¹ C⁻¹ Σp C⁻¹ (with C = Σp⁻¹ + Σ_like⁻¹): factors in the wrong order and inverted. For isotropic Σp the "
        "product is the posterior's covariance itself.",
        "Σ₀ = Σp C Σp = Σp + Σp A Σp, with A the precision of the likelihood. A may be singular, since "
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
        "(λ₁³ + λ₁²λ₂)I: the same error, and λ₂, a variance, inverted.",
        "(λ₁ + λ₁²/λ₂)I. Even so it is a poor approximation if the data determine some directions well.",
        ("figure_8", "theorem"),
    ),
    Erratum(
        "“regularised about their initialisation values”",
        "Anchors from the plain prior, Σ₀ = Σp, do not give the posterior: the covariance P Σp⁻¹ P is too small by "
        "P A P, with P the posterior's covariance.",
        "Add noise of the observations' variance to each member's targets, drawn once: the covariance is then P, "
        "exactly so for linear models and for the last layer.",
        ("theorem", "convergence"),
    ),
    Erratum(
        "“converges to the corresponding GP”",
        "Not if all layers are trained: a wide network is then linear in all its parameters, and the limit is another "
        "process.",
        "Exact if only the last layer is trained, with noisy targets (Proposition 1). The other limit is known in "
        "closed form, and is close.",
        ("convergence", "figure_1"),
    ),
    Erratum(
        "eq. 2, one λ",
        "One λ for all parameters, and in the released code a division by the size of the batch instead of N.",
        "λ = σ²/s² for each layer's own prior variance s², divided by N, the number of rows, on a minibatch too.",
        (),
    ),
)
