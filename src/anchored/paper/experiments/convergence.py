"""Convergence of an anchored ensemble to the Gaussian process with the number of members and the width.

Networks have one hidden layer of ReLUs and are trained on half of the rows, in ten runs that differ only in their
members. Either all layers or only the last layer is trained; anchors are drawn from the prior, with or without noise on
the targets. The marginals of each run at the test rows are compared with those of the exact process by KL(GP ‖
ensemble) of an observation, ratio of standard deviations, and 2-Wasserstein distance. Two references are computed from
closed forms: the ideal line, the distance of M draws from the process itself, and the floors, the limits for infinitely
many members of infinite width.
"""

from dataclasses import dataclass
from typing import TypedDict

import jax
import numpy as np
from scipy import stats

from anchored import datasets
from anchored.certification.distances import distances
from anchored.exact.kernels import kernel_of
from anchored.exact.processes import GaussianProcess
from anchored.exact.wide_limit import wide_limit
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.model.priors import Prior
from anchored.paper.findings import Claim, Figure, Progress, Table, above, below, no_progress, within
from anchored.plots import as_png
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

Kind = tuple[str, str]  # what is trained, and how members are anchored


class Curve(TypedDict):
    """Distances of one kind of ensemble, of one width, to the process."""

    by_members: dict[int, dict[str, tuple[float, float]]]  # for each distance, mean over runs and its standard error
    n_pooled: int  # members of all runs together
    pooled: dict[str, float]  # distances of these members as one ensemble


class ClosedForms(TypedDict):
    """Distances that are computed without training."""

    ideal: dict[int, float]  # expected KL of M draws from the process itself, by M
    predicted: dict[Kind, dict[int, float]]  # expected KL of M members of infinite width, by M
    floors: dict[Kind, dict[str, float]]  # distances of infinitely many members of infinite width


class Results(ClosedForms):
    """The measured curves and the closed forms."""

    curves: dict[tuple[str, str, int], Curve]  # by trainable, anchoring and width
    n_rows: int  # number of training rows


CLOSE_KL = 1.3  # largest KL of an ensemble that has converged, relative to that of as many draws from the process
SMALL_KL = 1e-3  # a limit with a smaller KL would be the process, for all practical purposes
CLOSE_SPREAD = 0.2  # largest difference from 1 of a ratio of standard deviations, ensemble to process, that is right


@dataclass(frozen=True)
class Config:
    """Data and ensembles."""

    dataset: str = "diabetes"  # name of a data set in `datasets`
    split_seed: int = 3  # random seed of the split into training and test rows
    noise_variance: float = 0.5  # of the standardised targets
    variance: float = 2.0  # prior variance of first-layer weights and biases
    widths: tuple[int, ...] = (4, 16, 64, 256, 1024)  # numbers of hidden units
    members: tuple[int, ...] = (3, 5, 10, 20, 40, 100)  # numbers of members
    max_trained_members: int = 40  # members of a run if all layers are trained, which takes longer
    n_runs: int = 10  # number of runs of each ensemble
    seed: int = 0  # random seed of the members


FULL = Config()
QUICK = Config(widths=(4, 64), members=(5, 20), max_trained_members=5, n_runs=2)


def load(config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return training X, (rows, columns), test X, and training y, (rows, 1), of the data set of `config`.

    They are standardised with the means and standard deviations of all rows, as in the literature.
    """
    table = datasets.load(config.dataset)
    X, y = ((values - values.mean(0)) / values.std(0) for values in (table.X, table.y[:, None]))
    order = np.random.RandomState(config.split_seed).permutation(len(y))
    train, test = order[: len(y) // 2], order[len(y) // 2 :]
    return X[train], X[test], y[train]


def make_model(config: Config, width: int) -> BayesianModel:
    """Return the model with one hidden layer of this `width`, and the prior and noise variance of `config`.

    The prior is that of `layered_prior`, except that the variance of first-layer weights is not divided by the number
    of columns.
    """
    first, last = np.float32(config.variance**0.5), np.float32(width**-0.5)
    scale = {"layer_0": {"weights": first, "bias": first}, "layer_1": {"weights": last}}
    prior = Prior(jax.tree.map(np.zeros_like, scale), scale)
    return BayesianModel(MLP((width,), 1), prior, Gaussian(np.full(1, config.noise_variance, np.float32)))


def run(config: Config, on_progress: Progress = no_progress) -> Results:
    """Train all ensembles of `config`; return distances and closed forms. `on_progress` gets fractions of the work."""
    X, X_test, y = load(config)
    mean, std = exact_marginals(config, X, X_test, y)
    cost = {(width, *kind): width * (10 if kind[0] == "all" else 1) for width in config.widths for kind in KINDS}
    curves = {}
    for (width, trainable, anchoring), cost_of_one in cost.items():
        outputs = member_outputs(config, width, trainable, anchoring, X, y, X_test)
        curves[trainable, anchoring, width] = curve(config, outputs, mean, std)
        on_progress(cost_of_one / sum(cost.values()))
    return {"curves": curves, **closed_forms(config, X, X_test, y), "n_rows": len(y)}


def exact_marginals(config: Config, X: np.ndarray, X_test: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation, (rows,) each, of the process of `config` at `X_test`, given `X` and `y`."""
    process = GaussianProcess(kernel_of(make_model(config, 1)), config.noise_variance).condition(X, y)
    mean, std = process.predict(X_test, return_std=True)
    return mean[:, 0], std[:, 0]


def closed_forms(config: Config, X: np.ndarray, X_test: np.ndarray, y: np.ndarray) -> ClosedForms:
    """Return the ideal line, expected KL and floors for the data `X`, `X_test` and `y` of `config`."""
    mean, std = exact_marginals(config, X, X_test, y)
    limits = {}
    for trainable, anchoring in KINDS:
        process = wide_limit(kernel_of(make_model(config, 1)), config.noise_variance, anchoring, trainable)
        limit_mean, covariance = process.distribution(X, y, X_test)
        limits[trainable, anchoring] = (limit_mean, np.sqrt(np.diag(covariance)))
    return {
        "ideal": {m: expected_kl(config, mean, std, mean, std, m) for m in config.members},
        "predicted": {k: {m: expected_kl(config, mean, std, *limits[k], m) for m in config.members} for k in KINDS},
        "floors": {kind: distances(mean, std, *limits[kind], config.noise_variance) for kind in KINDS},
    }


def member_outputs(
    config: Config, width: int, trainable: str, anchoring: str, X: np.ndarray, y: np.ndarray, X_test: np.ndarray
) -> np.ndarray:
    """Train the ensembles of all runs on `X` and `y`; return the outputs at `X_test`, (runs, members, rows).

    The ensembles have this `width`, `trainable` and `anchoring`; the other settings are in `config`.
    """
    n_members = config.max_trained_members if trainable == "all" else max(config.members)
    # With a tenth of this tolerance the solver takes 1.5 times as many steps, and the distribution of members is the
    # same within its Monte-Carlo error.
    solver = GaussNewton(tolerance=1.0)
    method = AnchoredEnsemble(config.n_runs * n_members, anchoring, trainable, solver)
    data = Data(*(a.astype(np.float32) for a in (X, y, np.ones((len(y), 1)))))
    key = jax.random.fold_in(jax.random.key(config.seed), width)
    posterior = method.fit(key, make_model(config, width), data)
    return posterior.outputs(X_test.astype(np.float32))[..., 0].reshape(config.n_runs, n_members, len(X_test))


def curve(config: Config, outputs: np.ndarray, mean: np.ndarray, std: np.ndarray) -> Curve:
    """Return the distances to the process for growing numbers of members.

    `outputs` are those of all members, (runs, members, rows); `mean` and `std` of the exact process have shape (rows,).
    `config` has the numbers of members and the noise variance.
    """
    n_runs, n_members, n_rows = outputs.shape

    def distance(members: np.ndarray) -> dict[str, float]:
        return distances(mean, std, members.mean(0), members.std(0, ddof=1), config.noise_variance)

    by_members = {}
    for m in (m for m in config.members if m <= n_members):
        runs = [distance(members) for members in outputs[:, :m]]
        table = {name: np.array([r[name] for r in runs]) for name in runs[0]}
        by_members[m] = {n: (float(v.mean()), float(v.std(ddof=1) / np.sqrt(n_runs))) for n, v in table.items()}
    pooled = outputs.reshape(-1, n_rows)
    return {
        "by_members": by_members,
        "n_pooled": len(pooled),
        "pooled": distance(pooled),
    }


def expected_kl(
    config: Config, mean: np.ndarray, std: np.ndarray, limit_mean: np.ndarray, limit_std: np.ndarray, n_members: int
) -> float:
    """Return the expected KL from the exact process to an ensemble of M independent normal members.

    The process has `mean` and `std`, and an output of a member `limit_mean` and `limit_std`, (rows,) each; M is
    `n_members`. The sample mean is normal, and the sample variance is χ² distributed with M − 1 degrees of freedom.
    `config` has the noise variance.
    """
    levels = (np.arange(2_000) + 0.5) / 2_000
    variance = limit_std**2 * (stats.chi2.ppf(levels, n_members - 1) / (n_members - 1))[:, None] + config.noise_variance
    exact_variance = std**2 + config.noise_variance  # of an observation, as the two other variances
    square = exact_variance + (mean - limit_mean) ** 2 + limit_std**2 / n_members  # E (observation − sample mean)²
    return float(np.mean(0.5 * (square / variance - 1 + np.log(variance / exact_variance))))


def figures(config: Config, results: Results) -> tuple[Figure, ...]:
    """Return one figure with all curves of the `results` of a run with `config`."""
    name = "convergence" if config.dataset == Config.dataset else f"convergence_{config.dataset}"
    return (
        Figure(
            name=name,
            title=f"What an anchored ensemble converges to ({config.dataset} data)",
            paper="The paper's main claim is that an anchored ensemble converges to the corresponding Gaussian process "
            "as the number of networks and the size of each network go to infinity. The paper does not say how fast.",
            picture=draw(config, results),
            description="Four panels. Distance to the process against the number of members, with the line of exact "
            "draws and the floors of infinite width; then distance, ratio of standard deviations and Wasserstein "
            "distance against the width, for four ways of training and anchoring.",
            claims=claims(config, results),
            tables=(table(config, results),),
            notes=(
                f"There are {results['n_rows']} training rows, the noise variance is {config.noise_variance}, networks "
                f"have one hidden layer of ReLUs, and {config.n_runs} runs differ only in their members. KL is the "
                "Kullback–Leibler divergence KL(process ‖ ensemble) of an observation, in nats. An ensemble has "
                f"converged if its KL is less than {CLOSE_KL} times that of as many draws from the process. A spread "
                f"is right if its error is at most {CLOSE_SPREAD:.0%}.",
                "The limits and the ideal line are closed forms; the other numbers are measured. The ideal line is the "
                "distance of draws from the process itself; the dotted lines are the limits for infinitely many "
                "members of infinite width.",
            ),
        ),
    )


def claims(config: Config, results: Results) -> tuple[Claim, ...]:
    """Return the claims about convergence, width and anchors from the prior, tested with `results` of `config`."""
    curves, floors = results["curves"], results["floors"]
    narrowest, widest = min(config.widths), max(config.widths)
    exact, printed = ("last_layer", "randomized"), ("all", "prior")  # kinds

    def last(kind: Kind, width: int, name: str) -> tuple[int, float, float]:
        points = curves[(*kind, width)]["by_members"]
        return max(points), *points[max(points)][name]

    m, kl, error = last(exact, widest, "kl")
    ideal = results["ideal"][m]
    many, printed_kl, printed_error = last(printed, widest, "kl")
    _, narrow_kl, narrow_error = last(exact, narrowest, "kl")
    _, ratio, ratio_error = last(("last_layer", "prior"), widest, "std_ratio")
    _, corrected_ratio, corrected_error = last(exact, widest, "std_ratio")
    expected_ratio = floors["last_layer", "prior"]["std_ratio"]
    return (
        Claim.compared(
            "An anchored ensemble converges to the corresponding Gaussian process as the number of members and the "
            "width grow.",
            [below(floors[printed]["kl"], 0, SMALL_KL)],
            [below(kl, error, CLOSE_KL * ideal)],
            f"as printed, with all layers trained: KL {printed_kl:.4f} ± {printed_error:.4f} with {many} members of "
            f"width {widest}. The limit is another process, whose KL is {floors[printed]['kl']:.4f} with anchors from "
            f"the prior and {floors['all', 'randomized']['kl']:.4f} with noisy targets (exact). Corrected, with only "
            f"the last layer trained and with noisy targets: {kl:.4f} ± {error:.4f} with {m} members. For as many "
            f"draws from the process, the KL is {ideal:.4f} (exact); the limit is 0",
            is_main=True,
        ),
        Claim.tested(
            "The wider the networks, the closer the ensemble is to the process.",
            [above(narrow_kl - kl, np.hypot(narrow_error, error), 0)],
            f"last layer, noisy targets, {m} members: KL {narrow_kl:.4f} ± {narrow_error:.4f} at width {narrowest}, "
            f"and {kl:.4f} ± {error:.4f} at width {widest}",
        ),
        Claim.compared(
            "Anchors drawn from the prior give the ensemble the spread of the posterior.",
            within(ratio, ratio_error, 1, CLOSE_SPREAD),
            within(corrected_ratio, corrected_error, 1, CLOSE_SPREAD),
            f"last layer, width {widest}: s.d. {ratio:.3f} ± {ratio_error:.3f} times the posterior's, and "
            f"{expected_ratio:.3f} in the limit (exact). Corrected by noisy targets: {corrected_ratio:.3f} ± "
            f"{corrected_error:.3f}, and 1 in the limit",
            is_main=True,
        ),
    )


def table(config: Config, results: Results) -> Table:
    """Return a table of the KL in `results` for each kind, width and number of members of `config`, with the floors."""
    curves = results["curves"]
    rows = [("draws of the process", "", *(f"{kl:.4f}" for kl in results["ideal"].values()), "", "0")]
    for kind in KINDS:
        for width in config.widths:
            points = curves[(*kind, width)]
            distances_by_members = [points["by_members"].get(m) for m in config.members]
            cells = (f"{f['kl'][0]:.4f} ± {f['kl'][1]:.4f}" if f else "" for f in distances_by_members)
            floor = f"{results['floors'][kind]['kl']:.4f}"
            rows.append((NAMES[kind], str(width), *cells, f"{points['pooled']['kl']:.4f}", floor))
    header = ("ensemble", "width", *(f"M = {m}" for m in config.members), "all runs pooled", "infinite width and M")
    return Table(header, tuple(rows), "KL(process ‖ ensemble), nats")


def draw(config: Config, results: Results) -> bytes:
    """Return the picture of `results` of `config` as PNG: KL against members, then three distances against width."""
    import matplotlib.pyplot as plt

    curves = results["curves"]
    widest = max(config.widths)
    figure, axes = plt.subplots(2, 2, figsize=(11, 8.6), layout="constrained")
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
    ax.set_title(f"width {widest}; lines: infinite width; dotted: limit", fontsize=10)
    ax.set_xticks(config.members, [str(m) for m in config.members])
    ax.minorticks_off()
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
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return as_png(figure, dpi=120)
