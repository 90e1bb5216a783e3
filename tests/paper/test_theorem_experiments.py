"""The experiments on Theorem 1 in a small size: their claims, with tolerances from the Monte-Carlo error."""

import numpy as np
import pytest

from anchored.exact.linear_gaussian import LinearGaussian
from anchored.paper.experiments import figure_8, logistic_regression, theorem
from anchored.paper.experiments.logistic_regression import Config as Logistic
from anchored.paper.findings import Verdict

PNG = b"\x89PNG"


def test_figure_8():
    results = figure_8.run(figure_8.Config())
    cases = results["cases"]
    assert cases["exact"]["samples"].shape == (150, 2)
    assert cases["exact"]["distribution_error"] < 1e-12
    assert cases["exact"]["sample_error"] < 2 * cases["exact"]["expected_covariance_error"]
    assert cases["printed_31_unit_prior"]["distribution_error"] < 1e-12
    for name in ("isotropic", "printed_31", "printed_33"):
        assert cases[name]["distribution_error"] > 3 * cases[name]["expected_covariance_error"]
        # The error of 150 samples is that of their distribution, up to their Monte-Carlo error.
        norm = np.linalg.norm(cases[name]["distribution"].covariance) / np.linalg.norm(results["posterior"].covariance)
        tolerance = 3 * norm * cases[name]["distribution"].expected_covariance_error(150)
        assert abs(cases[name]["sample_error"] - cases[name]["distribution_error"]) < tolerance
    (figure,) = figure_8.figures(figure_8.Config(), results)
    assert figure.picture.startswith(PNG)
    assert [claim.verdict for claim in figure.claims] == [Verdict.CORRECTED, Verdict.FAILS]
    assert len(figure.tables[0].rows) == len(cases)


def test_equation_31_is_right_for_a_prior_of_variance_one():
    cases = figure_8.run(figure_8.Config(prior_variance=1.0))["cases"]
    assert np.allclose(cases["printed_31"]["samples"], cases["exact"]["samples"])
    assert figure_8.claims({"cases": cases, "n_samples": 150})[0].verdict is Verdict.HOLDS  # nothing to correct


def test_linear_regression():
    results = theorem.run_regression(theorem.Config(sizes=(200, 2_000), n_repeats=10))
    methods, perfect = results["methods"], np.array(results["perfect"])
    assert (results["rank"], results["n_parameters"]) == (10, 11)
    for name in ("randomized", "exact"):
        assert methods[name]["distribution_error"] < 1e-10
        assert np.all(np.abs(np.mean(methods[name]["errors"], axis=1) / perfect - 1) < 0.3)
    for name in ("prior", "isotropic", "cross-validated"):
        assert np.mean(methods[name]["errors"][-1]) > 3 * perfect[-1]
    assert methods["prior"]["narrowest"] < 0.1
    assert methods["prior"]["widest"] == pytest.approx(1)  # exact in the direction about which the data say nothing
    assert methods["isotropic"]["widest"] == pytest.approx(np.sqrt(results["kappa"]))


def test_newton_agrees_with_scikit_learn():
    """If the anchor is zero, the solution is an L2-penalised logistic regression with C = s²."""
    from sklearn.linear_model import LogisticRegression

    X, y = logistic_regression.breast_cancer(Logistic(n_rows=120))
    zeros = np.zeros((1, X.shape[1]))
    found = logistic_regression.anchored_solutions(zeros, zeros, X, y, 1.5)[0]
    expected = LogisticRegression(C=1.5**2, fit_intercept=False, tol=1e-10, max_iter=10_000).fit(X, y).coef_[0]
    assert np.allclose(found, expected, atol=1e-5)


def test_fisher_information_is_the_curvature(double):
    import jax

    X, y = logistic_regression.breast_cancer(Logistic(n_rows=50))
    theta = np.linspace(-1, 1, X.shape[1])
    assert np.allclose(
        logistic_regression.fisher_information(theta, X),
        jax.hessian(logistic_regression.negative_log_likelihood)(theta, X, y),
        rtol=1e-10,
    )


def test_both_regressions_and_their_figure():
    pytest.importorskip("numpyro")
    logistic = Logistic(n_members=400, n_chains=2, n_warmup=200, n_draws=400, n_rows=200)
    config = theorem.Config(sizes=(50, 500), n_repeats=4, logistic=logistic)
    shares = []
    results = theorem.run(config, shares.append)
    assert sum(shares) == pytest.approx(1)
    methods = results["logistic"]["methods"]
    # Four standard errors; the effective sample size of the chains is assumed to be a third of their draws.
    tolerance = 4 * np.sqrt(1 / logistic.n_members + 3 / (logistic.n_chains * logistic.n_draws))
    assert np.all(np.abs(methods["exact at MAP"]["mean_offset"]) < 0.2 + tolerance)
    assert np.all(methods["exact at MAP"]["std_ratio"] > 1 - tolerance)  # slightly too wide, but not too narrow
    assert np.all(methods["exact at MAP"]["std_ratio"] < 1.3 + tolerance)
    assert np.all(methods["prior"]["std_ratio"] < 0.6)
    assert methods["prior"]["covariance_error"] > methods["exact at MAP"]["covariance_error"]
    (figure,) = theorem.figures(config, results)
    *linear, beyond = figure.claims
    corrected = (Verdict.CORRECTED, Verdict.UNDECIDED)  # four repeats may be too few to tell
    assert linear[0].verdict in corrected and linear[1].verdict in corrected
    assert [claim.verdict for claim in linear[2:]] == [Verdict.FAILS, Verdict.FAILS]
    widest, error = methods["exact at MAP"]["std_ratio"].max(), (2 * logistic.n_members) ** -0.5
    if abs(widest - 1 - theorem.CLOSE_SPREAD) <= 2 * error:
        assert beyond.verdict is Verdict.UNDECIDED
    else:
        assert (beyond.verdict is Verdict.HOLDS) == (widest < 1 + theorem.CLOSE_SPREAD)
    # eq. 30 as printed is the posterior covariance P if the prior is isotropic, so solutions have covariance P³/s⁴
    X, y = theorem.diabetes()
    model = LinearGaussian.regression(X, y, config.noise_variance, config.prior_scale**2 * np.eye(X.shape[1]))
    covariance = np.linalg.matrix_power(model.posterior().covariance, 3) / config.prior_scale**4
    expected = model.posterior().covariance_error(covariance)
    assert results["regression"]["printed_error"] == pytest.approx(expected, rel=1e-6)
    assert figure.picture.startswith(PNG)
    for table in figure.tables:
        assert {len(row) for row in table.rows} == {len(table.header)}


def test_the_error_without_numpyro_names_the_extra(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "numpyro", None)
    with pytest.raises(ImportError, match=r"anchored\[compare\]"):
        logistic_regression.run(Logistic(n_rows=20))
