"""A first look: one ensemble fitted to a noisy curve with a gap in the data, and one fitted to a table."""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np

from anchored.estimators.regressors import AnchoredRegressor
from anchored.paper.findings import Claim, Figure, Progress, above, no_progress, within
from anchored.plots import as_png

PAPERS_NETWORK = {"hidden_layer_sizes": (50,), "activation": "relu", "learning_rate_init": 0.03}
LESS_CERTAIN = 5  # smallest ratio of epistemic s.d. in the gap and at the data that is "far less certain"
COVERED = 0.95  # share of the range of the data on which the truth must lie in the band
ABOUT = 0.05  # largest difference between a share of values and "about 95 %"


@dataclass(frozen=True)
class Config:
    """Data and ensembles."""

    n_rows: int = 100  # number of points of the curve
    noise_std: float = 0.15  # standard deviation of the noise on these points
    gap: tuple[float, float] = (-0.6, 0.9)  # range of inputs without data
    n_estimators: int = 20  # number of members for the curve
    max_iter: int = 800  # number of epochs for the curve
    table_estimators: int = 10  # number of members for the table; the estimator's default
    table_max_iter: int | str = "auto"  # number of epochs for the table; the estimator's default
    seed: int = 0  # random seed of data, split and members


class TableResults(TypedDict):
    """The model of the diabetes data and its predictions for held-out rows."""

    model: AnchoredRegressor
    X: np.ndarray  # held-out rows
    y: np.ndarray  # their targets
    inside: np.ndarray  # (rows,), whether the target lies in its 95 % interval


class Results(TypedDict):
    """The model of the curve, its training rows and uncertainties; and the results of the table."""

    model: AnchoredRegressor
    X: np.ndarray  # (rows, 1), training rows of the curve
    y: np.ndarray  # (rows,), their targets
    estimated_noise_std: float  # standard deviation of the noise that the model estimates
    mean_epistemic_std_at_data: float  # over grid points more than 0.1 from the gap
    max_epistemic_std_in_gap: float  # in the gap and within 0.1 of it
    truth_inside: float  # share of the range of the data where the curve lies in the 95 % interval
    table: TableResults


FULL = Config()
QUICK = Config(n_estimators=5, max_iter=100, table_estimators=5, table_max_iter=40)


def curve(x: np.ndarray) -> np.ndarray:
    """Return the true values of the curve at `x`."""
    return np.sin(2 * x) + 0.3 * x


def draw_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Return X, (rows, 1), and y, (rows,), of noisy points of the curve on both sides of the gap of `config`."""
    rng = np.random.default_rng(config.seed)
    x = rng.uniform(-2, 2, size=4 * config.n_rows)
    x = x[(x < config.gap[0]) | (x > config.gap[1])][: config.n_rows]
    return x[:, None], curve(x) + config.noise_std * rng.normal(size=len(x))


def run(config: Config, on_progress: Progress = no_progress) -> Results:
    """Fit the curve and the table with the sizes of `config`, and measure the uncertainties.

    `on_progress` is called with the fraction of the work done since the last call.
    """
    X, y = draw_data(config)
    model = AnchoredRegressor(
        config.n_estimators, **PAPERS_NETWORK, max_iter=config.max_iter, random_state=config.seed
    ).fit(X, y)
    on_progress(0.5)
    grid = np.linspace(-2, 2, 401)[:, None]
    predictive = model.predict_dist(grid)
    has_data = (grid[:, 0] < config.gap[0] - 0.1) | (grid[:, 0] > config.gap[1] + 0.1)
    epistemic_std = np.sqrt(predictive.epistemic_variance)
    lower, upper = predictive.interval(0.95)
    results: Results = {
        "model": model,
        "X": X,
        "y": y,
        "estimated_noise_std": float(np.sqrt(model.noise_variance_)),
        "mean_epistemic_std_at_data": float(epistemic_std[has_data].mean()),
        "max_epistemic_std_in_gap": float(epistemic_std[~has_data].max()),
        "truth_inside": float(np.mean((lower <= curve(grid[:, 0])) & (curve(grid[:, 0]) <= upper))),
        "table": run_table(config),
    }
    on_progress(0.5)
    return results


def run_table(config: Config) -> TableResults:
    """Fit the diabetes data with a quarter of the rows held out, and compare these with their 95 % intervals.

    `config` has the sizes of the ensemble.
    """
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import train_test_split

    X, X_test, y, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=config.seed)
    model = AnchoredRegressor(config.table_estimators, max_iter=config.table_max_iter, random_state=config.seed)
    model.fit(X, y)
    lower, upper = model.predict_interval(X_test)
    return {"model": model, "X": X_test, "y": y_test, "inside": (lower <= y_test) & (y_test <= upper)}


def figures(config: Config, results: Results) -> tuple[Figure, ...]:
    """Return the figures of the curve and of the table, from the `results` of a run with `config`."""
    at_data, in_gap = results["mean_epistemic_std_at_data"], results["max_epistemic_std_in_gap"]
    noise = results["estimated_noise_std"]
    inside = results["table"]["inside"]
    share, error = inside.mean(), (inside.mean() * (1 - inside.mean()) / len(inside)) ** 0.5
    relative_error = 1 / (2 * (config.n_estimators - 1)) ** 0.5  # of a standard deviation over the members
    return (
        Figure(
            name="first_look",
            title="A first look: a curve with a gap in its data",
            paper=f"This is not in the paper. {config.n_estimators} members are fitted to {config.n_rows} noisy points "
            "of a curve, which has no points in the middle. Noise and prior are chosen automatically.",
            picture=draw(results),
            description="Noisy points on both sides of a gap. The band of the ensemble is narrow at the points and "
            "wide in the gap, and the true curve runs inside it.",
            claims=(
                Claim.tested(
                    "The ensemble is far less certain where there are no data.",
                    [above(in_gap / at_data, 2**0.5 * relative_error * in_gap / at_data, LESS_CERTAIN)],
                    f"epistemic s.d. of at most {in_gap:.2f} in the gap, and of {at_data:.3f} on average at the data; "
                    f"the error of each is {relative_error:.0%} with {config.n_estimators} members",
                ),
                Claim.tested(
                    "The true curve lies within the 95 % band of a new observation, which includes noise.",
                    [above(results["truth_inside"], 0, COVERED)],
                    f"on {results['truth_inside']:.0%} of the range of the data, for one data set; the noise is "
                    f"estimated as {noise:.3f} ± {noise / (2 * config.n_rows) ** 0.5:.3f}, and is in truth "
                    f"{config.noise_std}",
                ),
            ),
            ours=True,
        ),
        Figure(
            name="diabetes",
            title="A first look: a table",
            paper="This is not in the paper. Members are fitted to the diabetes data, with a quarter of the rows held "
            "out. Noise and prior are chosen automatically.",
            picture=draw_table(results),
            description="Left, predictions with intervals against measured values. Right, the share of values inside "
            "the intervals against the share that should be inside.",
            claims=(
                Claim.tested(
                    "95 % intervals contain about 95 % of the held-out values.",
                    within(share, error, 0.95, ABOUT),
                    f"{share:.1%} ± {error:.1%} of {len(inside)} rows; “about” means within {ABOUT:.0%}",
                ),
            ),
            ours=True,
        ),
    )


def draw(results: Results) -> bytes:
    """Return the picture of the curve in `results` as PNG: data, members, mean and bands."""
    import matplotlib.pyplot as plt

    from anchored.plots import BandDisplay

    figure, ax = plt.subplots(figsize=(8, 4.2), layout="constrained")
    model = results["model"]
    BandDisplay.from_estimator(
        model, results["X"], results["y"], limits=(-3, 3), n_members=model.n_estimators, random_state=0, ax=ax
    )
    grid = np.linspace(-3, 3, 301)
    ax.plot(grid, curve(grid), "k--", linewidth=1, label="truth")
    ax.set_ylim(-4, 4)
    ax.legend(loc="upper left", fontsize=8, ncols=3)
    return as_png(figure, dpi=130)


def draw_table(results: Results) -> bytes:
    """Return the picture of the table in `results` as PNG: predictions with intervals, and their calibration."""
    import matplotlib.pyplot as plt

    from anchored.plots import CalibrationDisplay, PredictionDisplay

    table = results["table"]
    model, X, y = table["model"], table["X"], table["y"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    PredictionDisplay.from_estimator(model, X, y, ax=left)
    CalibrationDisplay.from_estimator(model, X, y, ax=right)
    return as_png(figure)
