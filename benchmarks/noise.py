"""Which treatment of noise that varies with x predicts best? Four, on the same splits, prior and training.

    python benchmarks/noise.py --data DIR

constant   one noise variance, learnt from residuals of rows left out
model      a noise model fitted to those residuals, used in predictions (what "auto" chooses where it wins)
weighted   the same noise model, and rows weighted by it in the members' loss too
joint      a head for the log-variance beside the mean's, trained with it by plain MAP
"""

import argparse
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
from reporting import RESULTS, Table, describe, machine, write_json
from uci import average, mean_and_error, scores

from anchored import AnchoredRegressor, datasets
from anchored.estimators import settings
from anchored.methods import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import HeteroscedasticGaussian
from anchored.model.networks import MLP

SETS = ("boston", "concrete", "energy", "wine_red", "yacht")
TREATMENTS = ("constant", "model", "weighted", "joint")


def treatments(dataset: datasets.Dataset, train: np.ndarray, test: np.ndarray) -> dict[str, dict[str, float]]:
    """Scores of all four on one split."""
    X, y, X_test, y_test = dataset.X[train], dataset.y[train], dataset.X[test], dataset.y[test]
    model = AnchoredRegressor(noise_variance="heteroscedastic", random_state=0).fit(X, y)
    predictive = model.predict_dist(X_test)
    constant = np.sqrt(predictive.epistemic_variance + model.noise_variance_)
    precision = model.noise_variance_ / model.predict_dist(X).aleatoric_variance
    fixed = {"noise_variance": model.noise_variance_, "prior_scale": model.prior_scale_, "random_state": 0}
    weighted = AnchoredRegressor(**fixed).fit(X, y, sample_weight=precision).predict_dist(X_test)
    weighted_std = np.sqrt(weighted.epistemic_variance + predictive.aleatoric_variance)
    return {
        "constant": scores(y_test, predictive.mean, constant),
        "model": scores(y_test, predictive.mean, predictive.std),
        "weighted": scores(y_test, weighted.mean, weighted_std),
        "joint": scores(y_test, *joint_head(model, X, y, X_test)),
    }


def joint_head(model: AnchoredRegressor, X: np.ndarray, y: np.ndarray, X_test: np.ndarray):
    """Mean and standard deviation by networks of two outputs, with the fitted model's prior and solver."""
    data = model._data(X, y, np.ones(len(y)))
    network = MLP((50,), 2)
    prior = layered_prior(network, network.init(None, data.inputs), default_layer_scales(network, model.prior_scale_))
    method = AnchoredEnsemble(10, solver=replace(settings.solver(model, len(y)), learning_rate=0.01))
    posterior = method.fit(jax.random.key(0), BayesianModel(network, prior, HeteroscedasticGaussian()), data)
    predictive = posterior.predict(model._inputs(X_test))
    to_y = model.y_standardisation_
    return predictive.mean[:, 0] * to_y.scale + to_y.mean, predictive.std[:, 0] * to_y.scale


def main() -> None:
    """Print the table and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder that holds uci/ (default: $ANCHORED_DATA)")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--sets", nargs="+", default=SETS)
    parser.add_argument("--out", type=Path, default=RESULTS / "noise.json")
    arguments = parser.parse_args()
    print(describe(machine()), "\n\nNLL (RMSE), mean over splits\n")
    table = Table("set", *TREATMENTS)
    results = {}
    for name in arguments.sets:
        dataset = datasets.load(name, arguments.data)
        splits = datasets.standard_splits(len(dataset.y), arguments.splits)
        found = [treatments(dataset, *split) for split in splits]
        by_name = {name: [split[name] for split in found] for name in TREATMENTS}
        cells = [f"{mean_and_error(by_name[t], 'nll', 2)} ({average(by_name[t], 'rmse'):.2f})" for t in TREATMENTS]
        table.row(name, *cells)
        results[name] = by_name
    write_json(arguments.out, {"splits": arguments.splits}, {"results": results})


if __name__ == "__main__":
    main()
