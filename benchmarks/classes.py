"""Classification with `AnchoredClassifier` and with scikit-learn's classifiers, all with their default settings.

    python benchmarks/classes.py --data DIR            digits, breast cancer and MNIST
    python benchmarks/classes.py --sets breast_cancer  one set; only MNIST needs DIR
    python benchmarks/classes.py --quick               breast cancer in two folds, with short training and one rival

Digits and breast cancer are predicted by cross-validation in five stratified folds, and scores are computed from the
predictions of all folds together. On MNIST, classifiers are trained on 10,000 rows and tested on its 10,000 test rows.
A model of MNIST should also be uncertain about images of clothes: the AUROC measures how well its epistemic uncertainty
separates Fashion-MNIST from MNIST's test rows. DIR contains `mnist.npz` and `fashion_mnist_sprite900.npz`; the default
is $ANCHORED_DATA.
"""

import argparse
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import reporting
import uci_sets
from reporting import Json, number
from sklearn.base import ClassifierMixin
from sklearn.exceptions import ConvergenceWarning

NAMES = {"digits": "Digits", "breast_cancer": "Breast cancer", "mnist": "MNIST, 10,000 rows"}
METHODS = {
    "anchored": "anchored",
    "hist_gradient_boosting": "HistGradientBoosting",
    "mlp": "MLPClassifier",
    "logistic_regression": "LogisticRegression",
}
FOLDS = 5
MNIST_ROWS = 10_000


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the sets that the command line, `arguments`, selects; return the stored result."""
    parser = reporting.parser_of(__doc__)
    uci_sets.add_data_option(parser)
    parser.add_argument("--sets", default=",".join(NAMES), help="names, separated by commas; default: all")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets = "breast_cancer"
    warnings.simplefilter("ignore", ConvergenceWarning)  # with their defaults, not all of scikit-learn's converge
    settings = {"sets": options.sets.split(","), "folds": 2 if options.quick else FOLDS, "random_state": 0}
    return reporting.run_and_store("classes", options, settings, run(options, **settings), tables)


def run(options: argparse.Namespace, sets: list[str], folds: int, random_state: int) -> Iterator[Json]:
    """Yield the rows so far: one for each of the `sets`, names of NAMES, and each classifier.

    `folds` is the number of folds, and `random_state` the seed of folds and classifiers; the `options` give the folder
    of the data, and whether the run is quick.
    """
    results: Json = {"classes": []}
    for name in sets:
        for method, make in classifiers(options.quick, random_state).items():
            if name == "mnist":
                scores = mnist_scores(make, mnist_folder(options.data))
            else:
                scores = folds_scores(name, make, folds, random_state)
            results["classes"].append({"set": name, "method": method, **scores})
            reporting.note(f"{name}, {METHODS[method]}: log loss {scores['log_loss']:.4f}")
            yield results


def classifiers(quick: bool, random_state: int) -> dict[str, Callable[[], ClassifierMixin]]:
    """Return functions that make the classifiers, by name, with the seed `random_state`.

    If `quick`, there are only two of them, and ours trains briefly.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neural_network import MLPClassifier

    from anchored import AnchoredClassifier

    if quick:
        quick_ours = partial(AnchoredClassifier, **uci_sets.QUICK, random_state=random_state)
        return {"anchored": quick_ours, "logistic_regression": LogisticRegression}
    return {
        "anchored": partial(AnchoredClassifier, random_state=random_state),
        "hist_gradient_boosting": partial(HistGradientBoostingClassifier, random_state=random_state),
        "mlp": partial(MLPClassifier, random_state=random_state),
        "logistic_regression": LogisticRegression,
    }


def folds_scores(name: str, make: Callable[[], ClassifierMixin], n_folds: int, random_state: int) -> dict[str, float]:
    """Return the scores of the classifier that `make` makes on the set called `name`, by cross-validation.

    They are computed from the predictions of all `n_folds` folds together; `random_state` is the seed of the folds.
    """
    from sklearn.model_selection import StratifiedKFold

    from anchored import datasets

    dataset = datasets.load(name)
    y = dataset.y.astype(int)
    probabilities, seconds = np.zeros((len(y), len(np.unique(y)))), 0.0
    for train, test in StratifiedKFold(n_folds, shuffle=True, random_state=random_state).split(dataset.X, y):
        model, seconds_of_fit = fitted(make, dataset.X[train], y[train])
        probabilities[test] = model.predict_proba(dataset.X[test])
        seconds += seconds_of_fit / n_folds
    return class_scores(y, probabilities) | {"seconds": seconds}


def mnist_scores(make: Callable[[], ClassifierMixin], folder: Path) -> dict[str, float]:
    """Return the scores on MNIST of the classifier that `make` makes; for ours, also the AUROC of Fashion-MNIST.

    `folder` contains both data sets.
    """
    from sklearn.metrics import roc_auc_score

    from anchored import AnchoredClassifier

    with np.load(folder / "mnist.npz") as mnist, np.load(folder / "fashion_mnist_sprite900.npz") as fashion:
        X, y = mnist["X_train"][:MNIST_ROWS].reshape(MNIST_ROWS, -1) / 255.0, mnist["y_train"][:MNIST_ROWS].astype(int)
        X_test, y_test = mnist["X_test"].reshape(len(mnist["X_test"]), -1) / 255.0, mnist["y_test"].astype(int)
        clothes = fashion["X"].reshape(len(fashion["X"]), -1) / 255.0
    model, seconds = fitted(make, X, y)
    scores = class_scores(y_test, model.predict_proba(X_test)) | {"seconds": seconds}
    if not isinstance(model, AnchoredClassifier):
        return scores
    uncertainty = [model.predict_dist(images).epistemic_entropy for images in (X_test, clothes)]
    is_clothes = np.repeat([0, 1], [len(X_test), len(clothes)])
    return scores | {"fashion_auroc": float(roc_auc_score(is_clothes, np.concatenate(uncertainty)))}


def mnist_folder(given: Path | None) -> Path:
    """Return the folder of MNIST: the option `given`, or $ANCHORED_DATA."""
    folder = given or Path(os.environ.get("ANCHORED_DATA", "."))
    if not (folder / "mnist.npz").exists():
        raise SystemExit(f"{folder} has no mnist.npz. Name its folder by --data DIR, or leave mnist out of --sets.")
    return folder


def fitted(make: Callable[[], ClassifierMixin], X: np.ndarray, y: np.ndarray) -> tuple[ClassifierMixin, float]:
    """Return the classifier that `make` makes, fitted to `X` and `y`, and the seconds of the fit."""
    model = make()
    started = time.perf_counter()
    model.fit(X, y)
    return model, time.perf_counter() - started


def class_scores(y: np.ndarray, probabilities: np.ndarray) -> dict[str, float]:
    """Return the scores of the predicted `probabilities`, (rows, classes), of the classes `y`, (rows,)."""
    from anchored import metrics

    return {
        "accuracy": float(np.mean(probabilities.argmax(1) == y)),
        "log_loss": float(metrics.log_loss(y, probabilities)),
        "expected_calibration_error": metrics.expected_calibration_error(y, probabilities, n_bins=15),
    }


# Tables


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the results in `stored`."""
    rows = [
        (
            NAMES[row["set"]],
            METHODS[row["method"]],
            f"{100 * row['accuracy']:.1f} %",
            number(row["log_loss"], 3),
            f"{100 * row['expected_calibration_error']:.1f} %",
            f"{row['fashion_auroc']:.3f}" if "fashion_auroc" in row else "",
            f"{row['seconds']:.1f}",
        )
        for row in stored["classes"]
    ]
    header = ("set", "classifier", "accuracy", "log loss", "calibration error", "AUROC of clothes", "seconds per fit")
    return {"classes": reporting.table(stored, "python benchmarks/classes.py --data DIR", header, rows)}


if __name__ == "__main__":
    main()
