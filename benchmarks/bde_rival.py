"""Fit sklearn-contrib-bde with the settings of its README.

`uci.py --bde-python` runs this script in an environment with sklearn-contrib-bde:

    BDE_PYTHON benchmarks/bde_rival.py TASK.npz RESULT.npz

The task contains `X`, `y` and, for each split i, the rows `train_i` and `test_i`. The result contains `mean_i` and
`std_i` of the test rows in units of y, their `log_density_i` under the mixture of all draws, and `seconds_i` of the
fit.
"""

import os
import sys
import time

N_MEMBERS = 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={N_MEMBERS}"  # before JAX is imported

import numpy as np  # noqa: E402
from bde import BdeRegressor  # noqa: E402
from bde.loss import GaussianNLL  # noqa: E402


def regressor() -> BdeRegressor:
    """Return the regressor of the README's regression example."""
    return BdeRegressor(
        hidden_layers=[16, 16],
        n_members=N_MEMBERS,
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


def fit_and_predict(X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray) -> dict[str, np.ndarray]:
    """Fit the rows `train` of `X` and `y`, and return the results for the rows `test`, by name.

    Inputs and targets are standardised first, which bde does not do itself.
    """
    centre, scale = X[train].mean(0), X[train].std(0) + 1e-8
    y_centre, y_scale = y[train].mean(), y[train].std() + 1e-8
    inputs, targets = (X - centre) / scale, (y - y_centre) / y_scale
    model = regressor()
    started = time.perf_counter()
    model.fit(x=inputs[train], y=targets[train])
    seconds = time.perf_counter() - started
    mean, std = model.predict(inputs[test], mean_and_std=True)
    draws = np.asarray(model.predict(inputs[test], raw=True)).reshape(-1, len(test), 2)
    return {
        "mean": np.ravel(mean) * y_scale + y_centre,
        "std": np.ravel(std) * y_scale,
        "log_density": mixture_log_density(draws, targets[test]) - np.log(y_scale),
        "seconds": np.array(seconds),
    }


def mixture_log_density(draws: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the log density of each target under the mixture of all draws.

    `draws`, (draws, rows, 2), are means and standard deviations before softplus; `targets` have shape (rows,).
    """
    mean, std = draws[..., 0], np.logaddexp(0, draws[..., 1]) + 1e-6
    terms = -0.5 * ((targets - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    return np.logaddexp.reduce(terms, axis=0) - np.log(len(draws))


def main(task_path: str, result_path: str) -> None:
    """Fit every split of the task in the file `task_path`, and write the results to the file `result_path`."""
    result = {}
    with np.load(task_path) as task:
        for i in range(sum(name.startswith("train_") for name in task)):
            arrays = fit_and_predict(task["X"], task["y"], task[f"train_{i}"], task[f"test_{i}"])
            result.update({f"{name}_{i}": array for name, array in arrays.items()})
    np.savez(result_path, **result)


if __name__ == "__main__":
    main(*sys.argv[1:])
