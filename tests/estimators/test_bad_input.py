"""Bad input raises an error that names the argument and the remedy; unusual but valid input gives correct results."""

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


def with_entry(values, entry):
    """A copy of `values` with `entry` in one place."""
    values = np.array(values)
    values.flat[3] = entry
    return values


@pytest.fixture(scope="module")
def fitted():
    """A regressor and a classifier."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(60, 2))
    y = np.sin(2 * X[:, 0])
    return AnchoredRegressor(**FIXED).fit(X, y), AnchoredClassifier(**QUICK, temperature=0.3).fit(X, y > 0)


@pytest.mark.parametrize("entry", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("estimator", [AnchoredRegressor, AnchoredClassifier])
def test_nan_and_infinity(waves, fitted, estimator, entry):
    X, y = waves
    labels = y > 0 if estimator is AnchoredClassifier else y
    word = "NaN" if np.isnan(entry) else "infinity"
    for method in ("fit", "partial_fit"):
        extra = {"classes": [False, True]} if method == "partial_fit" and estimator is AnchoredClassifier else {}
        with pytest.raises(ValueError, match=f"Input X contains {word}"):
            getattr(estimator(**QUICK), method)(with_entry(X, entry), labels, **extra)
    if estimator is AnchoredRegressor:
        with pytest.raises(ValueError, match=f"Input y contains {word}"):
            estimator(**FIXED).fit(X, with_entry(y, entry))
    with pytest.raises(ValueError, match=f"Input sample_weight contains {word}"):
        estimator(**QUICK).fit(X, labels, sample_weight=with_entry(np.ones(60), entry))
    model = fitted[estimator is AnchoredClassifier]
    with pytest.raises(ValueError, match=f"Input X contains {word}"):
        model.predict(with_entry(X, entry))


@pytest.mark.parametrize("estimator", [AnchoredRegressor, AnchoredClassifier])
def test_too_few_rows(estimator):
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        estimator(**QUICK).fit(np.zeros((0, 2)), np.zeros(0))
    with pytest.raises(ValueError, match=r"1 sample\(s\)|only one class"):
        estimator(**QUICK).fit(np.zeros((1, 2)), np.zeros(1))
    with pytest.raises(ValueError, match=r"0 feature\(s\)"):
        estimator(**QUICK).fit(np.zeros((5, 0)), np.arange(5) % 2)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        estimator(**QUICK).fit(np.zeros((5, 2)), np.arange(4) % 2)


@pytest.mark.parametrize("rows", [2, 3])
def test_a_few_rows_are_enough(rows):
    """With fewer rows than folds, every automatic choice still works."""
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
    unit = max(1, 1e-14 * abs(value))  # for large values, about the precision of float64
    assert np.all(np.abs(mean - value) < 0.1 * unit)
    assert np.all((std > 0) & (std < 0.1 * unit))


def test_the_value_of_a_constant_column_does_not_matter(waves):
    """A constant column gives the same predictions as a column of zeros, however large its value is."""
    X, y = waves
    predictions = [
        AnchoredRegressor(**FIXED).fit(wide, y).predict(wide, return_std=True)
        for wide in (np.c_[X[:, 0], np.full(60, value)] for value in (0.0, 5.0, 0.1, 2.0**100, -1e30))
    ]
    for prediction in predictions[1:]:
        assert np.array_equal(prediction, predictions[0])


@pytest.mark.parametrize("power", [90, -90])
def test_large_and_small_units(waves, power):
    """Data of about 1e27 or 1e-27 give the rescaled predictions. The factor is a power of two, to avoid rounding."""
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
    """With one row far away, predictions are finite, and the same for other units of its column."""
    X, y = waves
    results = []
    for unit in (1.0, 2.0**-100):
        far = with_entry(X, 1e30) * [1.0, unit]
        results.append(AnchoredRegressor(**FIXED).fit(far, y).predict(far, return_std=True))
    assert np.all(np.isfinite(results))
    assert np.allclose(*results, rtol=1e-5, atol=1e-5)
    odd_target = AnchoredRegressor(**FIXED).fit(X, with_entry(y, 1e12)).predict(X, return_std=True)
    assert np.all(np.abs(odd_target) < 10)
    with pytest.raises(ValueError, match="y: row 3, column 0 lies more than"):
        AnchoredRegressor(**FIXED).fit(X, with_entry(y, 1e30))


@pytest.mark.parametrize(("x_unit", "y_unit"), [(2.0**-1000, 2.0**-400), (2.0**1000, 2.0**400)])
def test_extreme_units(waves, x_unit, y_unit):
    """Factors are powers of two, so that nothing is rounded and members are the same."""
    X, y = waves
    fixed = {**FIXED, "noise_variance": 0.01}
    plain = AnchoredRegressor(**fixed).fit(X, y).predict(X, return_std=True)
    fixed["noise_variance"] *= y_unit**2
    scaled = AnchoredRegressor(**fixed).fit(X * x_unit, y * y_unit).predict(X * x_unit, return_std=True)
    assert np.allclose(np.array(scaled) / y_unit, plain, rtol=1e-12)


@pytest.mark.parametrize(
    ("x_unit", "y_unit", "message"),
    [
        (1e-307, 1, "X: the values of column 1 are too small"),
        (1e306, 1, "X: the values of column 1 are too large"),
        (1, 1e-200, "y: the values of column 0 are too small"),
        (1, 1e300, "y: the values of column 0 are too large"),
    ],
)
def test_units_out_of_range_raise_an_error(waves, x_unit, y_unit, message):
    X, y = waves
    with pytest.raises(ValueError, match=message):
        AnchoredRegressor(**FIXED).fit(X * [1, x_unit], y * y_unit)


@pytest.mark.parametrize("far", [1e30, -1e30, 1e308])
def test_predictions_too_far_from_the_data(waves, fitted, far):
    X, _ = waves
    for model in fitted:
        with pytest.raises(ValueError, match=r"X: row 1, column 1 lies .* standard deviations from the training data"):
            model.predict(with_entry(X, far))
        assert np.all(np.isfinite(model.predict(with_entry(X, 1e6))))


def test_wrong_numbers_of_columns(waves, fitted):
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


# Invalid arguments of both estimators, and of each
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


@pytest.mark.parametrize("estimator", [AnchoredRegressor, AnchoredClassifier])
def test_an_error_names_the_invalid_argument(waves, estimator):
    X, y = waves
    y = y if estimator is AnchoredRegressor else y > 0
    valid = {**QUICK, ("noise_variance" if estimator is AnchoredRegressor else "temperature"): 0.1}
    for name, value in BOTH + OWN[estimator]:
        model = estimator(**{**valid, name: value})  # the constructor does not check
        with pytest.raises(ValueError, match=name):
            model.fit(X, y)
        with pytest.raises(NotFittedError):
            model.predict(X)


def test_named_optimisers_need_only_a_learning_rate_and_gradients():
    assert {"adam", "adamw", "sgd", "rmsprop"} <= set(OPTIMIZERS)
    for factory in OPTIMIZERS.values():
        check_optimizer(factory)


@pytest.mark.parametrize("estimator", [AnchoredRegressor, AnchoredClassifier])
def test_unfitted_estimators(waves, estimator, tmp_path):
    model = estimator()
    methods = ["predict", "predict_dist"]
    methods += ["predict_interval", "sample_y"] if estimator is AnchoredRegressor else ["predict_proba"]
    for method in methods:
        with pytest.raises(NotFittedError, match=estimator.__name__):
            getattr(model, method)(waves[0])
    with pytest.raises(NotFittedError):
        model.sample_functions(1)
    with pytest.raises(NotFittedError):
        model.score(*waves)
    with pytest.raises(NotFittedError):
        model.save(tmp_path / "model")
    if estimator is AnchoredRegressor:
        with pytest.raises(NotFittedError):
            model.predict(waves[0], return_cov=True)


def test_invalid_classes(waves):
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


def test_invalid_weights(waves):
    X, y = waves
    with pytest.raises(ValueError, match=r"(?i)negative values.*sample_weight"):
        AnchoredRegressor(**FIXED).fit(X, y, sample_weight=-np.ones(60))
    with pytest.raises(ValueError, match=r"(?i)sample.weight.*zero"):  # the message of scikit-learn, or ours
        AnchoredRegressor(**FIXED).fit(X, y, sample_weight=np.zeros(60))
    with pytest.raises(ValueError, match=r"sample_weight\.shape"):
        AnchoredRegressor(**FIXED).fit(X, y, sample_weight=np.ones(59))
    with pytest.raises(ValueError, match="sample_weight: 1e"):
        AnchoredRegressor(**FIXED).fit(X, y, sample_weight=np.full(60, 1e300))


@pytest.mark.parametrize("trainable", ["all", "last_layer"])
@pytest.mark.parametrize("noise", [1e-80, 1e80])
def test_noise_far_from_the_scale_of_y(waves, trainable, noise):
    with pytest.raises(ValueError, match="noise_variance"):
        AnchoredRegressor(**{**QUICK, "noise_variance": noise}, trainable=trainable).fit(*waves)


def test_invalid_arguments_of_predictions(waves, fitted):
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
        jax.grad(regressor.sample_functions(1)[0])(X)  # the output for a table is not a scalar
    with pytest.raises(AttributeError):
        classifier.predict_interval(X)


def test_too_few_rows_for_early_stopping():
    with pytest.raises(ValueError, match="none of the 2 rows would then remain to train on; set early_stopping=False"):
        AnchoredRegressor(**FIXED, early_stopping=True, validation_fraction=0.9).fit([[0.0], [1.0]], [0.0, 1.0])
