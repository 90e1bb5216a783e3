"""Saving and loading estimators: a loaded estimator equals the saved one, and an invalid file raises an error."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
import safetensors.numpy

import anchored
from anchored import AnchoredClassifier, AnchoredRegressor, StorageError
from anchored.estimators.loading import ESTIMATORS
from anchored.estimators.saved_arguments import READERS, TYPES
from anchored.model.networks import MLP
from anchored.storage import archive

QUICK = {
    "n_estimators": 3,
    "max_iter": 8,
    "batch_size": 32,
    "prior_scale": 2.0,
    "random_state": 0,
    "hidden_layer_sizes": (50,),
    "activation": "relu",
    "learning_rate_init": 0.03,
}


FIXED = {**QUICK, "noise_variance": 0.01, "trainable": "last_layer"}  # the closed form needs little compilation


def assert_same_trees(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        assert np.array_equal(a, b) and np.asarray(a).dtype == np.asarray(b).dtype and np.shape(a) == np.shape(b)


def test_a_given_mlp_is_a_custom_network(waves, path):
    network = MLP((8,), 1)
    given = {"prior_scale": 1.0, "noise_variance": 0.1, "max_iter": 5, "random_state": 0}
    model = AnchoredRegressor(2, network=network, **given).fit(*waves)
    assert np.array_equal(saved_and_loaded(model, path, network=network).predict(waves[0]), model.predict(waves[0]))


def saved_and_loaded(model, path, **options):
    """Save and load `model`, and check that its fitted attributes are the same."""
    model.save(path)
    loaded = anchored.load(path, **options)
    assert type(loaded) is type(model)
    assert_same_trees(loaded.posterior_.members, model.posterior_.members)
    assert_same_trees(loaded.posterior_.model, model.posterior_.model)
    assert_same_trees(loaded.anchors_, model.anchors_)
    for name in ("loss_curve_", "n_iter_", "seed_", "n_features_in_", "prior_scale_", "n_rows_seen_"):
        assert getattr(loaded, name) == getattr(model, name), name
    return loaded


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.fixture(scope="module")
def plain(waves):
    """A regressor with arguments that most tests do not change."""
    return AnchoredRegressor(**FIXED).fit(*waves)


@pytest.fixture(scope="module")
def file(plain, tmp_path_factory):
    """The file of that regressor."""
    path = tmp_path_factory.mktemp("saved") / "model"
    plain.save(path)
    return path


def test_a_regressor_is_restored(plain, waves, path):
    loaded = saved_and_loaded(plain, path)
    assert_predicts_the_same(loaded, plain, waves[0])


def test_every_argument_has_a_type():
    """Each argument has an entry in one of the two tables, without which it could not be loaded."""
    arguments = {name for estimator in ESTIMATORS.values() for name in estimator._get_param_names()}
    assert arguments - {"network"} == TYPES.keys() | READERS.keys()


def test_arguments_of_any_type_are_restored(waves, path):
    """Lists, tuples, arrays and NumPy numbers; a deep network with two outputs, in double precision."""
    X, y = waves
    with jax.enable_x64(True):
        model = AnchoredRegressor(
            n_estimators=np.int64(3),
            hidden_layer_sizes=[4, 3],
            activation="erf",
            noise_variance=np.array([0.01, 0.2]),
            prior_scale=(2.0, np.float64(0.5), 1),
            anchoring=(1.0, 0.3, 0.5),
            trainable="last_layer",
            random_state=0,
        ).fit(X, np.c_[y, 3 * X[:, 1] + 5])
        loaded = saved_and_loaded(model, path)
        assert jax.tree.leaves(loaded.posterior_.members)[0].dtype == np.float64
        assert_predicts_the_same(loaded, model, X)


def assert_predicts_the_same(loaded, model, X):
    assert np.array_equal(model.predict(X, return_std=True), loaded.predict(X, return_std=True))
    assert np.array_equal(model.noise_variance_, loaded.noise_variance_)
    assert np.array_equal(model.sample_y(X, 3), loaded.sample_y(X, 3))
    saved, restored = ({k: np.asarray(v).tolist() for k, v in m.get_params().items()} for m in (model, loaded))
    assert saved == restored


@pytest.mark.parametrize(
    "labels",
    [["no", "yes"], [3, -7], [False, True], [0.0, 2.0], np.array(["a", "bcd"], object), np.array([1, 2], np.uint8)],
)
def test_classes_are_restored(waves, path, labels):
    X, y = waves
    model = AnchoredClassifier(**QUICK, temperature=0.3).fit(X, np.asarray(labels)[(y > 0).astype(int)])
    loaded = saved_and_loaded(model, path)
    assert np.array_equal(loaded.classes_, model.classes_) and loaded.classes_.dtype == model.classes_.dtype
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert np.array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert loaded.temperature_ == model.temperature_


def test_feature_names_are_restored(waves, path):
    frame = pd.DataFrame(waves[0], columns=["a", "b"])
    loaded = saved_and_loaded(AnchoredRegressor(**FIXED).fit(frame, waves[1]), path)
    assert list(loaded.feature_names_in_) == ["a", "b"]
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame[["b", "a"]])


@pytest.mark.parametrize("estimator", [AnchoredRegressor, AnchoredClassifier])
def test_warm_start_after_loading(waves, path, estimator):
    X, y = waves
    y, settings = (y, FIXED) if estimator is AnchoredRegressor else (y > 0, {**QUICK, "temperature": 0.3})
    six = estimator(**{**settings, "n_estimators": 6}).fit(X, y)
    loaded = saved_and_loaded(estimator(**settings, warm_start=True).fit(X, y), path)
    loaded.set_params(n_estimators=6).fit(X, y)
    assert_same_trees(loaded.posterior_.members, six.posterior_.members)
    with pytest.raises(ValueError, match="needs the data of the last fit"):
        loaded.set_params(n_estimators=7).fit(X + 1, y)


def test_partial_fit_after_loading(waves, path):
    X, y = waves
    model = AnchoredClassifier(**QUICK, temperature=0.3).partial_fit(X, y > 0, classes=[False, True])
    loaded = saved_and_loaded(model, path).partial_fit(X, y > 0)
    assert loaded.n_rows_seen_ == 120
    assert_same_trees(loaded.anchors_, model.anchors_)


def test_arguments_changed_after_the_fit(file, plain, waves, path):
    X, _ = waves
    model = anchored.load(file).set_params(hidden_layer_sizes=(7, 7), activation="tanh")
    assert np.array_equal(saved_and_loaded(model, path).predict(X), plain.predict(X))


def network_of_width(width):
    def init(key, inputs):
        return {"body": jnp.zeros((inputs.shape[-1], width)), "head": [jnp.zeros((width, 1))]}

    return init, lambda params, inputs: jnp.tanh(inputs @ params["body"]) @ params["head"][0]


def sgd(rate):
    return optax.sgd(rate)


def test_code_is_not_stored(waves, file, path):
    """A custom network and an optimiser given as a function must be passed again."""
    X, y = waves
    network = network_of_width(4)
    settings = {**FIXED, "trainable": "all", "random_state": np.random.RandomState(0)}
    model = AnchoredRegressor(network=network, optimizer=sgd, **settings).fit(X, y)
    loaded = saved_and_loaded(model, path, network=network)
    assert np.array_equal(loaded.predict(X), model.predict(X)) and loaded.network is network
    with pytest.raises(ValueError, match=r"custom network; pass that network: load\(path, network="):
        anchored.load(path)
    another = (lambda key, inputs: {"other": jnp.zeros((2, 1))}, lambda params, inputs: inputs @ params["other"])
    for wrong in (network_of_width(5), another):
        with pytest.raises(ValueError, match=r"network: .*another network"):
            anchored.load(path, network=wrong)
    with pytest.raises(ValueError, match="load it without the argument network"):
        anchored.load(file, network=network)
    assert loaded.optimizer is None
    with pytest.raises(ValueError, match="optimizer is None: a saved model does not contain"):
        loaded.fit(X, y)
    loaded.set_params(optimizer=sgd).fit(X, y)


def test_a_file_is_safetensors(file):
    content = file.read_bytes()
    assert (
        b"pickle" not in content and content[8:9] == b"{"
    )  # the length of the header comes first, then the header in JSON
    assert set(safetensors.numpy.load(content)) >= {"x/mean", "y/scale", "posterior/members/layer_0/bias"}


def test_subclasses_cannot_be_saved(waves, path):
    class Mine(AnchoredRegressor):
        pass

    with pytest.raises(TypeError, match="cannot save a Mine"):
        Mine(**FIXED).fit(*waves).save(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a saved model"),
        (b"three,columns,of text\n" * 50, "not a saved model"),
        (safetensors.numpy.save({"a": np.zeros(3)}), "not a model saved by anchored"),
        (safetensors.numpy.save({"a": np.zeros(3)}, {"anchored": "{"}), "its header cannot be read"),
        (safetensors.numpy.save({"a": np.zeros(3)}, {"anchored": "[]"}), "its header must be an object, not a list"),
        (safetensors.numpy.save({}, {"anchored": json.dumps({"format": 1})}), "saved by an older version .* format 1"),
        (safetensors.numpy.save({}, {"anchored": json.dumps({"format": 99})}), "format 99, newer than this version"),
    ],
)
def test_the_error_says_what_the_file_is(path, content, message):
    path.write_bytes(content)
    with pytest.raises(StorageError, match=message):
        anchored.load(path)


def test_files_with_another_object(path):
    archive.write(path, {"kind": "Agent"}, {})
    with pytest.raises(StorageError, match="does not hold an estimator that this version of anchored knows: 'Agent'"):
        anchored.load(path)


def test_missing_files_and_folders(tmp_path, file):
    for missing in (tmp_path / "nothing", tmp_path):
        with pytest.raises(FileNotFoundError, match="no file at"):
            anchored.load(missing)
    with pytest.raises(FileNotFoundError):
        anchored.load(file).save(tmp_path / "no folder" / "model")


@pytest.mark.parametrize("call", ["replace", "fsync"])
def test_an_interrupted_write_leaves_the_old_file(file, path, monkeypatch, call):
    old = anchored.load(file)
    old.save(path)
    before = path.read_bytes()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(KeyboardInterrupt):
        old.set_params(max_iter=5).save(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_saved_files_have_the_permissions_of_new_files(file, path):
    anchored.load(file).save(path)
    (path.parent / "plain").touch()
    assert path.stat().st_mode == (path.parent / "plain").stat().st_mode
