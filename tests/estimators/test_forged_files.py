"""Manipulated files with valid checksums: loading raises an error that names the field, or changes nothing."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import forging
import jax
import numpy as np
import pyarrow as pa
import pytest

import anchored
from anchored import AnchoredClassifier, AnchoredRegressor, BayesianRegressor, StorageError
from anchored.errors import TableError
from anchored.estimators import bounds
from anchored.methods import HMC, FirstOrder, GaussianProcess, RandomizedPrior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import ACTIVATIONS, MLP
from anchored.storage import archive
from anchored.storage.headers import Header
from anchored.tables import saved_model, scores
from anchored.tables.model import TableModel
from anchored.tables.prediction import prediction_columns
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema
from anchored.tables.target import Target

pytestmark = pytest.mark.usefixtures("unoptimised")
N = 40
X = np.random.default_rng(0).uniform(-1, 1, (N, 2))
Y = np.sin(3 * X[:, 0])
QUICK = {"hidden_layer_sizes": (3,), "prior_scale": 2.0, "random_state": 0}
SHORT = {**QUICK, "n_estimators": 2, "max_iter": 3}
KINDS = ("regressor", "classifier", "table", "rival", "process")


def rows():
    """A table with a number, a category, a date, a constant column, and the target."""
    columns = {
        "a": pa.array(X[:, 0]),
        "c": pa.array(["u", "v", "w", "u"] * (N // 4)),
        "d": pa.array([f"2024-0{1 + i % 9}-1{i % 8}" for i in range(N)]),
        "k": pa.array(["same"] * N),
        "y": pa.array(Y),
    }
    return RowBatch("data.csv", 1, columns)


def table_model():
    """A model of the table."""
    table = rows()
    schema, target = Schema.infer(table.without(["y"])), Target.infer(table, "y")
    encoded, y = schema.encode(table)[0], target.read(table)[0]
    estimator = AnchoredRegressor(noise_variance=0.01, **SHORT).fit(encoded, y)
    estimator.conformalize(encoded[:20], y[:20], 0.9)
    return TableModel(schema, target, estimator, dict.fromkeys(scores.REGRESSION, 0.5) | {"rows": 12})


def fitted(kind):
    """A fitted model of one of KINDS."""
    if kind == "regressor":
        return AnchoredRegressor(noise_variance="heteroscedastic", **SHORT).fit(X, Y)
    if kind == "classifier":
        early = {"early_stopping": True, "n_iter_no_change": 1}
        return AnchoredClassifier(temperature=0.3, **early, **SHORT).fit(X, np.where(Y > 0, "yes", "no"))
    if kind == "table":
        return table_model()
    method = RandomizedPrior(2, solver=FirstOrder(max_iter=3)) if kind == "rival" else GaussianProcess()
    return BayesianRegressor(method, Gaussian(0.01), **QUICK).fit(X, Y)


def predicted(model):
    """All numbers that `model` predicts; also checks that its descriptions can be made."""
    if isinstance(model, TableModel):
        assert all(str(column) for column in model.schema.columns) and scores.calibration(model.held_out)
        predictive = model.predict(rows())[0]
        return np.stack(list(prediction_columns(model, predictive, 0.95).values()))
    predictive = model.predict_dist(X)
    names = ("mean", "epistemic_variance", "aleatoric_variance") if hasattr(predictive, "mean") else ("probabilities",)
    return np.concatenate([np.ravel(getattr(predictive, name)) for name in names])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A function that returns one small file of each kind: its contents, how it is loaded, and what it predicts."""
    folder, made = tmp_path_factory.mktemp("files"), {}

    def file(kind):
        if kind not in made:
            path, model = folder / kind, fitted(kind)
            saved_model.save(model, path) if kind == "table" else model.save(path)
            header, arrays = forging.parts(path)
            load = saved_model.load if kind == "table" else anchored.load
            assert np.array_equal(predicted(load(path)), predicted(model))
            error = TableError if kind == "table" else StorageError
            made[kind] = SimpleNamespace(
                path=path, header=header, arrays=arrays, load=load, error=error, predicted=predicted(model)
            )
        return made[kind]

    return file


def may_change_predictions(what):
    """Whether the edit changes a number that may have any value, so that predictions may change."""
    return what.startswith("array ") or any(name in what for name in ("noise_variance_", "decimals", "guarantee"))


@pytest.mark.parametrize("kind", KINDS)
def test_forged_files_raise_an_error_or_change_nothing(files, tmp_path, kind):
    file, forged = files(kind), tmp_path / "forged"
    edits = [edit for edit in forging.edits(file.header, file.arrays) if not edit[0].startswith("text")]
    n_errors, chosen = 0, edits[KINDS.index(kind) :: len(edits) // 100]
    for edit in chosen:
        what, header, arrays = forging.edited(file.header, file.arrays, [edit])
        forging.write_forged(forged, header, arrays)
        try:
            model = file.load(forged)
        except file.error as error:
            n_errors += 1
            assert str(forged) in str(error) and len(str(error)) < 2000, what
        else:
            again = predicted(model)
            assert np.isfinite(again).all(), what
            assert may_change_predictions(what) or np.array_equal(again, file.predicted), what
    assert n_errors > 0.7 * len(chosen)


def test_invalid_headers(files, tmp_path):
    file, forged = files("process"), tmp_path / "forged"
    for edit in forging.text_edits():
        what, header, arrays = forging.edited(file.header, {}, [edit])
        forging.write_forged(forged, header, arrays)
        with pytest.raises(StorageError) as error:
            archive.read(forged)
        assert str(forged) in str(error.value) and len(str(error.value)) < 500, what


def set_field(name, value):
    *above, last = name.split(".")

    def change(header, arrays):
        for key in above:
            header = header[key]
        header[last] = value

    return change


def with_a_sampler(header, arrays):
    header["method"] = {"class": "HMC", **{name: getattr(HMC(), name) for name in HMC.__dataclass_fields__}}
    header["method"] |= {"n_chains": 1, "n_warmup": 1, "n_samples": 4}


def one_value(name, value, dtype=None):
    def change(header, arrays):
        arrays[name] = np.full_like(arrays[name], value, dtype)

    return change


def all_values(prefix, value):
    def change(header, arrays):
        for name in [name for name in arrays if name.startswith(prefix)]:
            arrays[name] = np.full_like(arrays[name], value)

    return change


def many_rows(header, arrays):
    header["method"]["max_rows"] = 10**6
    for name in ("inputs", "targets", "weights"):
        arrays[f"rows/{name}"] = np.repeat(arrays[f"rows/{name}"][:1], 10_001, axis=0)


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("process", with_a_sampler, "array 'record/effective_sample_size' is missing"),
        ("process", set_field("kind", "os.system"), "it does not hold an estimator .* knows: 'os.system'"),
        ("process", set_field("method.class", "Popen"), r"field 'method.class' must be one of \['AnchoredEns"),
        ("process", set_field("method.max_rows", 5), "array 'rows/inputs' must have from 1 to max_rows=5 rows, not 40"),
        ("process", set_field("network.hidden_layer_sizes", [2**40]), "at most 100 layers of 1 to 16,777,216 units"),
        ("regressor", set_field("network.hidden_layer_sizes", [2**24] * 2), "prior_mean/layer_2/weights' is missing"),
        ("regressor", set_field("network.hidden_layer_sizes", [4]), r"layer_0/bias' must have the shape \(2, 4\)"),
        ("regressor", set_field("network.n_outputs", 2), "'network.n_outputs' must be a whole number from 1 to 1"),
        ("regressor", set_field("network", None), "fitted with a custom network; pass that network"),
        ("regressor", set_field("params.max_iter", 0), "field params.max_iter must be a whole number of at least 1"),
        ("regressor", set_field("params.noise_variance", [1, 2]), "field params.noise_variance must be one number or"),
        ("regressor", set_field("params.anchoring", [1, 2, 3]), "field params.anchoring must be one κ"),
        ("regressor", set_field("params.prior_scale", [1.0]), "field params.prior_scale: the network has 2 layers"),
        ("regressor", set_field("params.optimizer", "apply_updates"), "field 'params.optimizer' must be one of"),
        ("regressor", set_field("method.solver.optimizer", "lbfgs"), "field 'method.solver.optimizer' must be one of"),
        ("regressor", set_field("method.trainable", "none"), "field method.trainable must be one of"),
        ("regressor", set_field("fitted.noise_variance_", {"x": 1}), "field 'fitted.noise_variance_' must be a list"),
        ("regressor", set_field("fitted.seed_", 2**31), "field 'fitted.seed_' must be a whole number from 0 to"),
        ("regressor", one_value("x/mean", np.nan), "array 'x/mean' must hold finite numbers"),
        ("regressor", one_value("x/scale", 0), "array 'x/scale' must hold finite numbers from 1e-305"),
        ("regressor", one_value("noise/likelihood/base_variance", -1), "array 'noise/likelihood/base_variance' must"),
        ("regressor", one_value("model/prior_scale/layer_0/bias", 0), "prior_scale/layer_0/bias' must hold"),
        ("regressor", one_value("posterior/members/layer_0/bias", 1, np.float64), "must be of one type, not of float"),
        ("regressor", one_value("training/loss_curve", np.nan), "array 'training/loss_curve' must be finite"),
        ("regressor", all_values("posterior/members", 1e15), "arrays 'posterior/members/' must give outputs below 1e"),
        ("regressor", all_values("noise/members", 1e15), "arrays 'noise/members/' must give outputs below 1e"),
        ("rival", all_values("posterior/members/fixed", 1e10), "arrays 'posterior/members/' must give outputs below"),
        ("rival", all_values("posterior/members/strength", 1e15), "arrays 'posterior/members/' must give outputs"),
        ("process", many_rows, r"must have at most 10,000 rows, not 10,001, whose covariances take 0.8 GB"),
        ("process", set_field("method.n_draws", 10**6 + 1), "'method.n_draws' must be at most 1,000,000, not 1,000,0"),
        ("regressor", set_field("table", {"a": 1}), "field 'table.schema' is missing"),
        ("regressor", set_field("table", 5), "field 'table' must be an object, not 5"),
        ("regressor", set_field("table", {"schema": {}, "target": {}, "held_out": 1}), "'table.held_out' must be an"),
        ("classifier", set_field("classes.dtype", "<U200000000"), "field 'classes.dtype' must be one of"),
        ("classifier", set_field("classes.labels", ["yes", "no"]), "sorted list of at least two different labels"),
        ("classifier", set_field("classes.labels", ["a", "b", "c"]), "'network.n_outputs' must be .* from 3 to 3"),
        ("table", set_field("table.target.task", "classification"), "'table.target' does not describe what"),
        ("table", set_field("table.schema.columns", []), "'table.schema.columns' must hold columns"),
        ("table", lambda h, a: h["table"]["schema"]["columns"].pop(), "'table.schema' does not describe the columns"),
    ],
)  # fmt: skip
def test_the_error_names_what_is_wrong(files, tmp_path, monkeypatch, kind, change, message):
    monkeypatch.setattr(HMC, "fit", None)
    file, forged = files(kind), tmp_path / "forged"
    header, arrays = json.loads(json.dumps(file.header)), dict(file.arrays)
    change(header, arrays)
    forging.write_forged(forged, header, arrays)
    with pytest.raises(file.error, match=message) as error:
        file.load(forged)
    assert str(forged) in str(error.value)


def draws(network, scale, n_features=5, n_members=2):
    """Random parameters: weights have the standard deviation √(2/inputs) times the scale, about that of a prior."""
    rng, params = np.random.default_rng(0), network.init(None, np.zeros((1, n_features)))

    def drawn(leaf):
        gain = np.sqrt(2 / leaf.shape[0]) if leaf.ndim == 2 else 1.0
        return (scale * gain * rng.standard_normal((n_members, *leaf.shape))).astype(np.float32)

    return {name: {part: drawn(leaf) for part, leaf in layer.items()} for name, layer in params.items()}


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@pytest.mark.parametrize("norm", [bounds.frobenius_norm, bounds.spectral_norm])
def test_bounds_hold(activation, norm):
    network = MLP((8, 8, 8), 2, activation)
    members = draws(network, 3.0)
    member = {name: {part: leaf[0] for part, leaf in layer.items()} for name, layer in members.items()}
    corners = 1e6 * np.sign(np.random.default_rng(1).standard_normal((50, 5)))
    found = np.abs(network.apply(member, corners)).max()
    assert found <= bounds.output_bound(network, members, norm) < bounds.MAX_OUTPUT


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_bounds_hold_for_an_output_plus_a_derivative(activation):
    network = MLP((8, 8), 2, activation)
    members = {"first": draws(network, 3.0), "second": draws(network, 1.0)}
    first, second = (jax.tree.map(lambda leaf: leaf[0], members[name]) for name in ("first", "second"))
    corners = 1e6 * np.sign(np.random.default_rng(1).standard_normal((50, 5)))
    value, derivative = jax.jvp(lambda params: network.apply(params, corners), (first,), (second,))
    assert np.abs(value + derivative).max() <= bounds.output_bound(network, members, bounds.spectral_norm)


def test_ordinary_members_pass_and_huge_ones_do_not():
    for sizes, scale in (((), 100), ((50,) * 2, 100), ((100,) * 5, 5), ((60,) * 20, 1)):
        network = MLP(sizes, 1)
        bounds.check_outputs("members", network, draws(network, scale))
    for sizes, scale in (((8,), 1e8), ((8,) * 3, 1e15), ((8,) * 3, 1e5)):
        with pytest.raises(StorageError, match="arrays 'members/' must give outputs below 1e\\+18 for rows up to 1e"):
            bounds.check_outputs("members", MLP(sizes, 1), draws(MLP(sizes, 1), scale))


def test_loading_imports_nothing(files):
    """Loading a file must not import modules."""
    file = files("rival")
    before = set(sys.modules)
    file.load(file.path)
    assert set(sys.modules) == before


def test_a_model_that_could_not_be_loaded_is_not_saved(files, tmp_path):
    model = anchored.load(files("rival").path)
    for wrong, field in (({"random_state": -1}, "random_state"), ({"verbose": "much"}, "verbose")):
        with pytest.raises(ValueError, match=f"file could not be loaded again: field 'params.{field}'"):
            anchored.load(files("rival").path).set_params(**wrong).save(tmp_path / "model")
    assert not (tmp_path / "model").exists()
    model.save(tmp_path / "model")
    assert forging.parts(tmp_path / "model")[0] == files("rival").header


def test_random_forgeries_are_repeatable(files):
    file = files("process")
    one, two = (forging.forged(file.header, file.arrays, random_state=3) for _ in range(2))
    assert [next(one)[0] for _ in range(20)] == [next(two)[0] for _ in range(20)]


def test_fields_are_checked_by_their_types():
    header = Header({"whole": 3, "real": 2.5, "none": None, "list": [1, 2], "text": "x", "flag": True, "inf": 1e999})
    assert header.typed("whole", int) == header.typed("whole", float) == header.typed("whole", str | int) == 3
    assert header.typed("list", tuple[int, ...] | None) == (1, 2) and header.typed("none", int | None) is None
    for name, kind in (("flag", int), ("real", int), ("none", str), ("inf", float), ("list", int), ("text", bool)):
        with pytest.raises(StorageError, match=f"field '{name}' must be"):
            header.typed(name, kind)
    with pytest.raises(StorageError, match="must be a list, each text or null, not a list of 2"):
        header.typed("list", tuple[str, ...] | None)


def test_folders_and_devices_are_not_files(tmp_path):
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(FileNotFoundError, match="no file at"):
            anchored.load(path)
