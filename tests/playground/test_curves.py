"""What the page of curves shows is what the library computes."""

import jax
import numpy as np
import pytest

from anchored import AnchoredRegressor, BayesianRegressor, certify
from anchored.errors import ArgumentError
from anchored.methods import GaussianProcess
from anchored.model.likelihoods import Gaussian
from anchored.playground import continuation, curves, show
from anchored.playground.curves import CurveSettings
from anchored.playground.points import PRESETS
from anchored.types import Data

POINTS = PRESETS["Six points"]
GRID = np.linspace(-3, 3, 41)
ERF = CurveSettings(n_members=5, width=20, activation="erf", noise=0.2)


@pytest.fixture(scope="module")
def fit():
    return curves.fit_anew(ERF, POINTS)


@pytest.mark.parametrize("trainable", ["all", "last_layer"])
def test_a_fit_is_that_of_the_estimator(trainable):
    shown = curves.fit_anew(CurveSettings(5, 20, activation="erf", noise=0.2, trainable=trainable), POINTS).curve(GRID)
    model = AnchoredRegressor(
        5, (20,), "erf", noise_variance=0.2**2, prior_scale=2.0, trainable=trainable, max_iter=1000, random_state=0
    ).fit(POINTS[:, :1], POINTS[:, 1])
    predicted = model.predict_dist(GRID[:, None])
    np.testing.assert_allclose(shown.mean, predicted.mean, atol=1e-6)
    np.testing.assert_allclose(shown.std**2, predicted.epistemic_variance, atol=1e-6)
    np.testing.assert_allclose(shown.total_std, predicted.std, atol=1e-6)
    np.testing.assert_allclose(shown.functions.mean(0), predicted.mean, atol=1e-6)
    np.testing.assert_allclose(shown.functions.std(0, ddof=1), shown.std, atol=1e-6)


@pytest.mark.parametrize(("other", "kernel"), [("process", "nngp"), ("tangent process", "ntk")])
def test_the_process_is_exact(fit, other, kernel):
    shown = curves.other_curve(fit, other, GRID)
    likelihood = Gaussian(0.2**2)
    exact = BayesianRegressor(GaussianProcess(kernel), likelihood, (20,), "erf", prior_scale=2.0, random_state=0)
    predicted = exact.fit(POINTS[:, :1], POINTS[:, 1]).predict_dist(GRID[:, None])
    np.testing.assert_allclose(shown.mean, predicted.mean, atol=1e-6)
    np.testing.assert_allclose(shown.std, np.sqrt(predicted.epistemic_variance), atol=1e-6)
    np.testing.assert_allclose(shown.total_std, predicted.std, atol=1e-6)


def test_draws_have_the_moments_of_the_process(fit):
    """Ten draws are within four standard errors of the mean, at every input."""
    shown = curves.other_curve(fit, "process", GRID)
    assert np.all(np.abs(shown.functions.mean(0) - shown.mean) <= 4 * shown.std / np.sqrt(10) + 1e-6)


@pytest.mark.parametrize("anchoring", ["prior", "randomized"])
def test_members_continue_as_in_the_library(anchoring):
    """The padded rows of the page change nothing: `resume` on the bare points gives the same members."""
    added = np.vstack([POINTS, [[0.2, 0.4]]])
    moved = added + [[0.0, 0.05]]
    with jax.enable_x64(True):
        first = curves.fit_anew(CurveSettings(5, 20, activation="erf", noise=0.2, anchoring=anchoring), POINTS)
        shown = curves.continued(curves.continued(first, added), moved)
        method, posterior = first.model.posterior_.record.method, first.model.posterior_
        solver = continuation.solver_of(first.model, curves.N_CONTINUED, decay=True)
        method = type(method)(5, anchoring, solver=solver)
        x_units, y_units = first.model.x_standardisation_, first.model.y_standardisation_
        for points in (added, moved):
            inputs, targets = (
                (points[:, :1] - x_units.mean) / x_units.scale,
                (points[:, 1:] - y_units.mean) / y_units.scale,
            )
            weights = y_units.outlier_weights(targets)
            posterior = method.resume(jax.random.key(first.model.seed_), posterior, Data(inputs, targets, weights))
        expected = posterior.outputs((GRID[:, None] - x_units.mean) / x_units.scale)[..., 0]
        curve = shown.curve(GRID)
    np.testing.assert_allclose(curve.functions, expected * y_units.scale + y_units.mean, atol=1e-6)
    assert shown.is_continued and not first.is_continued


def test_continued_members_approach_a_fit_anew():
    settings = CurveSettings(5, 20, activation="erf", noise=0.2)
    moved = POINTS + [[0.0, 0.1], *[[0.0, 0.0]] * 5]
    first, anew = curves.fit_anew(settings, POINTS).curve(GRID), curves.fit_anew(settings, moved).curve(GRID)
    continued = curves.continued(curves.fit_anew(settings, POINTS), moved).curve(GRID)
    between = np.abs(GRID) < 1.5
    assert np.abs(continued.mean - anew.mean)[between].max() < 0.5 * np.abs(first.mean - anew.mean)[between].max()


def test_another_point_compiles_nothing(fit):
    """Fits are continued, and the process computed, by programs that have already been compiled."""
    curves.prepare(ERF, fit)
    six = curves.continued(fit, POINTS + 0.01)
    curves.other_curve(six, "process", GRID)
    six.curve(GRID)
    curves.finding(six, GRID)
    with _counted() as compiled:
        shown = six
        for number in range(12):
            shown = curves.continued(shown, np.vstack([shown.points, [[0.1 * number, 0.0]]]))
            shown.curve(GRID)
            curves.other_curve(shown, "process", GRID)
        curves.finding(shown, GRID)
        curves.fit_anew(ERF, shown.points[:14])
    assert compiled == []


class _counted:
    """Context manager that lists the programs that JAX compiles."""

    def __enter__(self):
        self.compiled = []
        self.listen = lambda name, seconds, **_: "backend_compile" in name and self.compiled.append(name)
        jax.monitoring.register_event_duration_secs_listener(self.listen)
        return self.compiled

    def __exit__(self, *_):
        jax.monitoring.unregister_event_duration_listener(self.listen)


def test_a_film_begins_at_the_anchors_and_ends_near_the_fit(fit):
    frames = list(curves.training_frames(fit))
    assert [epoch for epoch, _ in frames][:2] == [0, 1] and frames[-1][0] == curves.N_EPOCHS
    start = frames[0][1].model.posterior_.members
    assert all(
        np.array_equal(a, b) for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(fit.model.anchors_), strict=True)
    )
    inner = np.linspace(-1.6, 1.6, 21)
    expected, last, first = fit.curve(inner), frames[-1][1].curve(inner), frames[0][1].curve(inner)
    assert np.abs(last.mean - expected.mean).max() < 0.05 < np.abs(first.mean - expected.mean).max()


def test_numbers_and_finding_are_those_of_the_certificate(fit):
    certificate = certify(fit.model, POINTS[:, :1], POINTS[:, 1], GRID[:, None])
    assert curves.finding(fit, GRID) == certificate.summary
    shown = curves.compared(fit.curve(GRID), curves.other_curve(fit, "process", GRID))
    for name in ("std_ratio", "mean_gap", "wasserstein"):
        assert shown[name] == pytest.approx(certificate.distances[name], rel=1e-5)


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_members", 51), ("n_members", 2.5), ("n_members", True), ("width", "50"), ("noise", float("nan")),
     ("noise", 0), ("activation", "exec"), ("activation", None), ("other", ["process"]), ("kappa", -1)],
)  # fmt: skip
def test_settings_are_checked(name, value):
    with pytest.raises(ArgumentError, match=name):
        CurveSettings(**{name: value}).check()


def test_two_points_are_needed():
    with pytest.raises(ArgumentError, match="at least two"):
        curves.fit_anew(ERF, POINTS[:1])


def test_a_model_of_ones_own_is_fitted_with_its_own_arguments(fit):
    moved = POINTS + [[0.0, 0.1], *[[0.0, 0.0]] * 5]
    shown = curves.fit_like(fit, moved).curve(GRID)
    np.testing.assert_array_equal(shown.mean, curves.fit_anew(ERF, moved).curve(GRID).mean)
    again = AnchoredRegressor(**curves.arguments_of(fit)).fit(POINTS[:, :1], POINTS[:, 1])
    np.testing.assert_array_equal(again.predict(GRID[:, None]), fit.model.predict(GRID[:, None]))


NOT_SHOWN = [
    (POINTS, POINTS[:, 1], "shapes"),
    (POINTS[:, :1], POINTS, "shapes"),
    (POINTS[:, :1], POINTS[:, 0], "data of the fit"),
    (np.zeros((300, 1)), np.zeros(300), "at most 200"),
]


@pytest.mark.parametrize(("X", "y", "reason"), NOT_SHOWN)
def test_what_cannot_be_shown_is_refused(fit, X, y, reason):
    with pytest.raises(ArgumentError, match=reason):
        show(fit.model, X, y)


def test_an_unfitted_model_is_refused():
    with pytest.raises(ArgumentError, match="fitted"):
        show(AnchoredRegressor(), POINTS[:, :1], POINTS[:, 1])
