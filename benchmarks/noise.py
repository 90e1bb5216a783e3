"""Four ways to model noise that varies with x, compared on the same splits, with the same prior and training.

    python benchmarks/noise.py --data DIR
    python benchmarks/noise.py --data DIR --quick       one split of the smallest set

constant   one noise variance, estimated from residuals of held-out rows
model      a noise model fitted to these residuals, used for predictions (by default it is used only if it is better)
weighted   as before, and the loss of the members also weights each row by the noise model
joint      networks with a second output for the log-variance, trained together with the mean by MAP
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import reporting
import uci_sets
from reporting import Json, average, mean_and_error, number
from uci_sets import normal_scores, scores

if TYPE_CHECKING:
    from anchored import AnchoredRegressor
    from anchored.datasets import Dataset

SETS = ("boston", "concrete", "energy", "wine_red", "yacht")
TREATMENTS = {"constant": "constant", "model": "noise model", "weighted": "weighted too", "joint": "joint head"}


def treatments(
    dataset: "Dataset", train: np.ndarray, test: np.ndarray, quick: bool = False
) -> dict[str, dict[str, float]]:
    """Return the scores of all four treatments, by name, on one split of `dataset`.

    `train` and `test` are the indices of its rows. If `quick`, fits are shorter.
    """
    from anchored import AnchoredRegressor

    X, y, X_test, y_test = dataset.X[train], dataset.y[train], dataset.X[test], dataset.y[test]
    small = uci_sets.QUICK if quick else {}
    model = AnchoredRegressor(**small, noise_variance="heteroscedastic", random_state=0).fit(X, y)
    predictive = model.predict_dist(X_test)
    constant_std = np.sqrt(predictive.epistemic_variance + model.noise_variance_)
    precision = model.noise_variance_ / model.predict_dist(X).aleatoric_variance
    fixed = {
        "noise_variance": model.noise_variance_,
        "prior_scale": model.prior_scale_,
        "input_encoding": model.candidates_[0].input_encoding,
        "max_iter": model.posterior_.record.method.solver.max_iter,
        "random_state": 0,
    }
    weighted = AnchoredRegressor(**{**small, **fixed}).fit(X, y, sample_weight=precision).predict_dist(X_test)
    weighted_std = np.sqrt(weighted.epistemic_variance + predictive.aleatoric_variance)
    return {
        "constant": normal_scores(y_test, predictive.mean, constant_std),
        "model": scores(y_test, predictive),
        "weighted": normal_scores(y_test, weighted.mean, weighted_std),
        "joint": normal_scores(y_test, *joint_head(model, X, y, X_test)),
    }


def joint_head(
    model: "AnchoredRegressor", X: np.ndarray, y: np.ndarray, X_test: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the predictive mean and standard deviation at `X_test`, (rows,) each, of networks with two outputs.

    The networks have the hidden layers, the prior scale and the solver of the fitted `model`, and are trained on `X`
    and `y`.
    """
    import jax

    from anchored.methods import AnchoredEnsemble
    from anchored.model.bayesian_model import BayesianModel
    from anchored.model.layered_prior import default_layer_scales, layered_prior
    from anchored.model.likelihoods import HeteroscedasticGaussian

    data = model._standardised_data(X, y, np.ones(len(y)))
    network = replace(model.posterior_.model.network, n_outputs=2)
    prior = layered_prior(network, network.init(None, data.inputs), default_layer_scales(network, model.prior_scale_))
    method = AnchoredEnsemble(10, solver=model.posterior_.record.method.solver)
    posterior = method.fit(jax.random.key(0), BayesianModel(network, prior, HeteroscedasticGaussian()), data)
    predictive = posterior.predict(model._standardised_inputs(X_test))
    y_units = model.y_standardisation_
    return predictive.mean[:, 0] * y_units.scale + y_units.mean, predictive.std[:, 0] * y_units.scale


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run all four treatments on each set that the command line, `arguments`, selects; return the stored result."""
    parser = reporting.parser_of(__doc__)
    uci_sets.add_data_option(parser)
    parser.add_argument("--splits", type=int, default=5, help="number of standard splits; default: 5")
    parser.add_argument("--sets", nargs="+", default=SETS, help=f"short names; default: {' '.join(SETS)}")
    options = parser.parse_args(arguments)
    if options.quick:
        options.sets, options.splits = ["yacht"], 1
    return reporting.run_and_store("noise", options, {"splits": options.splits}, run(options), tables)


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the scores so far, by set and treatment, of every split.

    The `options` give the sets, the number of splits, the folder of the data, and whether the run is quick.
    """
    from anchored import datasets

    results: Json = {}
    for name in options.sets:
        dataset = datasets.load(name, options.data)
        splits = datasets.standard_splits(len(dataset.y), options.splits)
        scores_of_splits = [treatments(dataset, *split, options.quick) for split in splits]
        results[name] = {treatment: [split[treatment] for split in scores_of_splits] for treatment in TREATMENTS}
        reporting.note(name)
        yield {"results": results}


def tables(stored: Json) -> dict[str, str]:
    """Return the table of NLL (RMSE) of the four treatments in `stored`."""
    rows = [
        (
            uci_sets.NAMES[name],
            *(f"{mean_and_error(splits[t], 'nll', 2)} ({number(average(splits[t], 'rmse'), 2)})" for t in TREATMENTS),
        )
        for name, splits in sorted(stored["results"].items())
    ]
    header = ("set", *TREATMENTS.values())
    return {"noise": reporting.table(stored, "python benchmarks/noise.py --data DIR", header, rows)}


if __name__ == "__main__":
    main()
