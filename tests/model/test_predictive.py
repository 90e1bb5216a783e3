"""Shapes of predictive distributions against integrals of their density, SciPy and scoringrules."""

import numpy as np
import pytest
import scoringrules
from scipy import integrate, stats

from anchored.model.predictive import Predictive, Shape

SHAPES = [Shape(nu, gamma) for nu in (3.0, 7.0, np.inf) for gamma in (0.5, 1.0, 1.7)]
SHAPES += [  # mixtures
    Shape(share=0.7, ratio=3.0, shift=-1.0),
    Shape(share=0.25, ratio=0.2, shift=2.0),
    Shape(5.0, 1.3, 0.8, 2.0, 1.0),
]
Z = np.array([-3.0, -0.7, 0.0, 0.2, 2.5])


@pytest.mark.parametrize("shape", SHAPES)
def test_density_has_mean_zero_and_variance_one(shape):
    def moment(power):
        integrand = lambda z: z**power * np.exp(shape.logpdf(z))  # noqa: E731
        return integrate.quad(integrand, -np.inf, 0)[0] + integrate.quad(integrand, 0, np.inf)[0]

    tolerance = 1e-4 if shape.degrees_of_freedom == 3 else 1e-7  # the tails of z² t(z) are long
    assert np.allclose([moment(0), moment(1), moment(2)], [1, 0, 1], atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
def test_cdf_is_the_integral_of_the_density_and_ppf_its_inverse(shape):
    integral = [integrate.quad(lambda z: np.exp(shape.logpdf(z)), -np.inf, z)[0] for z in Z]
    assert np.allclose(shape.cdf(Z), integral, atol=1e-8)
    assert np.allclose(shape.ppf(shape.cdf(Z)), Z)


@pytest.mark.parametrize("shape", SHAPES)
def test_crps_agrees_with_its_definition(shape):
    """The CRPS is ∫ (F(x) − 1[x ≥ z])² dx."""

    nodes, weights = np.polynomial.legendre.leggauss(300)

    def integral(function, lower, upper):
        """Integrate by Gauss's rule over arsinh x, so that many nodes are near zero."""
        middle, half = (np.arcsinh(upper) + np.arcsinh(lower)) / 2, (np.arcsinh(upper) - np.arcsinh(lower)) / 2
        u = middle + half * nodes
        return half * weights @ (function(np.sinh(u)) * np.cosh(u))

    def crps(z):
        return integral(lambda x: shape.cdf(x) ** 2, -200, z) + integral(lambda x: (1 - shape.cdf(x)) ** 2, z, 200)

    assert np.allclose(shape.crps(Z), [crps(z) for z in Z], atol=1e-5)


def test_a_symmetric_shape_agrees_with_scipy_and_scoringrules():
    std = np.sqrt(5 / 3)  # of a t with five degrees of freedom
    shape = Shape(5.0)
    assert np.allclose(shape.logpdf(Z), stats.t.logpdf(Z, 5, scale=1 / std))
    assert np.allclose(shape.crps(Z), scoringrules.crps_t(Z, 5.0, 0.0, 1 / std), atol=1e-6)
    normal = Shape()
    assert normal.is_normal
    assert not shape.is_normal
    assert np.allclose(normal.logpdf(Z), stats.norm.logpdf(Z))
    assert np.allclose(normal.crps(Z), scoringrules.crps_normal(Z, 0.0, 1.0), atol=1e-6)


SHARE, RATIO, SHIFT = 0.7, 3.0, -1.0
MIXTURE = Shape(share=SHARE, ratio=RATIO, shift=SHIFT)  # of N(0, 1) and N(SHIFT, RATIO²), standardised


def test_a_mixture_of_normals_agrees_with_scipy_and_scoringrules():
    mean = (1 - SHARE) * SHIFT
    std = np.sqrt(SHARE + (1 - SHARE) * (RATIO**2 + SHIFT**2) - mean**2)
    means, scales = (np.array([0.0, SHIFT]) - mean) / std, np.array([1.0, RATIO]) / std
    weights = np.array([SHARE, 1 - SHARE])
    assert np.allclose(np.exp(MIXTURE.logpdf(Z)), stats.norm.pdf(Z[:, None], means, scales) @ weights)
    expected = [scoringrules.crps_mixnorm(z, means, scales, weights) for z in Z]
    assert np.allclose(MIXTURE.crps(Z), expected, atol=1e-6)


def test_outputs_may_have_different_shapes():
    both = Shape(np.array([np.inf, 4.0]), 1.0, np.array([SHARE, 1.0]), np.array([RATIO, 1.0]), np.array([SHIFT, 0.0]))
    assert np.allclose(both.ppf(0.9), [MIXTURE.ppf(0.9), Shape(4.0).ppf(0.9)])
    assert np.allclose(both.crps(0.3), [MIXTURE.crps(0.3), Shape(4.0).crps(0.3)], atol=1e-12)


def test_infinity():
    for shape in SHAPES:
        assert np.array_equal(shape.cdf(np.array([-np.inf, np.inf])), [0, 1])
        assert np.array_equal(shape.ppf(np.array([0.0, 1.0])), [-np.inf, np.inf])
        assert np.array_equal(shape.crps(np.array([-np.inf, np.inf])), [np.inf, np.inf])
        assert shape.logpdf(np.inf) == -np.inf


def test_quantiles_are_precise_far_in_the_tails():
    probabilities = np.array([1e-30, 1e-13, 0.5, 1 - 1e-13])
    quantiles = MIXTURE.ppf(probabilities)
    assert np.allclose(MIXTURE.cdf(quantiles) / probabilities, 1, rtol=1e-9)
    assert MIXTURE.ppf(1e-13) == pytest.approx(float(quantiles[1]), rel=1e-9)


def test_very_many_degrees_of_freedom_are_a_normal():
    assert np.allclose(Shape(1e16).logpdf(Z), stats.norm.logpdf(Z))


MEAN, EPISTEMIC, ALEATORIC = np.array([1.0, -2.0]), np.array([0.5, 1.0]), np.array([0.25, 3.0])
STD = np.sqrt(EPISTEMIC + ALEATORIC)
PREDICTIVE = Predictive(MEAN, EPISTEMIC, ALEATORIC, 10, Shape(np.array([4.0]), np.array([1.5]), 0.8, 0.3, 1.0))
Y = np.array([0.3, 0.4])


def test_predictive_scales_and_shifts_its_shape():
    density = lambda x, i: np.exp(PREDICTIVE.logpdf(np.full(2, x))[i])  # noqa: E731
    for i in range(2):
        below, above = (integrate.quad(density, *ends, (i,))[0] for ends in ((-np.inf, Y[i]), (Y[i], np.inf)))
        assert np.isclose(below, PREDICTIVE.cdf(Y)[i], atol=1e-6)
        assert np.isclose(below + above, 1, atol=1e-6)
    lower, upper = PREDICTIVE.interval(0.9)
    assert np.allclose(PREDICTIVE.cdf(lower), 0.05)
    assert np.allclose(PREDICTIVE.cdf(upper), 0.95)
    assert np.allclose(PREDICTIVE.quantile(0.3), PREDICTIVE.ppf(0.3))
    assert np.allclose(PREDICTIVE.crps(Y), STD * PREDICTIVE.shape.crps((Y - MEAN) / STD))


def test_samples_of_a_predictive_agree_with_its_mean_cdf_and_crps():
    n_samples = 40_000
    samples = PREDICTIVE.sample(n_samples, random_state=0)
    assert np.all(np.abs(samples.mean(0) - MEAN) < 5 * STD / np.sqrt(n_samples))
    assert np.all(np.abs((samples < Y).mean(0) - PREDICTIVE.cdf(Y)) < 5 * 0.5 / np.sqrt(n_samples))
    distance, difference = np.abs(samples - Y).mean(0), np.abs(samples[1:] - samples[:-1]).mean(0)
    assert distance - 0.5 * difference == pytest.approx(PREDICTIVE.crps(Y), abs=0.02)
