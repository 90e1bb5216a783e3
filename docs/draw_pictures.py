"""Draw the pictures of the documentation that are not figures of an experiment.

python docs/draw_pictures.py
"""

import json
from pathlib import Path

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure
from scipy import stats

from anchored import AnchoredClassifier, AnchoredRegressor
from anchored.exact import GaussianProcess, LinearGaussian, wide_limit
from anchored.exact.kernels import kernel_of
from anchored.paper.experiments.six_points import INPUTS, TARGETS, SixPoints
from anchored.plots import BAND_SHADES, INK, LINE, MEMBER

FOLDER = Path(__file__).parent / "images"
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
WARM, GREY = "#d9722e", "#888888"


def main() -> None:
    """Draw all pictures into docs/images."""
    for draw in (anchors, limits, members, moons, shapes, cost):
        figure = draw()
        for ax in figure.axes:
            ax.spines[["top", "right"]].set_visible(False)
        figure.savefig(FOLDER / f"{draw.__name__}.png", dpi=110)


def anchors() -> Figure:
    """Draw anchors and members of a model with one parameter, for three distributions of anchors."""
    problem = LinearGaussian.regression([[1.0]], [1.6], noise_variance=0.7, prior_covariance=[[1.0]])
    posterior, grid = problem.posterior(), np.linspace(-3, 3.6, 400)
    exact = problem.exact_anchor_covariance()
    cases = {
        "all anchors at the prior mean": np.zeros((1, 1)),
        "anchors from the prior": problem.prior_covariance,
        "anchors from Σ₀ = Σp + ΣpAΣp": exact,
    }
    quantiles = stats.norm.ppf((np.arange(15) + 0.5) / 15)
    figure, axes = pyplot.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
    for ax, (title, covariance) in zip(axes, cases.items(), strict=True):
        starts = quantiles * covariance[0, 0] ** 0.5
        ends = problem.solve(starts[:, None])[:, 0]
        ax.plot(grid, stats.norm.pdf(grid, 0, 1), color=GREY, label="prior")
        ax.plot(grid, stats.norm.pdf(grid, 1.6, 0.7**0.5), color=WARM, label="likelihood")
        density = stats.norm.pdf(grid, posterior.mean[0], posterior.covariance[0, 0] ** 0.5)
        ax.fill_between(grid, density, color=BAND_SHADES[1], label="posterior")
        for start, end in zip(starts, ends, strict=True):
            ax.annotate(
                "", (end, -0.09), (start, -0.3), arrowprops={"arrowstyle": "-", "color": MEMBER, "linewidth": 0.7}
            )
        ax.plot(starts, np.full(15, -0.3), "o", color=GREY, markersize=4, label="anchors")
        ax.plot(ends, np.full(15, -0.09), "o", color=LINE, markersize=4, label="members")
        members_std = problem.anchored_distribution(covariance).covariance[0, 0] ** 0.5
        if members_std > 0:
            density = stats.norm.pdf(grid, posterior.mean[0], members_std)
            ax.plot(grid, density, color=LINE, linestyle="--", label="distribution of members")
        ratio = members_std / posterior.covariance[0, 0] ** 0.5
        ax.set(title=f"{title}\ns.d. {ratio:.2f} of the posterior's", xlabel="θ", yticks=[], xlim=(-3, 3.6))
    axes[1].legend(frameon=False, fontsize="small", loc="upper left")
    return figure


def limits() -> Figure:
    """Draw the limits for infinitely many members of infinite width on the six points of figures 1 and 2."""
    task = SixPoints()
    kernel, grid = kernel_of(task.model()), task.grid
    process = GaussianProcess(kernel, task.noise_variance).condition(INPUTS[:, None], TARGETS[:, None])
    mean, std = (values[:, 0] for values in process.predict(task.grid_rows, return_std=True))
    cases = {
        "last layer, noisy targets": ("randomized", "last_layer"),
        "last layer, anchors from the prior": ("prior", "last_layer"),
        "all layers, noisy targets": ("randomized", "all"),
        "all layers, anchors from the prior": ("prior", "all"),
    }
    figure, axes = pyplot.subplots(1, 4, figsize=(15, 3.8), layout="constrained", sharey=True)
    for ax, (title, (anchoring, trainable)) in zip(axes, cases.items(), strict=True):
        limit = wide_limit(kernel, task.noise_variance, anchoring, trainable)
        limit_mean, covariance = limit.distribution(INPUTS[:, None], TARGETS, task.grid_rows)
        limit_std = np.sqrt(np.maximum(np.diag(covariance), 0))
        lower, upper = limit_mean - 2 * limit_std, limit_mean + 2 * limit_std
        ax.fill_between(grid, lower, upper, color=BAND_SHADES[1], label="members, ± 2 s.d.")
        ax.plot(grid, limit_mean, color=LINE, label="their mean")
        ax.plot(grid, mean, color=WARM, linewidth=1, label="the process")
        for sign in (-2, 2):
            ax.plot(grid, mean + sign * std, color=WARM, linewidth=1, linestyle="--")
        ax.plot(INPUTS, TARGETS, "o", color=INK, markersize=4)
        ax.set(title=f"{title}\ns.d. ratio {np.mean(limit_std / std):.2f}", xlabel="x", ylim=(-3, 3))
    axes[0].legend(frameon=False, fontsize="small", loc="lower right")
    return figure


def members() -> Figure:
    """Draw the relative error of a standard deviation against the number of members: by the formula, and simulated."""
    numbers = np.array([2, 3, 5, 10, 20, 50, 100, 200])
    random = np.random.default_rng(0)
    drawn = [np.std(random.standard_normal((20_000, m)), axis=1, ddof=1) for m in numbers]
    figure, ax = pyplot.subplots(figsize=(7, 4), layout="constrained")
    ax.loglog(numbers, 100 / np.sqrt(2 * (numbers - 1)), color=LINE, label="1/√(2(M − 1))")
    ax.loglog(numbers, [100 * np.sqrt(np.mean((s - 1) ** 2)) for s in drawn], "o", color=WARM, label="measured")
    ax.set(xlabel="members, M", ylabel="relative error of the s.d., %", xticks=numbers, xticklabels=numbers)
    ax.set(yticks=(5, 10, 25, 50, 70), yticklabels=(5, 10, 25, 50, 70))
    ax.minorticks_off()
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return figure


def moons() -> Figure:
    """Draw the probability, the aleatoric and the epistemic entropy that a classifier of two moons predicts."""
    from sklearn.datasets import make_moons

    X, y = make_moons(200, noise=0.25, random_state=0)
    model = AnchoredClassifier(n_estimators=50, random_state=0).fit(X, y)
    across, up = np.meshgrid(np.linspace(-4, 5, 150), np.linspace(-3.5, 4, 130))
    predictive = model.predict_dist(np.column_stack([across.ravel(), up.ravel()]))
    panels = {
        "probability": (predictive.probabilities[:, 1], "RdBu"),
        "aleatoric entropy: classes overlap": (predictive.aleatoric_entropy, "Blues"),
        "epistemic entropy: members disagree": (predictive.epistemic_entropy, "Oranges"),
    }
    figure, axes = pyplot.subplots(1, 3, figsize=(14, 4), layout="constrained", sharey=True)
    for ax, (title, (values, colours)) in zip(axes, panels.items(), strict=True):
        shades = ax.pcolormesh(across, up, values.reshape(across.shape), cmap=colours, vmin=0, rasterized=True)
        figure.colorbar(shades, ax=ax)
        for label, marker in ((0, "o"), (1, "^")):
            ax.plot(*X[y == label].T, marker, color=INK, markersize=3, alpha=0.6)
        ax.set(title=title)
    return figure


def shapes() -> Figure:
    """Draw intervals and a density fitted to skewed noise, and those of a normal with the same mean and variance."""
    rng = np.random.default_rng(0)

    def noise(n_rows: int) -> np.ndarray:
        return 0.3 * rng.lognormal(0, 0.9, n_rows)

    x = rng.uniform(-3, 3, 800)
    model = AnchoredRegressor(random_state=0).fit(x[:, None], np.sin(x) + noise(800))
    grid, here = np.linspace(-3, 3, 200), np.zeros((1, 1))
    chosen, at_zero = model.predict_dist(grid[:, None]), model.predict_dist(here)
    levels, targets = np.linspace(-1.2, 3, 400), noise(20_000)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(12, 4), layout="constrained")
    left.plot(x, np.sin(x) + noise(800), ".", color=MEMBER, markersize=4, label="new observations")
    for bound, normal_bound in zip(
        chosen.interval(0.9), stats.norm(chosen.mean, chosen.std).interval(0.9), strict=True
    ):
        left.plot(grid, bound, color=LINE, label="chosen: 90 % interval")
        left.plot(grid, normal_bound, color=WARM, linestyle="--", label="normal: 90 % interval")
    handles, labels = left.get_legend_handles_labels()
    left.legend(handles[:3], labels[:3], frameon=False, loc="upper left")
    left.set(xlabel="x", ylabel="y", ylim=(-2.5, 5))
    right.hist(targets, levels[::8], density=True, color=BAND_SHADES[1], label="20,000 new observations")
    right.plot(levels, at_zero.pdf(levels), color=LINE, label="chosen density")
    right.plot(levels, stats.norm.pdf(levels, at_zero.mean, at_zero.std), "--", color=WARM, label="normal")
    right.set(xlabel="y at x = 0", ylabel="density", xlim=(-1.2, 3))
    right.legend(frameon=False)
    return figure


def cost() -> Figure:
    """Draw the seconds of fits and predictions against their sizes, from the stored results, with their slopes."""
    machines = {"two CPU cores": ("scaling", LINE), "H200": ("scaling_gpu", WARM)}
    points = {
        name: json.loads((RESULTS / f"{stored}.json").read_text())["points"] for name, (stored, _) in machines.items()
    }
    panels = {
        "rows": "fit: rows",
        "predicted_rows": "predict: rows",
        "members": "fit: members",
        "columns": "fit: columns",
        "width": "fit: units of the hidden layer",
        "processes": "fit: processes",
    }
    figure, axes = pyplot.subplots(2, 3, figsize=(13, 7), layout="constrained")
    for ax, (axis, title) in zip(axes.ravel(), panels.items(), strict=True):
        for name, (_, colour) in machines.items():
            if axis in points[name]:
                sizes, seconds = np.array(points[name][axis])[:, :2].T
                slope = np.log(seconds[-1] / seconds[-2]) / np.log(sizes[-1] / sizes[-2])
                ax.loglog(sizes, seconds, "o-", color=colour, label=f"{name}, slope {slope:.2f} at the end")
        ax.set(title=title, ylabel="seconds")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False, fontsize="small")
    axes[1, 2].set(xscale="linear", yscale="linear", ylim=(0, None), xticks=[1, 2])
    return figure


if __name__ == "__main__":
    main()
