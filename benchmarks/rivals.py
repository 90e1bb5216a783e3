"""Fit another library with its documented defaults.

`tables.py` runs this script once for each fit, with the Python of an environment in which the library is installed:

    PYTHON benchmarks/rivals.py METHOD TASK.npz RESULT.npz

METHOD is a key of `METHODS`. The task contains `X` and `y`, the rows to train on, and `X_test` and `y_test`. The result
contains the predicted `mean` of each test row, the `seconds` of the fit and the `version` of the library. A method that
predicts normal distributions adds their `std`. A method that predicts mixtures adds `log_density`, their log density at
`y_test`, and `samples`, (samples, rows). A method with intervals of its own adds `lower` and `upper`, the ends of its
95 % intervals. All are in units of y. The script imports only NumPy and the library itself.
"""

import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]

HELD_OUT_SHARE = 0.1  # share of the training rows that give the residuals of methods that predict no variance
BDE_MEMBERS = 8  # number of members of bde's ensemble
N_SAMPLES = 2_000  # number of samples from a mixture

# Each method fits `X` and `y`, and returns the arrays of the result for `X_test` and `y_test`, except the version.


# Methods that predict normal distributions, or mixtures of them


def bde(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit the regressor of the regression example in bde's README; its density is the mixture of all draws.

    Inputs and targets are standardised first, which bde does not do itself.
    """
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={BDE_MEMBERS}"  # before JAX is imported
    from bde import BdeRegressor
    from bde.loss import GaussianNLL

    model = BdeRegressor(
        hidden_layers=[16, 16],
        n_members=BDE_MEMBERS,
        seed=0,
        loss=GaussianNLL(),
        epochs=200,
        validation_split=0.15,
        lr=1e-3,
        weight_decay=1e-4,
        warmup_steps=5000,
        n_samples=2000,
        n_thinning=2,
        patience=10,
    )
    centre, scale = X.mean(0), X.std(0) + 1e-8
    y_centre, y_scale = y.mean(), y.std() + 1e-8
    seconds = _seconds_of(lambda: model.fit(x=(X - centre) / scale, y=(y - y_centre) / y_scale))
    outputs = np.asarray(model.predict((X_test - centre) / scale, raw=True), np.float64).reshape(-1, len(X_test), 2)
    mean = outputs[..., 0] * y_scale + y_centre
    std = (np.logaddexp(0, outputs[..., 1]) + 1e-6) * y_scale  # softplus of the second output is the s.d.
    return {
        "mean": mean.mean(0),
        "log_density": mixture_log_density(mean, std, y_test),
        "samples": mixture_samples(mean, std),
        "seconds": seconds,
    }


def mixture_log_density(mean: np.ndarray, std: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the log density at `y`, (rows,), of the mixtures of normals with `mean` and `std`, (draws, rows)."""
    terms = -0.5 * ((y - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    return np.logaddexp.reduce(terms, axis=0) - np.log(len(mean))


def mixture_samples(mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Return N_SAMPLES samples, (samples, rows), of the mixtures of normals with `mean` and `std`, (draws, rows).

    Each is drawn from one component; the components are evenly spaced among all draws.
    """
    draws = np.linspace(0, len(mean) - 1, N_SAMPLES).round().astype(int)
    return mean[draws] + std[draws] * np.random.default_rng(0).normal(size=(N_SAMPLES, mean.shape[1]))


def catboost(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit CatBoost's trees with the loss that also predicts a variance."""
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", random_seed=0, verbose=False, allow_writing_files=False
    )
    seconds = _seconds_of(lambda: model.fit(X, y))
    mean, variance = model.predict(X_test, prediction_type="RMSEWithUncertainty").T
    return {"mean": mean, "std": np.sqrt(variance), "seconds": seconds}


def ngboost(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit NGBoost, which boosts the mean and the variance of a normal distribution."""
    from ngboost import NGBRegressor

    model = NGBRegressor(random_state=0, verbose=False)
    seconds = _seconds_of(lambda: model.fit(X, y))
    predicted = model.pred_dist(X_test)
    return {"mean": predicted.loc, "std": predicted.scale, "seconds": seconds}


def gaussian_process(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit scikit-learn's Gaussian process, with a length scale for each column, to standardised inputs."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel()
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    model = make_pipeline(StandardScaler(), process)
    seconds = _seconds_of(lambda: model.fit(X, y))
    mean, std = model.predict(X_test, return_std=True)  # std includes the noise of WhiteKernel
    return {"mean": mean, "std": std, "seconds": seconds}


def laplace(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit a network as in laplace-torch's example of regression, and a Laplace approximation to it.

    As in the example: 50 tanh units, 1,000 epochs of Adam with batches of 150 rows, and the prior precision and the
    noise by 1,000 steps on the marginal likelihood. The Gauss-Newton matrix is that of all weights, in the library's
    default structure, a Kronecker product for each layer. Inputs and targets are standardised first.
    """
    import torch

    torch.manual_seed(0)
    centre, scale, y_centre, y_scale = X.mean(0), X.std(0) + 1e-8, y.mean(), y.std() + 1e-8
    inputs = torch.tensor((X - centre) / scale, dtype=torch.float32)
    targets = torch.tensor((y - y_centre) / y_scale, dtype=torch.float32)[:, None]
    rows = torch.utils.data.TensorDataset(inputs, targets)
    started = time.perf_counter()
    posterior = _laplace_approximation(torch.utils.data.DataLoader(rows, batch_size=150, shuffle=True), X.shape[1])
    seconds = np.array(time.perf_counter() - started)
    mean, variance = posterior(torch.tensor((X_test - centre) / scale, dtype=torch.float32))
    mean, variance = mean.detach().numpy().ravel(), variance.detach().numpy().ravel()
    std = np.sqrt(variance + float(posterior.sigma_noise) ** 2)
    return {"mean": mean * y_scale + y_centre, "std": std * y_scale, "seconds": seconds}


def _laplace_approximation(loader: Any, n_features: int) -> Any:
    """Return the Laplace approximation to a network that is trained on the batches of `loader`."""
    import torch
    from laplace import Laplace

    hidden = torch.nn.Linear(n_features, 50)
    network = torch.nn.Sequential(hidden, torch.nn.Tanh(), torch.nn.Linear(50, 1))
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(1_000):
        for X, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(network(X), y).backward()
            optimizer.step()
    posterior = Laplace(network, "regression", subset_of_weights="all", hessian_structure="kron")
    posterior.fit(loader)
    log_precision, log_noise = (torch.ones(1, requires_grad=True) for _ in range(2))
    optimizer = torch.optim.Adam([log_precision, log_noise], lr=1e-1)
    for _ in range(1_000):
        optimizer.zero_grad()
        (-posterior.log_marginal_likelihood(log_precision.exp(), log_noise.exp())).backward()
        optimizer.step()
    return posterior


# Methods that predict only a number, or intervals


def random_forest(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit scikit-learn's random forest, with MAPIE's intervals by cross-validation (CV+), of 95 %.

    The standard deviation of the normal distributions is such that their 95 % intervals are as wide as these.
    """
    from mapie.regression import CrossConformalRegressor
    from sklearn.ensemble import RandomForestRegressor

    forest = RandomForestRegressor(random_state=0)
    model = CrossConformalRegressor(forest, confidence_level=0.95, random_state=0)
    seconds = _seconds_of(lambda: model.fit_conformalize(X, y))
    mean, intervals = model.predict_interval(X_test)
    lower, upper = intervals[:, 0, 0], intervals[:, 1, 0]
    return {"mean": mean, "std": (upper - lower) / (2 * 1.959964), "lower": lower, "upper": upper, "seconds": seconds}


def tabm(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit TabM, an ensemble of networks with shared weights."""
    from pytabkit import TabM_D_Regressor

    return with_residual_variance(lambda: TabM_D_Regressor(random_state=0, device="cpu"), X, y, X_test)


def realmlp(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit RealMLP with its tuned defaults."""
    from pytabkit import RealMLP_TD_Regressor

    return with_residual_variance(lambda: RealMLP_TD_Regressor(random_state=0, device="cpu"), X, y, X_test)


def hist_gradient_boosting(X: np.ndarray, y: np.ndarray, X_test: np.ndarray, y_test: np.ndarray) -> Arrays:
    """Fit scikit-learn's histogram-based gradient boosting."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    return with_residual_variance(lambda: HistGradientBoostingRegressor(random_state=0), X, y, X_test)


def with_residual_variance(make: Callable[[], Any], X: np.ndarray, y: np.ndarray, X_test: np.ndarray) -> Arrays:
    """Return normal distributions around the predictions of the regressor that `make` makes.

    Their variance is the mean square of the residuals of a tenth of the rows, after a fit to the others. A second fit,
    to all rows, predicts the means. The seconds are those of both fits.
    """
    order = np.random.default_rng(0).permutation(len(y))
    n_held_out = max(1, round(HELD_OUT_SHARE * len(y)))
    held_out, rest = order[:n_held_out], order[n_held_out:]
    first, second = make(), make()
    seconds = _seconds_of(lambda: first.fit(X[rest], y[rest])) + _seconds_of(lambda: second.fit(X, y))
    residual = y[held_out] - np.ravel(first.predict(X[held_out]))
    mean = np.ravel(second.predict(X_test))
    return {"mean": mean, "std": np.full(len(mean), np.sqrt(np.mean(residual**2))), "seconds": seconds}


# Running


METHODS = {  # the function that fits, and the package to install
    "bde": (bde, "sklearn-contrib-bde"),
    "catboost": (catboost, "catboost"),
    "ngboost": (ngboost, "ngboost"),
    "tabm": (tabm, "pytabkit"),
    "realmlp": (realmlp, "pytabkit"),
    "hist_gradient_boosting": (hist_gradient_boosting, "scikit-learn"),
    "gaussian_process": (gaussian_process, "scikit-learn"),
    "random_forest": (random_forest, "mapie"),
    "laplace": (laplace, "laplace-torch"),
}


def main(method: str, task_path: str, result_path: str) -> None:
    """Run the task in the file `task_path` with a `method`, and write its result to the file `result_path`."""
    fit_and_predict, package = METHODS[method]
    with np.load(task_path) as task:
        result = fit_and_predict(**task)
    np.savez(result_path, **result, version=np.array(version(package)))


def _seconds_of(work: Callable[[], object]) -> np.ndarray:
    """Return the seconds that a call of `work` takes."""
    started = time.perf_counter()
    work()
    return np.array(time.perf_counter() - started)


if __name__ == "__main__":
    main(*sys.argv[1:])
