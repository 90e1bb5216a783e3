"""The exact Gaussian processes of infinitely wide networks on five small UCI sets, compared with a published table.

    python benchmarks/gaussian_process.py --data DIR
    python benchmarks/gaussian_process.py --data DIR --quick        one split of the smallest set

DIR contains the folder `uci/`; the default is $ANCHORED_DATA. There are two protocols, both with the hyperparameters of
arXiv 1810.05546. The authors' protocol uses their splits, standardised over all rows, and should reproduce every
printed digit. The other uses the standard splits, standardised over the training rows. Scores are mean (standard error)
over twenty splits; the negative log-likelihood is in units of y.
"""

import argparse
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import reporting
import uci_sets
from reporting import Json, mean_and_error_in_brackets
from uci_sets import normal_scores

if TYPE_CHECKING:
    from anchored.datasets import Dataset

N_SPLITS = 20
AUTHORS_SEED = 1000  # random seed of their first split
# By set and activation: the noise variance of standardised y; b, the prior variance of first-layer biases (that of
# weights is b divided by the number of columns); RMSE and NLL as published
PUBLISHED = {
    ("boston", "relu"): (0.06, 10, "2.86 (0.16)", "2.45 (0.05)"),
    ("boston", "erf"): (0.05, 25, "2.94 (0.18)", "2.46 (0.05)"),
    ("concrete", "relu"): (0.05, 40, "4.88 (0.13)", "2.96 (0.02)"),
    ("concrete", "erf"): (0.06, 100, "5.21 (0.12)", "3.06 (0.02)"),
    ("energy", "relu"): (1e-7, 12, "0.60 (0.02)", "0.86 (0.02)"),
    ("energy", "erf"): (1e-7, 10, "0.78 (0.03)", "1.06 (0.03)"),
    ("wine_red", "relu"): (0.5, 20, "0.61 (0.01)", "0.92 (0.01)"),
    ("wine_red", "erf"): (0.5, 50, "0.60 (0.01)", "0.91 (0.01)"),
    ("yacht", "relu"): (1e-7, 15, "0.60 (0.08)", "0.49 (0.07)"),
    ("yacht", "erf"): (1e-5, 25, "1.48 (0.15)", "1.50 (0.13)"),
}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run both protocols with the command line `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    uci_sets.add_data_option(parser)
    options = parser.parse_args(arguments)
    settings = {"splits": 2 if options.quick else N_SPLITS}
    return reporting.run_and_store("gaussian_process", options, settings, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the results so far, by protocol: a row for each set and activation, with the scores of every split.

    The `options` give the folder of the data, and whether the run is quick.
    """
    from anchored import datasets

    n_splits = 2 if options.quick else N_SPLITS
    results: Json = {"authors": [], "standard": []}
    for (name, activation), (noise, b, *_) in PUBLISHED.items():
        if options.quick and name != "yacht":
            continue
        dataset = datasets.load(name, options.data)
        for protocol, score in (("authors", authors_scores), ("standard", standard_scores)):
            splits = list(score(dataset, activation, noise, b, n_splits))
            results[protocol].append({"set": name, "kernel": activation, "splits": splits})
        reporting.note(f"{name}, {activation}")
        yield results


def authors_scores(
    dataset: "Dataset", activation: str, noise: float, b: float, n_splits: int
) -> Iterator[dict[str, float]]:
    """Yield the scores of `dataset` on the first `n_splits` of the authors' splits, standardised over all rows.

    `activation` is that of the network; `noise` and `b` are as in PUBLISHED.
    """
    from anchored.datasets import TRAIN_SHARE
    from anchored.exact.kernels import MLPKernel
    from anchored.exact.processes import GaussianProcess

    X, y = dataset.X, dataset.y
    inputs, targets = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    process = GaussianProcess(MLPKernel((b / X.shape[1], 1.0), (b, 0.0), activation), noise)
    for i in range(n_splits):
        order = np.random.RandomState(AUTHORS_SEED + i).permutation(len(y))
        train, test = np.split(order, [round(TRAIN_SHARE * len(y))])
        posterior = process.condition(inputs[train], targets[train, None])
        mean, std = (values[:, 0] for values in posterior.predict(inputs[test], return_std=True))
        yield normal_scores(y[test], y.mean() + y.std() * mean, y.std() * np.sqrt(std**2 + noise))


def standard_scores(
    dataset: "Dataset", activation: str, noise: float, b: float, n_splits: int
) -> Iterator[dict[str, float]]:
    """Yield the scores of `dataset` on the first `n_splits` standard splits, fitted by `BayesianRegressor`.

    `activation` is that of the network; `noise` and `b` are as in PUBLISHED.
    """
    from anchored import BayesianRegressor, datasets, methods
    from anchored.model.likelihoods import Gaussian

    for train, test in datasets.standard_splits(len(dataset.y), n_splits):
        y = dataset.y[train]
        likelihood = Gaussian(noise * y.var())
        model = BayesianRegressor(methods.GaussianProcess(), likelihood, activation=activation, prior_scale=b**0.5)
        mean, std = model.fit(dataset.X[train], y).predict(dataset.X[test], return_std=True)
        yield normal_scores(dataset.y[test], mean, std)


def tables(stored: Json) -> dict[str, str]:
    """Return one table, "processes", with both protocols in `stored` and the published numbers."""
    rows = []
    for authors, standard in zip(stored["authors"], stored["standard"], strict=True):
        ours = [mean_and_error_in_brackets(authors["splits"], score) for score in ("rmse", "nll")]
        theirs = list(PUBLISHED[authors["set"], authors["kernel"]][2:])
        rows.append(
            (
                uci_sets.NAMES[authors["set"]],
                authors["kernel"],
                *ours,
                f"{', '.join(theirs)}: {'every digit' if ours == theirs else 'not the same'}",
                *(mean_and_error_in_brackets(standard["splits"], score) for score in ("rmse", "nll")),
            )
        )
    header = ("set", "kernel", "RMSE", "NLL", "published RMSE, NLL", "standard splits: RMSE", "NLL")
    return {"processes": reporting.table(stored, "python benchmarks/gaussian_process.py --data DIR", header, rows)}


if __name__ == "__main__":
    main()
