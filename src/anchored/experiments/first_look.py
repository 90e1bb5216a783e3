"""A first look: a noisy curve with a gap in its data, and a table, and what the ensemble knows of them.

python -m anchored.experiments.first_look --out report
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anchored.estimators import AnchoredRegressor


@dataclass(frozen=True)
class Config:
    """What is fitted."""

    n_rows: int = 100
    noise_std: float = 0.15
    gap: tuple[float, float] = (-0.6, 0.9)
    n_estimators: int = 20
    seed: int = 0


def curve(x: np.ndarray) -> np.ndarray:
    """The truth."""
    return np.sin(2 * x) + 0.3 * x


def draw_data(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Rows on both sides of the gap."""
    rng = np.random.default_rng(config.seed)
    x = rng.uniform(-2, 2, size=4 * config.n_rows)
    x = x[(x < config.gap[0]) | (x > config.gap[1])][: config.n_rows]
    return x[:, None], curve(x) + config.noise_std * rng.normal(size=len(x))


def run(config: Config, verbose: int = 0) -> dict[str, Any]:
    """Fit, and say by number whether it knows what it does not know."""
    X, y = draw_data(config)
    started = time.perf_counter()
    model = AnchoredRegressor(n_estimators=config.n_estimators, random_state=config.seed, verbose=verbose).fit(X, y)
    seconds = time.perf_counter() - started
    grid = np.linspace(-2, 2, 401)[:, None]
    predictive = model.predict_dist(grid)
    seen = (grid[:, 0] < config.gap[0] - 0.1) | (grid[:, 0] > config.gap[1] + 0.1)
    epistemic_std = np.sqrt(predictive.epistemic_variance)
    lower, upper = predictive.interval(0.95)
    return {
        "model": model,
        "X": X,
        "y": y,
        "seconds": seconds,
        "noise_std": float(np.sqrt(model.noise_variance_)),
        "epistemic_std_at_data": float(epistemic_std[seen].mean()),
        "epistemic_std_in_gap": float(epistemic_std[~seen].max()),
        "truth_inside": float(np.mean((lower <= curve(grid[:, 0])) & (curve(grid[:, 0]) <= upper))),
    }


def draw(results: dict[str, Any], path: Path) -> None:
    """The picture: data, members, mean and bands."""
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
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def draw_table(path: Path) -> None:
    """The README's ten lines on the diabetes data: predictions with intervals, and their calibration."""
    import matplotlib.pyplot as plt
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import train_test_split

    from anchored.plots import CalibrationDisplay, PredictionDisplay

    X_train, X_test, y_train, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    model = AnchoredRegressor(random_state=0).fit(X_train, y_train)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    PredictionDisplay.from_estimator(model, X_test, y_test, ax=left)
    CalibrationDisplay.from_estimator(model, X_test, y_test, ax=right)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run, print the numbers, save the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for the pictures")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    config = Config(seed=arguments.seed)
    results = run(config, verbose=1)
    path = arguments.out / "first_look.png"
    draw(results, path)
    draw_table(arguments.out / "diabetes.png")
    print(f"members                       {config.n_estimators}, trained in {results['seconds']:.1f} s")
    print(f"noise, estimated (true)       {results['noise_std']:.3f} ({config.noise_std})")
    print(f"epistemic s.d. where seen     {results['epistemic_std_at_data']:.3f}")
    print(f"epistemic s.d. in the gap     {results['epistemic_std_in_gap']:.3f}")
    print(f"truth within the 95 % band    {results['truth_inside']:.0%} of the range of the data")
    print(f"pictures                      {path}, {arguments.out / 'diabetes.png'}")


if __name__ == "__main__":
    main()
