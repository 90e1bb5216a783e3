"""The shape of a predictive distribution against integrals of its density, SciPy's t and scoringrules."""

import numpy as np
import pytest
import scoringrules
from scipy import integrate, stats

from anchored.model.predictive import Predictive, Shape

SHAPES = [Shape(nu, gamma) for nu in (3.0, 7.0, np.inf) for gamma in (0.5, 1.0, 1.7)]
SHAPES += [
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

    tolerance = 1e-4 if shape.degrees_of_freedom == 3 else 1e-7  # the tails of z² t(z) end slowly
    assert np.allclose([moment(0), moment(1), moment(2)], [1, 0, 1], atol=tolerance)


@pytest.mark.parametrize("shape", SHAPES)
def test_cdf_is_the_integral_and_ppf_its_inverse(shape):
    integral = [integrate.quad(lambda z: np.exp(shape.logpdf(z)), -np.inf, z)[0] for z in Z]
    assert np.allclose(shape.cdf(Z), integral, atol=1e-8)
    assert np.allclose(shape.ppf(shape.cdf(Z)), Z)


@pytest.mark.parametrize("shape", SHAPES)
def test_crps_is_the_integral_of_squared_differences(shape):
    def crps(z):
        lower = integrate.quad(lambda x: shape.cdf(x) ** 2, -200, z, limit=500)[0]
        return lower + integrate.quad(lambda x: (1 - shape.cdf(x)) ** 2, z, 200, limit=500)[0]

    assert np.allclose(shape.crps(Z), [crps(z) for z in Z], atol=1e-5)


def test_without_skewness_it_is_the_t_of_scipy_and_scoringrules():
    std = np.sqrt(5 / 3)  # of a t with five degrees of freedom
    shape = Shape(5.0)
    assert np.allclose(shape.logpdf(Z), stats.t.logpdf(Z, 5, scale=1 / std))
    assert np.allclose(shape.crps(Z), scoringrules.crps_t(Z, 5.0, 0.0, 1 / std), atol=1e-6)
    normal = Shape()
    assert normal.is_normal
    assert not shape.is_normal
    assert np.allclose(normal.logpdf(Z), stats.norm.logpdf(Z))
    assert np.allclose(normal.crps(Z), scoringrules.crps_normal(Z, 0.0, 1.0), atol=1e-6)


def test_a_mixture_of_normals_is_that_of_scoringrules():
    """The parts N(0, 1) and N(shift, ratio²), standardised by their common mean and standard deviation."""
    share, ratio, shift = 0.7, 3.0, -1.0
    mean = (1 - share) * shift
    std = np.sqrt(share + (1 - share) * (ratio**2 + shift**2) - mean**2)
    means, scales = (np.array([0.0, shift]) - mean) / std, np.array([1.0, ratio]) / std
    weights, shape = np.array([share, 1 - share]), Shape(share=share, ratio=ratio, shift=shift)
    assert np.allclose(np.exp(shape.logpdf(Z)), stats.norm.pdf(Z[:, None], means, scales) @ weights)
    expected = [scoringrules.crps_mixnorm(z, means, scales, weights) for z in Z]
    assert np.allclose(shape.crps(Z), expected, atol=1e-6)
    both = Shape(np.array([np.inf, 4.0]), 1.0, np.array([share, 1.0]), np.array([ratio, 1.0]), np.array([shift, 0.0]))
    assert np.allclose(both.ppf(0.9), [shape.ppf(0.9), Shape(4.0).ppf(0.9)])
    tails = np.array([1e-30, 1e-13, 0.5, 1 - 1e-13])
    assert np.allclose(shape.cdf(shape.ppf(tails)) / tails, 1, rtol=1e-9)
    assert shape.ppf(1e-13) == pytest.approx(float(shape.ppf(tails)[1]), rel=1e-9)
    assert np.allclose(Shape(1e16).logpdf(Z), stats.norm.logpdf(Z))


def test_predictive_scales_and_shifts_its_shape():
    mean, epistemic, aleatoric = np.array([1.0, -2.0]), np.array([0.5, 1.0]), np.array([0.25, 3.0])
    predictive = Predictive(mean, epistemic, aleatoric, 10, Shape(np.array([4.0]), np.array([1.5]), 0.8, 0.3, 1.0))
    scale, y = np.sqrt(epistemic + aleatoric), np.array([0.3, 0.4])
    density = lambda x, i: np.exp(predictive.logpdf(np.full(2, x))[i])  # noqa: E731
    for i in range(2):
        below, above = (integrate.quad(density, *ends, (i,))[0] for ends in ((-np.inf, y[i]), (y[i], np.inf)))
        assert np.isclose(below, predictive.cdf(y)[i], atol=1e-6)
        assert np.isclose(below + above, 1, atol=1e-6)
    lower, upper = predictive.interval(0.9)
    assert np.allclose(predictive.cdf(lower), 0.05)
    assert np.allclose(predictive.cdf(upper), 0.95)
    assert np.allclose(predictive.quantile(0.3), predictive.ppf(0.3))
    assert np.allclose(predictive.crps(y), scale * predictive.shape.crps((y - mean) / scale))
    n_samples = 40_000
    samples = predictive.sample(n_samples, random_state=0)
    assert np.all(np.abs(samples.mean(0) - mean) < 5 * scale / np.sqrt(n_samples))
    assert np.all(np.abs((samples < y).mean(0) - predictive.cdf(y)) < 5 * 0.5 / np.sqrt(n_samples))
    assert np.mean(np.abs(samples - y), 0) - 0.5 * np.mean(np.abs(samples[1:] - samples[:-1]), 0) == pytest.approx(
        predictive.crps(y), abs=0.02
    )
