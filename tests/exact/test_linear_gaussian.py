"""The corrected Theorem 1: distributions of anchored solutions against explicit matrices and samples."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import linalg

from anchored.exact.linear_gaussian import LinearGaussian, Normal, cross_validated_kappa
from anchored.paper.experiments.figure_8 import printed_equation_31, printed_equation_33

SAMPLE_SIZES, N_REPEATS = (200, 2_000, 20_000), 20


def covariance_matrix(rng, size):
    """Return a random positive definite matrix that is far from isotropic."""
    root = rng.normal(size=(size, size))
    return root @ root.T / size + 0.1 * np.eye(size)


@st.composite
def models(draw):
    """Return a model with a random prior and a likelihood whose precision may be singular, or even zero."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    size = draw(st.integers(1, 6))
    root = rng.normal(size=(size, draw(st.integers(0, size)))) * 10 ** draw(st.floats(-2, 2))
    prior_covariance = covariance_matrix(rng, size) * 10 ** draw(st.floats(-2, 2))
    precision = root @ root.T
    return LinearGaussian(rng.normal(size=size), prior_covariance, precision, precision @ rng.normal(size=size))


@pytest.fixture
def regression():
    """Arguments of a regression with twelve rows and four columns, of which the first and the last are equal."""
    rng = np.random.default_rng(1)
    design = rng.normal(size=(12, 3))[:, [0, 1, 2, 0]]
    targets = design @ [1.0, -2.0, 0.5, 0.3] + rng.normal(size=12)
    return {
        "design": design,
        "targets": targets,
        "noise_variance": 0.7,
        "prior_covariance": covariance_matrix(rng, 4),
        "prior_mean": rng.normal(size=4),
        "weights": rng.uniform(0.5, 2, size=12),
    }


def test_posterior_is_the_joint_normal_conditioned_on_the_targets(regression):
    """θ and y are jointly normal. No formula of the theorem is used."""
    model = LinearGaussian.regression(**regression)
    design, prior = regression["design"], regression["prior_covariance"]
    cross = prior @ design.T
    marginal = design @ cross + np.diag(regression["noise_variance"] / regression["weights"])
    gain = cross @ np.linalg.inv(marginal)
    residual = regression["targets"] - design @ regression["prior_mean"]
    posterior = model.posterior()
    assert np.linalg.matrix_rank(model.precision) == 3
    assert np.allclose(posterior.mean, regression["prior_mean"] + gain @ residual, atol=1e-12)
    assert np.allclose(posterior.covariance, prior - gain @ cross.T, atol=1e-12)


def test_a_row_of_weight_zero_has_no_effect(regression):
    weights = regression.pop("weights")
    weights[3] = 0
    kept = np.arange(12) != 3
    with_row = LinearGaussian.regression(**regression, weights=weights)
    rows = {"design": regression.pop("design")[kept], "targets": regression.pop("targets")[kept]}
    without_row = LinearGaussian.regression(**regression, **rows, weights=weights[kept])
    assert np.allclose(with_row.precision, without_row.precision, atol=1e-12)
    assert np.allclose(with_row.posterior().mean, without_row.posterior().mean, atol=1e-12)


def test_solutions_minimise_the_anchored_loss(regression):
    """They are least-squares solutions of a system in which the penalty is written as additional rows."""
    model = LinearGaussian.regression(**regression)
    anchors = np.random.default_rng(0).normal(size=(5, 4))
    row_scale = np.sqrt(regression["weights"] / regression["noise_variance"])
    whitening = np.linalg.inv(np.linalg.cholesky(regression["prior_covariance"]))
    rows = np.vstack([row_scale[:, None] * regression["design"], whitening])
    for anchor, solution in zip(anchors, model.solve(anchors)):
        right = np.concatenate([row_scale * regression["targets"], whitening @ anchor])
        assert np.allclose(solution, np.linalg.lstsq(rows, right)[0], atol=1e-10)


@given(models())
@settings(max_examples=60, deadline=None)
def test_exact_anchor_covariance_gives_the_posterior(model):
    posterior, anchored = model.posterior(), model.anchored_distribution(model.exact_anchor_covariance())
    expected = np.linalg.inv(np.linalg.inv(model.prior_covariance) + model.precision)
    assert np.allclose(posterior.covariance, expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())
    assert np.allclose(anchored.mean, posterior.mean)
    assert posterior.covariance_error(anchored.covariance) < 1e-8


@given(models())
@settings(max_examples=60, deadline=None)
def test_anchors_from_the_prior_give_a_covariance_that_is_too_small(model):
    """It is P Σp⁻¹ P. Noise on h adds P A P, which makes it P."""
    P = model.posterior().covariance
    found = model.anchored_distribution(model.prior_covariance).covariance
    scale = np.abs(P).max()
    assert np.allclose(found, P @ np.linalg.inv(model.prior_covariance) @ P, rtol=1e-7, atol=1e-8 * scale)
    assert np.allclose(found + P @ model.precision @ P, P, rtol=1e-7, atol=1e-8 * scale)
    assert linalg.eigvalsh(P - found)[0] > -1e-8 * scale  # too large in no direction


@given(models())
@settings(max_examples=20, deadline=None)
def test_randomized_solutions_have_exactly_the_posterior_covariance(model):
    """Solutions are affine in the random numbers. If B is the matrix of this map, their covariance is B Bᵀ = P."""
    size = len(model.prior_mean)

    class UnitVectors:
        """A generator that returns unit vectors instead of random numbers, and zeros in the last row."""

        calls = iter((slice(0, size), slice(size, 2 * size)))

        def standard_normal(self, shape):
            assert shape == (2 * size + 1, size)
            return np.eye(2 * size + 1, 2 * size)[:, next(self.calls)]

    solutions = model.sample(UnitVectors(), 2 * size + 1)
    map_transposed = solutions[:-1] - solutions[-1]  # Bᵀ
    posterior = model.posterior()
    assert np.allclose(solutions[-1], posterior.mean)
    assert posterior.covariance_error(map_transposed.T @ map_transposed) < 1e-7


@given(models())
@settings(max_examples=30, deadline=None)
def test_without_data_a_solution_is_its_anchor(model):
    size = len(model.prior_mean)
    empty = LinearGaussian(model.prior_mean, model.prior_covariance, np.zeros((size, size)), np.zeros(size))
    anchors = np.random.default_rng(0).normal(size=(3, size))
    assert np.allclose(empty.solve(anchors), anchors)
    assert np.allclose(empty.exact_anchor_covariance(), model.prior_covariance)
    assert empty.trace_matched_kappa() == 1


@pytest.mark.parametrize("anchors", ["randomized", "exact"])
def test_error_of_the_sample_covariance_is_that_of_independent_draws(regression, anchors):
    """Its mean over repeats is within 25 % of √((1 + tr(P)²/‖P‖²)/M), although the likelihood is singular."""
    model = LinearGaussian.regression(**regression)
    posterior = model.posterior()
    anchor_covariance = model.exact_anchor_covariance() if anchors == "exact" else None
    P = posterior.covariance
    for size in SAMPLE_SIZES:
        draws = [model.sample(np.random.default_rng(repeat), size, anchor_covariance) for repeat in range(N_REPEATS)]
        error = np.mean([np.linalg.norm(np.cov(draw.T) - P) / np.linalg.norm(P) for draw in draws])
        expected_error = np.sqrt((1 + np.trace(P) ** 2 / np.sum(P**2)) / size)
        assert posterior.expected_covariance_error(size) == pytest.approx(expected_error)
        assert abs(error / expected_error - 1) < 0.25
        mean = np.mean(draws, axis=(0, 1))
        assert np.all(np.abs(mean - posterior.mean) < 4 * np.sqrt(np.diag(P) / (size * N_REPEATS)))


@pytest.mark.parametrize("kappa", [0.3, 1.0])
def test_samples_have_the_covariance_for_their_anchors(regression, kappa):
    model = LinearGaussian.regression(**regression)
    P, prior = model.posterior().covariance, regression["prior_covariance"]
    samples = model.sample(np.random.default_rng(0), 20_000, kappa * prior)
    expected = Normal(model.posterior().mean, kappa * P @ np.linalg.inv(prior) @ P)
    assert expected.covariance_error(np.cov(samples.T)) < 3 * expected.expected_covariance_error(20_000)


def test_anchors_at_the_prior_mean_give_the_posterior_mean(regression):
    model = LinearGaussian.regression(**regression)
    samples = model.sample(np.random.default_rng(0), 3, np.zeros((4, 4)))
    assert np.allclose(samples, model.posterior().mean, atol=1e-12)


def anisotropic(prior_variance):
    """Return a model with an isotropic prior and an anisotropic likelihood."""
    precision = np.array([[2.0, 0.9], [0.9, 0.7]])
    return LinearGaussian(np.zeros(2), prior_variance * np.eye(2), precision, np.ones(2))


@pytest.mark.parametrize("prior_variance", [0.25, 0.5, 2.0, 4.0])
def test_printed_equation_31_does_not_give_the_posterior(prior_variance):
    """The covariance differs by P Σp⁻¹ (λ₁³ − λ₁) Σp⁻¹ P. It is too large for λ₁ > 1 and too small for λ₁ < 1."""
    model = anisotropic(prior_variance)
    P = model.posterior().covariance
    found = model.anchored_distribution(printed_equation_31(prior_variance, model.precision)).covariance
    assert np.allclose(found - P, (prior_variance - 1 / prior_variance) * P @ P)
    assert model.posterior().covariance_error(found) > 0.1
    assert np.all(np.sign(linalg.eigvalsh(found - P)) == np.sign(prior_variance - 1))


def test_printed_equation_31_holds_for_a_unit_prior():
    model = anisotropic(1.0)
    assert np.allclose(printed_equation_31(1.0, model.precision), model.exact_anchor_covariance(), atol=1e-15)


@pytest.mark.parametrize(("prior_variance", "likelihood_variance"), [(2.0, 0.3), (0.5, 3.0), (1.0, 0.3), (2.0, 1.0)])
def test_corrected_equation_33_gives_the_posterior_and_the_printed_one_does_not(prior_variance, likelihood_variance):
    """With Σ_like = λ₂I the equation contains no approximation."""
    model = LinearGaussian(np.zeros(3), prior_variance * np.eye(3), np.eye(3) / likelihood_variance, np.ones(3))
    posterior = model.posterior()
    corrected = model.trace_matched_kappa() * model.prior_covariance
    assert np.allclose(corrected, (prior_variance + prior_variance**2 / likelihood_variance) * np.eye(3))
    assert posterior.covariance_error(model.anchored_distribution(corrected).covariance) < 1e-12
    printed = printed_equation_33(prior_variance, model.precision)
    assert np.allclose(printed, (prior_variance**3 + prior_variance**2 * likelihood_variance) * np.eye(3))
    assert posterior.covariance_error(model.anchored_distribution(printed).covariance) > 0.1


def test_trace_matched_kappa_does_not_depend_on_the_units_of_the_parameters(regression):
    model = LinearGaussian.regression(**regression)
    units = np.diag([1.0, 10.0, 0.1, 3.0])
    inverse = np.linalg.inv(units)
    rescaled = LinearGaussian(
        units @ model.prior_mean,
        units @ model.prior_covariance @ units,
        inverse @ model.precision @ inverse,
        inverse @ model.information,
    )
    assert rescaled.trace_matched_kappa() == pytest.approx(model.trace_matched_kappa())


def test_cross_validation_finds_the_right_kappa():
    """The right κ is about xᵀPx / xᵀPΣp⁻¹Px. With few rows and little noise, held-out rows depend strongly on it."""
    rng = np.random.default_rng(0)
    n_rows, size, noise_variance = 150, 75, 0.5
    design = rng.normal(size=(n_rows, size))
    targets = design @ rng.normal(size=size) + np.sqrt(noise_variance) * rng.normal(size=n_rows)
    prior = np.eye(size)
    model = LinearGaussian.regression(design[:120], targets[:120], noise_variance, prior)
    right_kappa = np.trace(model.posterior().covariance) / np.trace(model.anchored_distribution(prior).covariance)
    candidates = right_kappa * np.array([1 / 64, 1 / 8, 1, 8, 64])
    assert right_kappa > 10
    for seed in range(3):
        assert cross_validated_kappa(design, targets, noise_variance, prior, candidates, seed=seed) == right_kappa


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior_covariance": np.ones((4, 3))}, "prior_covariance must be a square matrix"),
        ({"prior_covariance": np.eye(3)}, r"prior_covariance must have shape \(4, 4\)"),
        ({"prior_covariance": np.triu(np.ones((4, 4)))}, "prior_covariance must be symmetric"),
        ({"prior_covariance": np.ones((4, 4))}, "prior_covariance must be positive definite"),
        ({"prior_covariance": np.diag([1, 1, np.nan, 1])}, "prior_covariance must be finite"),
        ({"prior_mean": np.zeros(3)}, r"prior_mean must have shape \(4,\)"),
        ({"design": np.ones(12)}, "design must have the shape"),
        ({"design": np.full((12, 4), np.inf)}, "design must be finite"),
        ({"targets": np.ones(11)}, r"targets must have shape \(12,\)"),
        ({"targets": np.full(12, np.nan)}, "targets must be finite"),
        ({"noise_variance": 0.0}, "noise_variance must be one positive number"),
        ({"noise_variance": np.ones(12)}, "pass weights="),
        ({"weights": -np.ones(12)}, "weights must not be negative"),
    ],
)
def test_invalid_arguments_of_a_regression_are_refused(regression, change, message):
    with pytest.raises(ValueError, match=message):
        LinearGaussian.regression(**{**regression, **change})


def test_invalid_covariances_and_candidates_are_refused(regression):
    model = LinearGaussian.regression(**regression)
    with pytest.raises(ValueError, match="precision must have no negative eigenvalue"):
        LinearGaussian(np.zeros(2), np.eye(2), np.diag([1.0, -1.0]), np.zeros(2))
    with pytest.raises(ValueError, match=r"information must have shape \(2,\)"):
        LinearGaussian(np.zeros(2), np.eye(2), np.eye(2), np.zeros(3))
    random = np.random.default_rng(0)
    for method in (model.anchored_distribution, lambda covariance: model.sample(random, 3, covariance)):
        with pytest.raises(ValueError, match=r"anchor_covariance must have shape \(4, 4\)"):
            method(np.eye(3))
        with pytest.raises(ValueError, match="anchor_covariance must have no negative eigenvalue"):
            method(-np.eye(4))
    rows = [regression[name] for name in ("design", "targets", "noise_variance", "prior_covariance")]
    with pytest.raises(ValueError, match="candidates"):
        cross_validated_kappa(*rows, candidates=[])
    with pytest.raises(ValueError, match="candidates"):
        cross_validated_kappa(*rows, candidates=[1.0, -1.0])
    with pytest.raises(ValueError, match="n_folds must be between 2 and the number of rows, 12"):
        cross_validated_kappa(*rows, candidates=[1.0], n_folds=13)


def test_arrays_are_copied_and_read_only(regression):
    """Cached results depend on them."""
    model = LinearGaussian.regression(**regression)
    before = model.posterior().mean
    regression["prior_covariance"][:] = 0
    assert np.array_equal(model.posterior().mean, before)
    with pytest.raises(ValueError, match="read-only"):
        model.precision[0, 0] = 1
