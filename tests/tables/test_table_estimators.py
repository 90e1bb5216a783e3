"""Estimators of data frames: scikit-learn's contract, pandas and polars alike, and files shared with the commands."""

import jax
import numpy as np
import pandas as pd
import pytest
from command_line import run
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from anchored import AnchoredClassifier, AnchoredRegressor
from anchored.errors import ArgumentError, TableError
from anchored.tables import TableClassifier, TableEncoder, TableRegressor, load

pytestmark = pytest.mark.usefixtures("unoptimised")
# In closed form
SOLVED = {"hidden_layer_sizes": (20,), "trainable": "last_layer", "noise_variance": 0.05, "prior_scale": 1.0}
SOLVED["random_state"] = 0
N = 80


def regressor(n_estimators=3, **reading):
    return TableRegressor(AnchoredRegressor(n_estimators, **SOLVED), **reading)


@pytest.fixture(scope="module")
def frame():
    """Numbers, categories, text, truth values, dates, and missing values of each."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=N),
            "kind": pd.Categorical(rng.choice(["flat", "house", "loft"], N)),
            "garden": rng.choice(["yes", "N"], N),
            "new": rng.random(N) < 0.5,
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), "D"),
            "price": [f"{1000 + 7 * i:,.2f} €" for i in range(N)],
        }
    )
    for i, name in enumerate(("size", "kind", "sold")):
        frame.loc[i::9, name] = None
    return frame


@pytest.fixture(scope="module")
def y(frame):
    return pd.Series(frame["size"].fillna(0) + (frame["kind"] == "flat") + 0.1 * np.sin(np.arange(N)), name="value")


def small_classifier():
    settings = {"hidden_layer_sizes": (20,), "max_iter": 20, "batch_size": 10_000, "temperature": 0.5}
    return TableClassifier(AnchoredClassifier(2, prior_scale=2.0, random_state=0, **settings))


@parametrize_with_checks([TableEncoder(), regressor(2), small_classifier()])
def test_scikit_learn_checks(estimator, check):
    compares_weights = check.func.__name__ == "check_sample_weight_equivalence_on_dense_data"
    with jax.enable_x64(compares_weights):  # training with weights and with repeated rows differs by rounding errors
        check(estimator)


def test_a_row_of_weight_zero_has_no_effect(frame, y):
    """Neither on the members nor on the levels, ranges and medians of the encoding."""
    odd = pd.DataFrame([{**frame.iloc[1].to_dict(), "size": 1e12, "garden": "yes", "price": "9,999,999.00 €"}] * 6)
    rows, targets = pd.concat([frame, odd], ignore_index=True), np.append(y, [1e6] * 6)
    weights = np.repeat([1.0, 0.0], [N, 6])
    model = regressor().fit(frame, y)
    weighted = regressor().fit(rows, targets, sample_weight=weights)
    assert weighted.schema_ == model.schema_
    assert np.array_equal(weighted.predict(frame), model.predict(frame))
    with pytest.raises(ValueError, match="at least one non-zero"):
        regressor().fit(rows, targets, sample_weight=0 * weights)


def test_pandas_and_polars_agree(frame, y):
    polars = pytest.importorskip("polars")
    model = regressor().fit(frame, y)
    other = polars.from_pandas(frame)
    again = regressor().fit(other, y.to_numpy())
    assert np.array_equal(again.predict(other), model.predict(frame)) and again.schema_.names == model.schema_.names
    assert np.array_equal(model.predict(other), model.predict(frame))
    mean, std = model.predict(frame, return_std=True)
    lower, upper = model.predict_interval(frame)
    assert np.allclose([lower, upper], [mean - 1.96 * std, mean + 1.96 * std], rtol=1e-3, atol=1e-3)  # normal noise
    assert np.corrcoef(mean, y)[0, 1] > 0.9


def test_scikit_learns_tools(frame, y):
    assert cross_val_score(regressor(), frame, y, cv=3).mean() > 0.5
    search = GridSearchCV(regressor(), {"estimator__prior_scale": [0.5, 1.0], "ignore": [(), ("price",)]}, cv=2)
    assert search.fit(frame, y).best_score_ > 0.5
    piped = make_pipeline(TableEncoder(), AnchoredRegressor(3, **SOLVED)).fit(frame, y)
    assert np.allclose(piped.predict(frame), regressor().fit(frame, y).predict(frame))
    found = permutation_importance(regressor().fit(frame, y), frame, y, n_repeats=3, random_state=0).importances_mean
    assert frame.columns[np.argmax(found)] == "size"


def test_scikit_learns_tools_take_polars(frame, y):
    polars = pytest.importorskip("polars")
    columns = ["size", "kind", "garden"]
    frame, other = frame[columns], polars.from_pandas(frame[columns])
    assert np.allclose(cross_val_score(regressor(), other, y, cv=2), cross_val_score(regressor(), frame, y, cv=2))
    found = [
        permutation_importance(regressor().fit(some, y), some, y, n_repeats=2, random_state=0).importances
        for some in (frame, other)
    ]
    assert np.allclose(*found) and found[0][0].min() > 0


def test_models_pass_between_python_and_the_commands(frame, y, tmp_path):
    model = regressor().fit(frame, y)
    model.save(tmp_path / "model")
    frame.to_csv(tmp_path / "new.csv", index=False)
    told = run("predict", tmp_path / "model", tmp_path / "new.csv", "-o", tmp_path / "p.parquet")
    assert told.exit_code == 0, told.output
    predictions = pd.read_parquet(tmp_path / "p.parquet")
    assert np.allclose(predictions["mean"], model.predict(frame), rtol=1e-12, atol=0)
    assert np.allclose(predictions["std"], model.predict(frame, return_std=True)[1], rtol=1e-12, atol=0)
    again = load(tmp_path / "model")
    assert isinstance(again, TableRegressor) and np.array_equal(again.predict(frame), model.predict(frame))


def test_classes(frame, tmp_path):
    labels = np.where(frame["garden"] == "yes", "big", "small")
    few = {"n_estimators": 2, "max_iter": 60, "temperature": 0.5, "prior_scale": 2.0, "random_state": 0}
    model = TableClassifier(AnchoredClassifier(hidden_layer_sizes=(5,), **few)).fit(frame, labels)
    assert (model.predict(frame) == labels).mean() > 0.95 and model.classes_.tolist() == ["big", "small"]
    model.save(tmp_path / "model")
    assert np.array_equal(load(tmp_path / "model").predict_proba(frame), model.predict_proba(frame))


def test_errors_name_the_column(frame, y):
    for column in ("kind", "sold", "garden"):
        with pytest.raises(ArgumentError, match=f"X has the column '{column}'.*TableRegressor"):
            AnchoredRegressor().fit(frame[[column]], y)
    with pytest.raises(TableError, match="X: it has no column 'kind', which the model reads"):
        regressor().fit(frame, y).predict(frame.drop(columns="kind"))
    with pytest.raises(ArgumentError, match="ignore names the column 'nothing'"):
        regressor(ignore=["nothing"]).fit(frame, y)
