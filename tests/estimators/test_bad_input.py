"""Bad input: an error that names the argument and says what to do, or the right result all the same."""

import jax
import numpy as np
import optax
import pytest
from sklearn.exceptions import NotFittedError

from anchored import AnchoredClassifier, AnchoredRegressor
from anchored.inference.solvers.optimizers import OPTIMIZERS, check_optimizer

pytestmark = pytest.mark.usefixtures("unoptimised")
QUICK = {
    "n_estimators": 2,
    "max_iter": 20,
    "batch_size": 32,
    "prior_scale": 2.0,
    "random_state": 0,
    "hidden_layer_sizes": (50,),
    "activation": "relu",
    "learning_rate_init": 0.03,
}
FIXED = {**QUICK, "noise_variance": 0.01}


def spoilt(values, entry):
    values = np.array(values)
    values.flat[3] = entry
    return values


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 2))
    y = np.sin(2 * X[:, 0])
    return AnchoredRegressor(**FIXED).fit(X, y), AnchoredClassifier(**QUICK, temperature=0.3).fit(X, y > 0)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", [AnchoredRegressor, AnchoredClassifier])
def test_values_that_are_no_numbers(waves, fitted, kind, entry):
    X, y = waves
    labels = y > 0 if kind is AnchoredClassifier else y
    word = "NaN" if np.isnan(entry) else "infinity"
    for method in ("fit", "partial_fit"):
        extra = {"classes": [False, True]} if method == "partial_fit" and kind is AnchoredClassifier else {}
        with pytest.raises(ValueError, match=f"Input X contains {word}"):
            getattr(kind(**QUICK), method)(spoilt(X, entry), labels, **extra)
    if kind is AnchoredRegressor:
        with pytest.raises(ValueError, match=f"Input y contains {word}"):
            kind(**FIXED).fit(X, spoilt(y, entry))
    with pytest.raises(ValueError, match=f"Input sample_weight contains {word}"):
        kind(**QUICK).fit(X, labels, sample_weight=spoilt(np.ones(60), entry))
    model = fitted[kind is AnchoredClassifier]
    with pytest.raises(ValueError, match=f"Input X contains {word}"):
        model.predict(spoilt(X, entry))


@pytest.mark.parametrize("kind", [AnchoredRegressor, AnchoredClassifier])
def test_too_few_rows(kind):
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        kind(**QUICK).fit(np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(ValueError, match=r"1 sample\(s\)|only one class"):
        kind(**QUICK).fit(np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        kind(**QUICK).fit(np.zeros((5, 0)), np.arange(5) % 2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        kind(**QUICK).fit(np.zeros((5, 2)), np.arange(4) % 2)


@pytest.mark.parametrize("rows", [2, 3])
def test_a_few_rows_are_enough(rows):
    """Fewer rows than folds: every automatic choice still works."""
    X = np.arange(2.0 * rows).reshape(rows, 2) ** 2
    mean, std = AnchoredRegressor(n_estimators=2, max_iter=20, random_state=0).fit(X, X[:, 0]).predict(X, True)
    assert np.all(np.isfinite(mean)) and np.all(std > 0)
    with pytest.raises(ValueError, match="sample_weight: all weights but one are zero"):
        AnchoredRegressor(**FIXED).fit(X, X[:, 0], sample_weight=[1] + [0] * (rows - 1))


@pytest.mark.parametrize("value", [0.0, -7.0, 1e30])
def test_constant_targets(waves, value):
    X, _ = waves
    model = AnchoredRegressor(**{**QUICK, "prior_scale": "auto", "max_iter": 400}).fit(X, np.full(60, value))
    mean, std = model.predict(X, return_std=True)
    unit = max(1, 1e-14 * abs(value))  # of float64 at this height
    assert np.all(np.abs(mean - value) < 0.1 * unit)
    assert np.all((std > 0) & (std < 0.1 * unit))


def test_constant_features_change_nothing(waves):
    """A column of one value, however large, is the same as one of zeros."""
    X, y = waves
    predictions = [
        AnchoredRegressor(**FIXED).fit(wide, y).predict(wide, return_std=True)
        for wide in (np.c_[X[:, 0], np.full(60, value)] for value in (0.0, 5.0, 0.1, 2.0**100, -1e30))
    ]
    for prediction in predictions[1:]:
        assert np.array_equal(prediction, predictions[0])


@pytest.mark.parametrize("power", [90, -90])
def test_units_do_not_matter(waves, power):
    """Values of 1e27, or 1e-27: what rescaled data give. A power of two, so that nothing is rounded."""
    X, y = waves
    unit = 2.0**power
    mean, std = AnchoredRegressor(**FIXED).fit(X, y).predict(X, return_std=True)
    far = AnchoredRegressor(**{**FIXED, "noise_variance": 0.01 * unit**2}).fit(X * unit, y * unit)
    far_mean, far_std = far.predict(X * unit, return_std=True)
    assert np.allclose(far_mean / unit, mean, rtol=1e-6, atol=1e-6)
    assert np.allclose(far_std / unit, std, rtol=1e-6)
    automatic = {"n_estimators": 2, "max_iter": 8, "random_state": 0}
    near, far = (AnchoredRegressor(**automatic).fit(X * u, y * u) for u in (1.0, unit))
    assert np.isclose(far.noise_variance_ / unit**2, near.noise_variance_, rtol=1e-4)
    classes = [AnchoredClassifier(**QUICK, temperature=0.3).fit(X * u, y > 0).predict_proba(X * u) for u in (1, unit)]
    assert np.allclose(*classes, atol=1e-6)


def test_one_value_of_1e30(waves):
    """One row far away: finite, and the result for the same table in other units."""
    X, y = waves
    results = []
    for unit in (1.0, 2.0**-100):
        wild = spoilt(X, 1e30) * [1.0, unit]
        results.append(AnchoredRegressor(**FIXED).fit(wild, y).predict(wild, return_std=True))
    assert np.all(np.isfinite(results))
    assert np.allclose(*results, rtol=1e-5, atol=1e-5)
    mean, std = AnchoredRegressor(**{**FIXED, "noise_variance": 1e56}).fit(X, spoilt(y, 1e30)).predict(X, True)
    assert np.all(np.isfinite(mean)) and np.all(std >= 1e28)


@pytest.mark.parametrize(("x_unit", "y_unit"), [(2.0**-1000, 2.0**-400), (2.0**1000, 2.0**400)])
def test_tiny_and_huge_units_change_nothing_but_the_units(waves, x_unit, y_unit):
    """Powers of two are exact, so the members are the same bit for bit."""
    X, y = waves
    fixed = {**FIXED, "noise_variance": 0.01}
    plain = AnchoredRegressor(**fixed).fit(X, y).predict(X, return_std=True)
    fixed["noise_variance"] *= y_unit**2
    scaled = AnchoredRegressor(**fixed).fit(X * x_unit, y * y_unit).predict(X * x_unit, return_std=True)
    assert np.allclose(np.array(scaled) / y_unit, plain, rtol=1e-12)


@pytest.mark.parametrize(
    ("x_unit", "y_unit", "what"),
    [
        (1e-307, 1, "X: the values of column 1 are too small"),
        (1e306, 1, "X: the values of column 1 are too large"),
        (1, 1e-200, "y: the values of column 0 are too small"),
        (1, 1e300, "y: the values of column 0 are too large"),
    ],
)
def test_units_out_of_range_are_refused(waves, x_unit, y_unit, what):
    X, y = waves
    with pytest.raises(ValueError, match=what):
        AnchoredRegressor(**FIXED).fit(X * [1, x_unit], y * y_unit)


@pytest.mark.parametrize("far", [1e30, -1e30, 1e308])
def test_points_too_far_away(waves, fitted, far):
    X, _ = waves
    for model in fitted:
        with pytest.raises(ValueError, match=r"X: row 1, column 1 lies .* standard deviations from the training data"):
            model.predict(spoilt(X, far))
        assert np.all(np.isfinite(model.predict(spoilt(X, 1e6))))


def test_wrong_widths(waves, fitted):
    X, y = waves
    for model in fitted:
        with pytest.raises(ValueError, match="X has 3 features, but"):
            model.predict(np.c_[X, X[:, 0]])
        with pytest.raises(ValueError, match="Reshape your data"):
            model.predict(X[0])
    started = AnchoredRegressor(**FIXED).partial_fit(X, y)
    with pytest.raises(ValueError, match="X has 1 features"):
        started.partial_fit(X[:, :1], y)
    with pytest.raises(ValueError, match="y has 2 outputs, but the model has 1"):
        started.partial_fit(X, np.c_[y, y])


BOTH = [
    *[("n_estimators", value) for value in (0, -1, 2.5, "ten", None, True)],
    *[("hidden_layer_sizes", value) for value in (50, (0,), (3.5,), "50", (5, -1), None)],
    *[("activation", value) for value in ("swoosh", None, 3, ["relu"])],
    *[("prior_scale", value) for value in ("automatic", 0, -1.0, np.nan, (1.0, 2.0, 3.0), (1.0,), (1.0, 0.0), None)],
    *[("anchoring", value) for value in ("posterior", -0.5, np.inf, (1.0, -1.0), (1.0, 1.0, 1.0), None)],
    *[("trainable", value) for value in ("first_layer", None, True)],
    *[("optimizer", value) for value in ("adamant", 3, None, optax.adam(0.1), np.sqrt, optax.lbfgs, "lbfgs")],
    *[("learning_rate_init", value) for value in (0, -0.1, np.nan, "fast", None)],
    *[("max_iter", value) for value in (0, 1.5, "many", None)],
    *[("batch_size", value) for value in ("all", 0, 2.5, None)],
    *[("validation_fraction", value) for value in (0, 1, 1.5, "half", None)],
    *[("n_iter_no_change", value) for value in (0, None)],
    *[("early_stopping", value) for value in ("yes", None)],
    ("warm_start", "yes"),
    ("n_jobs", 0),
]
OWN = {
    AnchoredRegressor: [
        ("noise_variance", value)
        for value in ("automatic", 0, -0.1, np.nan, np.inf, (0.1, 0.2), (), None, "0.1", {"a": 1})
    ],
    AnchoredClassifier: [
        *[("temperature", value) for value in ("hot", 0, -1, np.nan, None, (1.0, 2.0))],
        ("anchoring", "randomized"),
    ],
}


@pytest.mark.parametrize("kind", [AnchoredRegressor, AnchoredClassifier])
def test_every_argument_is_checked_by_name(waves, kind):
    X, y = waves
    y = y if kind is AnchoredRegressor else y > 0
    usual = {**QUICK, ("noise_variance" if kind is AnchoredRegressor else "temperature"): 0.1}
    for name, value in BOTH + OWN[kind]:
        model = kind(**{**usual, name: value})  # the constructor only stores
        with pytest.raises(ValueError, match=name):
            model.fit(X, y)
        with pytest.raises(NotFittedError):
            model.predict(X)


def test_optimisers_known_by_name_need_a_learning_rate_and_gradients_alone():
    assert {"adam", "adamw", "sgd", "rmsprop"} <= set(OPTIMIZERS)
    for factory in OPTIMIZERS.values():
        check_optimizer(factory)


@pytest.mark.parametrize("kind", [AnchoredRegressor, AnchoredClassifier])
def test_unfitted_use(waves, kind, tmp_path):
    model = kind()
    methods = ["predict", "predict_dist"]
    methods += ["predict_interval", "sample_y"] if kind is AnchoredRegressor else ["predict_proba"]
    for method in methods:
        with pytest.raises(NotFittedError, match=kind.__name__):
            getattr(model, method)(waves[0])
    with pytest.raises(NotFittedError):
        model.sample_functions(1)
    with pytest.raises(NotFittedError):
        model.score(*waves)
    with pytest.raises(NotFittedError):
        model.save(tmp_path / "model")
    if kind is AnchoredRegressor:
        with pytest.raises(NotFittedError):
            model.predict(waves[0], return_cov=True)


def test_classes_that_do_not_fit(waves):
    X, y = waves
    quick = {**QUICK, "temperature": 0.3}
    with pytest.raises(ValueError, match="y has only one class"):
        AnchoredClassifier(**quick).fit(X, np.zeros(60))
    with pytest.raises(ValueError, match="y has only one class"):
        AnchoredClassifier(**quick).fit(X, y > 0, sample_weight=y > 0)
    with pytest.raises(ValueError, match="classes must be passed on the first call"):
        AnchoredClassifier(**quick).partial_fit(X, y > 0)
    with pytest.raises(ValueError, match=r"y has the classes \['c'\].*classes=\['a', 'b'\]"):
        AnchoredClassifier(**quick).partial_fit(X, np.where(y > 0, "a", "c"), classes=["a", "b"])
    model = AnchoredClassifier(**quick).partial_fit(X, np.where(y > 0, "a", "b"), classes=["a", "b"])
    with pytest.raises(ValueError, match=r"y has the classes \['c'\]"):
        model.partial_fit(X, np.where(y > 0, "a", "c"))
    with pytest.raises(ValueError, match="classes="):
        model.partial_fit(X, np.where(y > 0, "a", "b"), classes=["a", "b", "c"])
    with pytest.raises(ValueError, match="Unknown label type: continuous"):
        AnchoredClassifier(**quick).fit(X, y)


def test_weights_that_cannot_be(waves):
    X, y = waves
    with pytest.raises(ValueError, match=r"(?i)negative values.*sample_weight"):
        AnchoredRegressor(**FIXED).fit(X, y, sample_weight=-np.ones(60))
    with pytest.raises(ValueError, match=r"(?i)sample.weight.*zero"):  # scikit-learn's words or ours
        AnchoredRegressor(**FIXED).fit(X, y, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match=r"sample_weight\.shape"):
        AnchoredRegressor(**FIXED).fit(X, y, sample_weight=np.ones(59))
    with pytest.raises(ValueError, match="sample_weight: 1e"):
        AnchoredRegressor(**FIXED).fit(X, y, sample_weight=np.full(60, 1e300))


@pytest.mark.parametrize("trainable", ["all", "last_layer"])
@pytest.mark.parametrize("noise", [1e-80, 1e80])
def test_noise_out_of_all_proportion(waves, trainable, noise):
    with pytest.raises(ValueError, match="noise_variance"):
        AnchoredRegressor(**{**QUICK, "noise_variance": noise}, trainable=trainable).fit(*waves)


def test_what_predictions_are_asked_for(waves, fitted):
    X, _ = waves
    regressor, classifier = fitted
    with pytest.raises(ValueError, match="return_std and return_cov"):
        regressor.predict(X, return_std=True, return_cov=True)
    for coverage in (0, 1, -0.5, 95, np.nan):
        with pytest.raises(ValueError, match="coverage"):
            regressor.predict_interval(X, coverage=coverage)
    for model in fitted:
        with pytest.raises(ValueError, match=r"n_samples=3, but the ensemble has only 2 members.*warm_start=True"):
            model.sample_functions(3)
        for n_samples in (0, -1, 1.5, "all"):
            with pytest.raises(ValueError, match="n_samples"):
                model.sample_functions(n_samples)
    with pytest.raises(ValueError, match="n_samples"):
        regressor.sample_y(X, -1)
    with pytest.raises(TypeError):
        jax.grad(regressor.sample_functions(1)[0])(X)  # a whole table has no single value
    with pytest.raises(AttributeError):
        classifier.predict_interval(X)


def test_too_few_rows_to_hold_any_out():
    with pytest.raises(ValueError, match="early_stopping=True: 2 rows are too few"):
        AnchoredRegressor(**FIXED, early_stopping=True, validation_fraction=0.9).fit([[0.0], [1.0]], [0.0, 1.0])
