"""How an anchored ensemble nears the Gaussian process as members are added and networks grow wide.

python -m anchored.experiments.convergence --out report                         (the diabetes data)
python -m anchored.experiments.convergence --out report --data DIR              (Boston, from DIR/uci)

One hidden layer of ReLUs, half of the rows to train on, ten runs that differ only in their members; all layers
trained, or the last alone; anchors from the prior, or with noisy targets. Each run's marginals at the test rows are
compared with those of the exact process: KL(GP ‖ ensemble) with noise, ratio of standard deviations, 2-Wasserstein
distance. Drawn in, from closed forms: the ideal line, which M draws from the process itself would follow, and the
floors, where infinitely many infinitely wide members end.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from scipy import stats

from anchored import datasets, metrics
from anchored.exact.gaussian_process import GaussianProcess
from anchored.exact.kernels import kernel_of
from anchored.exact.wide_limit import wide_limit
from anchored.likelihoods import Gaussian
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model import BayesianModel
from anchored.networks import MLP
from anchored.priors import Prior
from anchored.solvers.gauss_newton import GaussNewton
from anchored.types import Data

KINDS = (("all", "prior"), ("all", "randomized"), ("last_layer", "prior"), ("last_layer", "randomized"))
NAMES = {
    ("all", "prior"): "all layers, anchors from the prior",
    ("all", "randomized"): "all layers, noisy targets",
    ("last_layer", "prior"): "last layer, anchors from the prior",
    ("last_layer", "randomized"): "last layer, noisy targets",
}
COLOURS = {
    ("all", "prior"): "#d9722e",
    ("all", "randomized"): "#b03a5b",
    ("last_layer", "prior"): "#5a9e6f",
    ("last_layer", "randomized"): "#08519c",
}


@dataclass(frozen=True)
class Config:
    """What is trained. Boston with these numbers is the setting of the literature."""

    dataset: str = "boston"
    split_seed: int = 3
    noise_variance: float = 0.1
    variance: float = 2.0  # of first-layer weights and biases
    widths: tuple[int, ...] = (4, 16, 64, 256, 1024)
    members: tuple[int, ...] = (3, 5, 10, 20, 40, 100)
    most_trained: int = 40  # members of a run where all layers train; solving for the last layer is cheaper
    n_runs: int = 10
    seed: int = 0


def load(config: Config, data_dir: Path | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X to train on and to test on, and y to train on, standardised with all rows as the literature did."""
    table = datasets.load(config.dataset, data_dir)
    X, y = ((values - values.mean(0)) / values.std(0) for values in (table.X, table.y[:, None]))
    order = np.random.RandomState(config.split_seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    return X[train], X[test], y[train]


def make_model(config: Config, width: int) -> BayesianModel:
    """The papers' prior for one hidden layer of this width, except that first weights are not divided by columns."""
    first, last = np.float32(config.variance**0.5), np.float32(width**-0.5)
    scale = {"layer_0": {"weights": first, "bias": first}, "layer_1": {"weights": last}}
    prior = Prior(jax.tree.map(np.zeros_like, scale), scale)
    return BayesianModel(MLP((width,), 1), prior, Gaussian(np.full(1, config.noise_variance, np.float32)))


def run(
    config: Config, data_dir: Path | None = None, report: Callable[[str, float], None] | None = None
) -> dict[str, Any]:
    """Every curve and its closed forms. `report` is told what has just been done, and in how many seconds."""
    started = time.perf_counter()
    X, X_test, y = load(config, data_dir)
    mean, std = exact_marginals(config, X, X_test, y)
    curves = {}
    for width in config.widths:
        for kind in KINDS:
            began = time.perf_counter()
            outputs = member_outputs(config, width, *kind, X, y, X_test)
            curves[(*kind, width)] = curve(config, outputs, mean, std)
            if report is not None:
                report(f"width {width:4d}, {NAMES[kind]}", time.perf_counter() - began)
    closed = closed_forms(config, X, X_test, y)
    return {"config": config, "curves": curves, **closed, "n_rows": len(y), "seconds": time.perf_counter() - started}


def exact_marginals(config: Config, X: np.ndarray, X_test: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the process at the test rows."""
    process = GaussianProcess(kernel_of(make_model(config, 1)), config.noise_variance).condition(X, y)
    mean, std = process.predict(X_test, return_std=True)
    return mean[:, 0], std[:, 0]


def closed_forms(config: Config, X: np.ndarray, X_test: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The ideal line, and for each kind of ensemble the expected KL at infinite width and where it ends."""
    mean, std = exact_marginals(config, X, X_test, y)
    laws = {}
    for trainable, anchoring in KINDS:
        limit = wide_limit(kernel_of(make_model(config, 1)), config.noise_variance, anchoring, trainable)
        law_mean, covariance = limit.law(X, y, X_test)
        laws[trainable, anchoring] = (law_mean, np.sqrt(np.diag(covariance)))
    return {
        "ideal": {m: expected_kl(config, mean, std, mean, std, m) for m in config.members},
        "predicted": {k: {m: expected_kl(config, mean, std, *laws[k], m) for m in config.members} for k in KINDS},
        "floors": {kind: distances(config, mean, std, *laws[kind]) for kind in KINDS},
    }


def member_outputs(
    config: Config, width: int, trainable: str, anchoring: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray
) -> np.ndarray:
    """What each member of each run says at the test rows, (runs, members, rows)."""
    a_run = config.most_trained if trainable == "all" else max(config.members)
    # The law is the same to within its Monte-Carlo error at a tenth of this tolerance, in half as many steps again
    solver = GaussNewton(tolerance=1.0)
    method = AnchoredEnsemble(config.n_runs * a_run, anchoring, trainable, solver)
    data = Data(*(a.astype(np.float32) for a in (X, y, np.ones((len(y), 1)))))
    key = jax.random.fold_in(jax.random.key(config.seed), width)
    posterior = method.fit(key, make_model(config, width), data)
    return posterior.outputs(X_test.astype(np.float32))[..., 0].reshape(config.n_runs, a_run, len(X_test))


def curve(config: Config, outputs: np.ndarray, mean: np.ndarray, std: np.ndarray) -> dict[str, Any]:
    """Distances to the process for nested numbers of members: mean over runs and its standard error."""
    n_runs, n_members, n_rows = outputs.shape
    by_members = {}
    for m in (m for m in config.members if m <= n_members):
        runs = [distances(config, mean, std, own.mean(0), own.std(0, ddof=1)) for own in outputs[:, :m]]
        table = {name: np.array([r[name] for r in runs]) for name in runs[0]}
        by_members[m] = {n: (float(v.mean()), float(v.std(ddof=1) / np.sqrt(n_runs))) for n, v in table.items()}
    pooled = outputs.reshape(-1, n_rows)
    return {
        "by_members": by_members,
        "n_pooled": len(pooled),
        "pooled": distances(config, mean, std, pooled.mean(0), pooled.std(0, ddof=1)),
    }


def distances(
    config: Config, mean: np.ndarray, std: np.ndarray, other_mean: np.ndarray, other_std: np.ndarray
) -> dict[str, float]:
    """From the process to other marginals, mean over the test rows. The noise is in the KL, as in the literature."""
    observed, other_observed = (np.sqrt(s**2 + config.noise_variance) for s in (std, other_std))
    return {
        "kl": float(np.mean(metrics.gaussian_kl(mean, observed, other_mean, other_observed))),
        "std_ratio": float(np.mean(other_std / std)),
        "wasserstein": float(np.mean(metrics.gaussian_wasserstein(mean, std, other_mean, other_std))),
    }


def expected_kl(
    config: Config, mean: np.ndarray, std: np.ndarray, law_mean: np.ndarray, law_std: np.ndarray, n_members: int
) -> float:
    """E KL of M draws from a normal law: their mean is normal, and their variance χ² with M − 1 degrees of freedom."""
    levels = (np.arange(2_000) + 0.5) / 2_000
    variance = law_std**2 * (stats.chi2.ppf(levels, n_members - 1) / (n_members - 1))[:, None] + config.noise_variance
    truth = std**2 + config.noise_variance
    square = truth + (mean - law_mean) ** 2 + law_std**2 / n_members  # E (μ − mean of M)² + variance
    return float(np.mean(0.5 * (square / variance - 1 + np.log(variance / truth))))


def draw(results: dict[str, Any], path: Path) -> None:
    """Four panels: KL against members, then KL, ratio and distance against width."""
    import matplotlib.pyplot as plt

    config, curves = results["config"], results["curves"]
    widest = max(config.widths)
    figure, axes = plt.subplots(2, 2, figsize=(11, 8.2), layout="constrained")
    ax = axes[0, 0]
    for kind in KINDS:
        points = curves[(*kind, widest)]["by_members"]
        m = np.array(list(points))
        kl, error = np.array([points[i]["kl"] for i in m]).T
        ax.errorbar(
            m, kl, 2 * error, color=COLOURS[kind], marker="o", linestyle="none", markersize=4, label=NAMES[kind]
        )
        ax.plot(m, [results["predicted"][kind][i] for i in m], color=COLOURS[kind], linewidth=1)
        if results["floors"][kind]["kl"] > 1e-6:
            ax.axhline(results["floors"][kind]["kl"], color=COLOURS[kind], linewidth=0.8, linestyle=":")
    ax.plot(
        list(results["ideal"]), list(results["ideal"].values()), "k--", linewidth=1.2, label="ideal: draws of the GP"
    )
    ax.set(xscale="log", yscale="log", xlabel="members", ylabel="KL(GP ‖ ensemble), nats")
    ax.set_title(f"width {widest}; lines: infinite width; dotted: floors", fontsize=10)
    ax.set_xticks(config.members, [str(m) for m in config.members])
    ax.minorticks_off()
    ax.legend(fontsize=8)
    panels = (
        ("kl", "KL(GP ‖ ensemble), nats"),
        ("std_ratio", "s.d. of ensemble / of GP"),
        ("wasserstein", "2-Wasserstein"),
    )
    for ax, (name, label) in zip(axes.flat[1:], panels, strict=True):
        for kind in KINDS:
            pooled = [curves[(*kind, width)]["pooled"][name] for width in config.widths]
            ax.plot(config.widths, pooled, color=COLOURS[kind], marker="o", markersize=4, label=NAMES[kind])
            ax.axhline(results["floors"][kind][name], color=COLOURS[kind], linewidth=0.8, linestyle=":")
        ax.set(xscale="log", xlabel="width", ylabel=label)
        ax.set_xticks(config.widths, [str(w) for w in config.widths])
        ax.minorticks_off()
        if name != "std_ratio":
            ax.set_yscale("log")
    axes[0, 1].set_ylim(2e-4, 1)
    axes[1, 1].set_ylim(3e-3, 1)
    n_pooled = curves[(*KINDS[0], widest)]["n_pooled"], curves[(*KINDS[2], widest)]["n_pooled"]
    axes[0, 1].set_title(f"members of all runs together: {n_pooled[0]} (all layers), {n_pooled[1]} (last)", fontsize=10)
    figure.suptitle(f"{config.dataset}: {results['n_rows']} rows, σ² = {config.noise_variance}, {config.n_runs} runs")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def table(results: dict[str, Any]) -> str:
    """The numbers of the first panel, and the floors."""
    config, curves = results["config"], results["curves"]
    lines = [
        f"{'KL to the GP':52}"
        + "".join(f"{'M=' + str(m):>15}" for m in config.members)
        + f"{'pooled':>10}{'floor':>10}"
    ]
    lines.append(f"{'ideal':52}" + "".join(f"{v:15.4f}" for v in results["ideal"].values()))
    for kind in KINDS:
        for width in config.widths:
            points = curves[(*kind, width)]
            cells = [points["by_members"].get(m) for m in config.members]
            text = "".join(f"{c['kl'][0]:8.4f} ±{c['kl'][1]:.4f}" if c else f"{'':>16}" for c in cells)
            lines.append(
                f"{NAMES[kind] + f', width {width}':50}{text}{points['pooled']['kl']:10.4f}"
                f"{results['floors'][kind]['kl']:10.4f}"
            )
    return "\n".join(lines)


def main() -> None:
    """Run, print the numbers, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for the picture")
    parser.add_argument("--data", type=Path, help="folder that holds uci/: the study is then of Boston")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    bundled = Config(dataset="diabetes", noise_variance=0.5, seed=arguments.seed)
    config = Config(seed=arguments.seed) if arguments.data else bundled
    results = run(config, arguments.data, lambda what, seconds: print(f"{what:55} {seconds:6.1f} s", flush=True))
    path = arguments.out / f"convergence_{config.dataset}.png"
    draw(results, path)
    print(table(results))
    print(f"{results['seconds']:.0f} s; picture {path}")


if __name__ == "__main__":
    main()
