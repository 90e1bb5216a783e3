"""Figure 1: five methods on six points. Four of them are compared with the fifth, the exact Gaussian process.

Networks have a single hidden layer of 1,000 units, with ReLU and with erf (Williams 1996). Bands are one to three
standard deviations of the function. The paper gives neither its points nor its settings; ours are the same for all
methods.

Two findings differ from the paper. Mean-field variational inference is not too narrow at this width: six points are too
few to move 3,001 weights away from their prior, and the approximation reverts to the prior (Coker et al. 2022). With 50
ReLUs it is too narrow between the points, as in the paper; the table has both. And anchored members with all layers
trained have about the spread of the process, but not its mean: they converge to another process (`exact.wide_limit`).
If only the last layer is trained, they converge to this one; the table has both.
"""

from dataclasses import dataclass, replace
from typing import TypedDict

from anchored.inference.posterior import Method
from anchored.methods import HMC, AnchoredEnsemble, GaussianProcess, GaussNewton, MCDropout, VariationalInference
from anchored.paper.experiments import six_points
from anchored.paper.experiments.regression_tasks import Marginals
from anchored.paper.experiments.six_points import INPUTS, TARGETS, Row, SixPoints, measured, value_and_error
from anchored.paper.findings import Claim, Figure, Progress, above, below, no_progress, within
from anchored.plots import as_png

NARROW = "variational inference, 50 units"
NAMES_IN_CLAIMS = {
    NARROW: "variational inference with 50 units",
    "anchored": "an anchored ensemble, all layers trained,",
    "anchored, last layer": "an anchored ensemble, last layer trained,",
}
CLOSE_MEAN = 0.5  # largest root-mean-square gap of means, in s.d. of the process, that is "close"
CLOSE_SPREAD = 0.2  # largest difference from 1 of a ratio of standard deviations, to the process, that is "close"
TOO_NARROW = 0.9  # ratio of standard deviations between the points below which a method is "too narrow"
MethodAndWarmUp = tuple[Method, Method | None]  # two arguments of `timed_fit`


class Results(TypedDict):
    """Distances and marginals of each method."""

    rows: dict[str, Row]  # by "activation: method"
    bands: dict[tuple[str, str], Marginals]  # on the grid, by activation and method


@dataclass(frozen=True)
class Config:
    """Sizes of the networks, and numbers of members, draws and steps of the methods."""

    activations: tuple[str, ...] = ("relu", "erf")  # names of the activations
    width: int = 1000  # number of hidden units
    narrow_width: int = 50  # number of hidden units of a second network for variational inference
    n_members: int = 100  # number of members of an anchored ensemble
    n_chains: int = 2  # number of chains of Hamiltonian Monte Carlo
    n_warmup: int = 300  # number of warm-up steps of each chain
    n_samples: int = 300  # number of draws of each chain
    variational_steps: int = 5000  # number of steps of variational inference
    dropout_iterations: int = 2000  # number of steps of MC dropout
    seed: int = 0  # random seed of the methods


FULL = Config()
QUICK = Config(
    ("relu",), width=50, n_members=40, n_warmup=30, n_samples=30, variational_steps=400, dropout_iterations=400
)


def methods(config: Config) -> dict[str, MethodAndWarmUp]:
    """Return the methods of `config` by name: those of the panels, and two more anchored ensembles."""
    hmc = HMC(config.n_chains, config.n_warmup, config.n_samples)
    variational = VariationalInference(n_steps=config.variational_steps)
    dropout = MCDropout(max_iter=config.dropout_iterations)
    anchored = AnchoredEnsemble(config.n_members, "randomized", solver=GaussNewton())
    few = replace(anchored, n_estimators=2)
    return {
        "Gaussian process": (GaussianProcess(), GaussianProcess()),
        "Hamiltonian Monte Carlo": (hmc, None),
        "variational inference": (variational, replace(variational, n_steps=200)),
        "MC dropout": (dropout, replace(dropout, max_iter=20)),
        "anchored": (anchored, few),
        "anchored, from the prior": (replace(anchored, anchoring="prior"), replace(few, anchoring="prior")),
        "anchored, last layer": (replace(anchored, trainable="last_layer"), replace(few, trainable="last_layer")),
    }


def run(config: Config, on_progress: Progress = no_progress) -> Results:
    """Fit every method with each activation of `config`; return marginals and distances.

    `on_progress` is called after each fit with its fraction of the work.
    """
    rows: dict[str, Row] = {}
    bands: dict[tuple[str, str], Marginals] = {}
    for activation in config.activations:
        task = SixPoints(activation, config.width)
        narrow = replace(task, width=config.narrow_width)
        fits = {name: (task, *pair) for name, pair in methods(config).items()}
        fits[NARROW] = (narrow, *methods(config)["variational inference"])
        for name, (fit_task, method, warm_up) in fits.items():
            _, band, row = six_points.fit_and_compare(fit_task, task, method, warm_up, config.seed)
            bands[activation, name], rows[f"{activation}: {name}"] = band, row
            on_progress(1 / len(fits) / len(config.activations))
    return {"rows": rows, "bands": bands}


def figures(config: Config, results: Results) -> tuple[Figure, ...]:
    """Return the figure of the `results` with `config`."""
    return (
        Figure(
            name="figure_1",
            title="Figure 1: five methods on six points",
            paper="A network with one wide hidden layer is fitted to six points. The exact answer is a Gaussian "
            "process. Hamiltonian Monte Carlo comes close to this process but does not scale. Mean-field variational "
            "inference and MC dropout lose the correlations between parameters and are a poor substitute. Anchored "
            "ensembles are a practical way to come close.",
            picture=draw(config, results),
            description="A row of panels for each activation, one for each method: the six points, the mean and bands "
            "of one to three standard deviations. The bands of the process, of Hamiltonian Monte Carlo and of anchored "
            "ensembles open between the points; those of MC dropout hardly do.",
            claims=claims(config, results["rows"]),
            tables=(six_points.table(results["rows"]),),
            notes=(
                "The paper gives neither its points nor its settings; the points and settings here are ours, and are "
                "the same for all methods. The s.d. ratio is the standard deviation (s.d.) of a method divided by that "
                "of the process. “Close” means that the mean is within "
                f"{CLOSE_MEAN} s.d. of the process (root mean square), and the s.d. ratio over the whole grid within "
                f"{CLOSE_SPREAD} of 1. “Too narrow between the points” means an s.d. ratio below {TOO_NARROW} there.",
                "Variational inference is tested twice. In a wide network, six points are too few to move thousands of "
                "weights away from their prior, and variational inference reverts to the prior; a narrow network may "
                "show what the paper describes.",
                "Anchored members are tested twice as well. As networks grow wide, members with only the last layer "
                "trained converge to this process, and members with all layers trained converge to another process.",
            ),
        ),
    )


def claims(config: Config, rows: dict[str, Row]) -> tuple[Claim, ...]:
    """Return the paper's claims about the figure, for each activation of `config`, tested with the distances `rows`."""
    tested = []
    for activation in config.activations:
        by_method = {name: rows[f"{activation}: {name}"] for name in (*methods(config), NARROW)}
        for name in ("variational inference", NARROW, "MC dropout"):
            text = f"{activation}: {NAMES_IN_CLAIMS.get(name, name)} is too narrow between the points."
            condition = below(*value_and_error(by_method[name], "std_ratio_between"), TOO_NARROW)
            ratio = measured(by_method[name], "std_ratio_between")
            tested.append(Claim.tested(text, [condition], f"s.d. ratio between the points {ratio}"))
        for name in ("Hamiltonian Monte Carlo", "anchored", "anchored, last layer"):
            row = by_method[name]
            conditions = (
                below(*value_and_error(row, "mean_gap"), CLOSE_MEAN),
                *within(*value_and_error(row, "std_ratio"), 1, CLOSE_SPREAD),
            )
            numbers = f"mean gap {measured(row, 'mean_gap')} s.d., s.d. ratio {measured(row, 'std_ratio')}"
            text = f"{activation}: {NAMES_IN_CLAIMS.get(name, name)} is close to the process."
            tested.append(Claim.tested(text, conditions, numbers, is_main="anchored" in name))
        for name in ("variational inference", "MC dropout"):
            text = f"{activation}: {NAMES_IN_CLAIMS['anchored']} is closer to the process than {name}."
            (ours, error), (theirs, other_error) = (
                value_and_error(by_method[one], "wasserstein") for one in ("anchored", name)
            )
            condition = above(theirs - ours, (error**2 + other_error**2) ** 0.5, 0)
            ours_text, theirs_text = (measured(by_method[one], "wasserstein", 3) for one in ("anchored", name))
            tested.append(Claim.tested(text, [condition], f"2-Wasserstein {ours_text} against {theirs_text}"))
    return tuple(tested)


def draw(config: Config, results: Results) -> bytes:
    """Return the picture of `results` as PNG: for each activation of `config` two rows of panels, one per method."""
    import matplotlib.pyplot as plt

    from anchored.plots import BandDisplay

    names = list(methods(config))[:5]
    figure = plt.figure(figsize=(11, 7 * len(config.activations)), layout="constrained")
    parts = figure.subfigures(len(config.activations), 1, squeeze=False)[:, 0]
    for part, activation in zip(parts, config.activations, strict=True):
        task = SixPoints(activation, config.width)
        part.suptitle(f"{activation}, {config.width:,} units", fontsize=14)
        *panels, for_legend = part.subplots(2, 3, sharex=True, sharey=True).ravel()
        for ax, name in zip(panels, names, strict=True):
            mean, std = results["bands"][activation, name]
            BandDisplay(task.grid, mean, std, x_data=INPUTS, y_data=TARGETS).plot(ax)
            ax.get_legend().remove()
            distances = results["rows"][f"{activation}: {name}"]["distances"]
            ax.set_title(name, fontsize=13)
            ax.set(ylim=(-3, 3), xlabel="x", ylabel="y")
            note = f"s.d. ratio {distances['std_ratio']:.2f}\n2-Wasserstein {distances['wasserstein']:.2f}"
            ax.text(0.02, 0.02, note, transform=ax.transAxes, fontsize=11, va="bottom")
        for_legend.axis("off")
        for_legend.legend(*panels[0].get_legend_handles_labels(), loc="center", frameon=False, fontsize=12)
    return as_png(figure)
