"""Small saved models of every kind, with functions that load them and return their predictions."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from forging import parts

import anchored
from anchored import AnchoredClassifier, AnchoredRegressor, BayesianRegressor
from anchored.errors import TableError
from anchored.methods import GaussianProcess
from anchored.model.likelihoods import Gaussian
from anchored.rl import QEnsembleAgent
from anchored.rl.environments import CartPole
from anchored.tables import fitting, saved_model
from anchored.tables.files import open_table
from anchored.tables.model import TableModel

OWN_ERRORS = (anchored.StorageError, TableError)
# Arguments of small estimators and agents
TINY = {"n_estimators": 2, "hidden_layer_sizes": (4,), "max_iter": 5, "random_state": 0, "prior_scale": 2.0}
AGENT = {"n_estimators": 2, "hidden_layer_sizes": (4,), "batch_size": 8, "learning_starts": 20, "buffer_size": 100}
NAMES = ("length", "harbour", "opened", "ships")
HARBOURS = """length,harbour,opened,ships
12.5,north,2001-02-03,4
30,south,1999-12-31,9
,north,2010-07-01,5
18.25,west,2004-05-06,6
"""


class Kind(NamedTuple):
    """A kind of file: functions that write one, load it, and return the predictions of the loaded model."""

    make: Callable[[Path], None]
    load: Callable[[Path], Any]
    predictions: Callable[[Any], list[np.ndarray]]


def rows(n_columns: int = 2, n: int = 40) -> np.ndarray:
    """Return random inputs, (n, n_columns), which are the same in every call."""
    return np.random.default_rng(0).uniform(-2, 2, (n, n_columns))


def regressor(path: Path) -> None:
    """Save a regressor with a noise model to `path`."""
    X = rows()
    AnchoredRegressor(**TINY, noise_variance="heteroscedastic").fit(X, np.sin(X[:, 0])).save(path)


def classifier(path: Path) -> None:
    """Save a classifier whose labels are strings to `path`."""
    X = rows()
    AnchoredClassifier(**TINY, temperature=0.3).fit(X, np.array(["no", "yes"])[(X[:, 0] > 0).astype(int)]).save(path)


def process(path: Path) -> None:
    """Save a Gaussian process, whose file contains its training rows, to `path`."""
    X = rows()
    BayesianRegressor(GaussianProcess(), Gaussian(0.1), prior_scale=2.0, hidden_layer_sizes=(4,)).fit(
        X, np.sin(X[:, 0])
    ).save(path)


def table(path: Path) -> None:
    """Save a model of the table of harbours to `path`."""
    rows = open_table(harbours(path.parent)).read(NAMES)
    saved_model.save(fitting.fit(rows, "ships", members=2, max_iter=5), path)


def agent(path: Path) -> None:
    """Save an agent in a compiled environment to `path`."""
    QEnsembleAgent(CartPole(60), seed=0, **AGENT).learn(total_timesteps=60).save(path)


def gymnasium_agent(path: Path) -> None:
    """Save an agent in a Gymnasium environment to `path`."""
    QEnsembleAgent("CartPole-v1", seed=0, **AGENT).learn(total_timesteps=60).save(path)


def harbours(folder: Path, n_repeats: int = 10) -> Path:
    """Write a table with a number, a category, a date and missing cells into `folder`, and return its path.

    Its rows are repeated `n_repeats` times.
    """
    path = folder / "harbours.csv"
    header, *lines = HARBOURS.splitlines()
    path.write_text("\n".join([header, *lines * n_repeats]) + "\n")
    return path


def regression_predictions(model: Any) -> list[np.ndarray]:
    """Return the predictions of the regressor `model` for five rows."""
    predictive = model.predict_dist(rows(model.n_features_in_, 5))
    return [predictive.mean, predictive.epistemic_variance, predictive.aleatoric_variance]


def class_predictions(model: Any) -> list[np.ndarray]:
    """Return the predictions of the classifier `model` for five rows."""
    X = rows(model.n_features_in_, 5)
    model.predict(X)
    return [model.predict_proba(X)]


def table_predictions(model: TableModel) -> list[np.ndarray]:
    """Return the predictions of a table model for four rows; columns that the table does not have are empty."""
    import pyarrow as pa

    from anchored.tables.rows import RowBatch

    known = dict(zip(NAMES, zip(*(line.split(",") for line in HARBOURS.splitlines()[1:]))))
    columns = {name: pa.array(known.get(name, [""] * 4), pa.string()) for name in model.schema.names}
    predictive = model.predict(RowBatch("a table", 1, columns))[0]
    return [predictive.mean, predictive.std] if hasattr(predictive, "mean") else [predictive.probabilities]


def agent_predictions(agent: QEnsembleAgent) -> list[np.ndarray]:
    """Return the Q-values and action probabilities of an agent for one observation."""
    observation = np.array([0.01, 0.02, 0.03, 0.04])
    return [*agent.q_values(observation), agent.action_probabilities(observation)]


KINDS = {
    "regressor": Kind(regressor, anchored.load, regression_predictions),
    "classifier": Kind(classifier, anchored.load, class_predictions),
    "process": Kind(process, anchored.load, regression_predictions),
    "table": Kind(table, saved_model.load, table_predictions),
    "agent": Kind(agent, QEnsembleAgent.load, agent_predictions),
    "gymnasium agent": Kind(gymnasium_agent, QEnsembleAgent.load, agent_predictions),
}


def prepare(folder: Path) -> None:
    """Write a file of each kind into `folder`, unless an earlier trial has done so."""
    for name, kind in KINDS.items():
        if not (folder / name).exists():
            kind.make(folder / name)


def content(path: Path) -> str:
    """Return a hash of the header and arrays of the file `path`.

    Files with the same content may differ in the order in which safetensors writes the arrays.
    """
    header, arrays = parts(path)
    digest = hashlib.sha256(json.dumps(header).encode())
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode() + arrays[name].tobytes())
    return digest.hexdigest()


def state(path: Path, loaded: Any, kind: Kind) -> list[Any]:
    """Return everything that must agree if files of this `kind` are the same, as a list.

    These are the header and the arrays of the file `path`, and the predictions of the model `loaded` from it.
    """
    header, arrays = parts(path)
    members = jax.tree.leaves(loaded.train_state.members) if isinstance(loaded, QEnsembleAgent) else []
    return [header, *(arrays[name] for name in sorted(arrays)), *members, *kind.predictions(loaded)]


def same(one: list[Any], other: list[Any]) -> bool:
    """Return whether the states `one` and `other` are equal bit for bit."""
    return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other))


def _same(a: Any, b: Any) -> bool:
    """Return whether two headers or arrays are equal bit for bit."""
    if isinstance(a, dict) or isinstance(b, dict):
        return a == b
    a, b = np.asarray(a), np.asarray(b)
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
