"""Distance to the exact posterior against time, for every method, on two tasks.

The target is the Gaussian process of an infinitely wide network; the distance the mean, over points, of the
2-Wasserstein distance between marginal normals. Every method is run with growing budgets, each from scratch, after a
rehearsal that compiles its programs, so that compilation does not count. The process itself is at no distance, after
the time that its closed form takes.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning

from anchored.certification.distances import distances
from anchored.inference.posterior import Method
from anchored.methods import (
    HMC,
    AnchoredEnsemble,
    BootstrapEnsemble,
    DeepEnsemble,
    EarlyStoppedEnsemble,
    FirstOrder,
    GaussianProcess,
    GaussNewton,
    MCDropout,
    RandomizedPrior,
    RegularizedEnsemble,
    UnregularizedEnsemble,
    VariationalInference,
)
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import MLP
from anchored.paper.experiments.regression_tasks import (
    Task,
    exact_marginals,
    marginals,
    standard_errors,
    timed_fit,
)
from anchored.paper.experiments.six_points import SixPoints
from anchored.paper.findings import Claim, Figure, Progress, Table, no_progress
from anchored.plots import as_png
from anchored.types import Data

OURS = "anchored, last layer"
SAMPLER = "Hamiltonian Monte Carlo"
RIVALS = (
    "variational inference",
    "MC dropout",
    "randomised prior functions",
    "unregularised",
    "regularised to zero",
    "bootstrap",
    "deep ensemble",
    "early stopped",
)
EXACT = "exact process"
COLOURS = (
    "#08519c", "#4a90c2", "#222222", "#d9722e", "#5a9e6f", "#b03a5b", "#8a6fb0", "#888888", "#c9a227", "#3fa7a7",
    "#7a4a21",
)  # fmt: skip


class Point(NamedTuple):
    """One budget of a method."""

    seconds: float
    distance: float
    error: float = 0.0  # of the distance, over the members or draws


Budgets = tuple[Method | None, list[Method]]  # a short run that compiles the programs, and growing budgets
Curves = dict[str, dict[str, list[Point]]]  # by task and method


@dataclass(frozen=True)
class FriedmanTable:
    """Five hundred rows of Friedman's first function, ten columns of which five matter."""

    n_rows: int = 500
    width: int = 200
    noise_variance: float = 0.05  # of standardised targets
    prior_scale: float = 2.0
    n_points: int = 200

    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        X, y = make_friedman1(self.n_rows + self.n_points, noise=1.0, random_state=0)
        return (X - 0.5) * 12**0.5, (y - y.mean()) / y.std()

    @property
    def points(self) -> np.ndarray:
        """Where methods are compared: rows not trained on."""
        return self._rows()[0][self.n_rows :]

    def data(self) -> Data:
        """The rows to train on."""
        X, y = self._rows()
        parts = (X[: self.n_rows], y[: self.n_rows, None], np.ones((self.n_rows, 1)))
        return Data(*(part.astype(np.float32) for part in parts))

    def model(self) -> BayesianModel:
        """One hidden layer of ReLUs under the papers' prior."""
        network = MLP((self.width,), 1)
        params = network.init(jax.random.key(0), self.points[:1])
        prior = layered_prior(network, params, default_layer_scales(network, self.prior_scale))
        return BayesianModel(network, prior, Gaussian(np.array([self.noise_variance], np.float32)))


@dataclass(frozen=True)
class Config:
    """Budgets."""

    tasks: tuple[str, ...] = ("six points", "table")
    members: tuple[int, ...] = (5, 20, 100)
    max_iter: int = 6000
    draws: tuple[int, ...] = (10, 15, 20, 30, 40, 50, 70, 100, 150, 300)  # of two chains, after as long a warm-up
    table_members: tuple[int, ...] = (5, 15, 50)
    table_max_iter: int = 500
    table_draws: tuple[int, ...] = (10, 20, 40)
    steps: tuple[int, ...] = (300, 1000, 3000)
    most_equal_steps: int = 4096  # before early stopping, which needs more of them than Adam
    table: FriedmanTable = FriedmanTable()
    width: int = 1000  # of the six points' network
    seed: int = 0


FULL = Config()
QUICK = Config(
    ("six points",), members=(5, 20), max_iter=200, draws=(30,), steps=(200, 400), most_equal_steps=128, width=50
)


def budgets(config: Config, members: tuple[int, ...], draws: tuple[int, ...], max_iter: int) -> dict[str, Budgets]:
    """Each method with growing budgets: members of ensembles, draws of the sampler, steps of the others."""
    descent = FirstOrder(max_iter=max_iter, learning_rate=0.01)
    rehearsed = replace(descent, max_iter=32)
    equal_steps = FirstOrder("sgd", 1.0, decay=False)  # at most: the curvature bounds them
    last = AnchoredEnsemble(2, "randomized", "last_layer")
    all_layers = AnchoredEnsemble(2, "randomized", solver=GaussNewton())
    by_members: dict[str, Callable[[int, FirstOrder], Method]] = {
        OURS: lambda m, _: replace(last, n_estimators=m),
        "anchored, all layers": lambda m, _: replace(all_layers, n_estimators=m),
        "randomised prior functions": lambda m, solver: RandomizedPrior(m, solver=solver),
        "bootstrap": lambda m, solver: BootstrapEnsemble(m, solver),
        "regularised to zero": lambda m, solver: RegularizedEnsemble(m, solver),
        "unregularised": lambda m, solver: UnregularizedEnsemble(m, solver),
        "deep ensemble": lambda m, solver: DeepEnsemble(m, solver),
        "early stopped": lambda m, solver: EarlyStoppedEnsemble(
            m, solver=replace(equal_steps, max_iter=32 if solver is rehearsed else config.most_equal_steps)
        ),
    }
    grown: dict[str, Budgets] = {
        name: (make(5, rehearsed), [make(m, descent) for m in members]) for name, make in by_members.items()
    }
    return {
        **{name: grown[name] for name in list(grown)[:2]},
        SAMPLER: (None, [HMC(2, n, n) for n in draws]),  # each budget is a program of its own
        "variational inference": (VariationalInference(200), [VariationalInference(n) for n in config.steps]),
        "MC dropout": (MCDropout(max_iter=32), [MCDropout(max_iter=n) for n in config.steps]),
        **{name: grown[name] for name in list(grown)[2:]},
        EXACT: (GaussianProcess(), [GaussianProcess()]),
    }


def run(config: Config, on_progress: Progress = no_progress) -> Curves:
    """For each task and method, a point for each budget."""
    tasks: dict[str, tuple[Task, dict[str, Budgets]]] = {
        "six points": (SixPoints(width=config.width), budgets(config, config.members, config.draws, config.max_iter)),
        "table": (config.table, budgets(config, config.table_members, config.table_draws, config.table_max_iter)),
    }
    curves: Curves = {}
    for title in config.tasks:
        task, methods_by_name = tasks[title]
        curves[title] = {}
        for name, (rehearsal, methods) in methods_by_name.items():
            curves[title][name] = measure(task, rehearsal, methods, config.seed)
            on_progress(1 / len(config.tasks) / len(methods_by_name))
    return curves


def figures(config: Config, curves: Curves) -> tuple[Figure, ...]:
    """Both tasks in one picture."""
    return (
        Figure(
            name="distance_per_second",
            title="Distance to the exact posterior per second",
            paper="Not in the paper, which says that exact inference does not scale and that anchored ensembles are a "
            "practical way to come close. Every method with growing budgets, on the six points of figure 1 and on a "
            f"table of {config.table.n_rows} rows: how near it comes to the exact process, and how long it takes.",
            picture=draw(curves),
            description="Two panels, distance against seconds on logarithmic axes, a line for each method. On the six "
            "points the anchored ensemble with the last layer trained is nearest in the least time.",
            claims=claims(curves["six points"], max(config.members)),
            tables=tuple(table(title, methods) for title, methods in curves.items()),
            notes=(
                "Times are without compilation, on the machine named above; other programs beside this one change "
                "them. Distances are the same from run to run; ± is one standard error over the members or draws.",
            ),
            ours=True,
        ),
    )


def measure(task: Task, rehearsal: Method | None, methods: list[Method], seed: int) -> list[Point]:
    """A point for each budget of a method; `rehearsal` only compiles."""

    def distance(mean: np.ndarray, std: np.ndarray) -> list[float]:
        return [distances(*exact_marginals(task), mean, std, task.noise_variance)["wasserstein"]]

    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # small budgets are not enough, which is the point
        for method in methods:
            fit = timed_fit(task, method, rehearsal, seed)
            rehearsal = None  # it is compiled by now
            (error,) = standard_errors(task, fit.posterior, distance)
            found.append(Point(fit.seconds, distance(*marginals(task, fit.posterior))[0], float(error)))
    return found


def claims(curves: dict[str, list[Point]], n_members: int) -> tuple[Claim, ...]:
    """On the six points: anchored members reach their final distance far sooner than draws do, and are the closest."""
    found = []
    for name in (OURS, "anchored, all layers"):
        ours = curves[name][-1]
        # sorted, for on a busy machine the longer run may take less time
        least, most = sorted(s / ours.seconds for s in time_to_reach(ours.distance, curves[SAMPLER]))
        between = f"{least:.0f} to {most:.0f}" if np.isfinite(most) else f"more than {least:.0f}"
        text = f"distance {_told(ours)} after {ours.seconds:.2f} s; the sampler needs {between} times as long"
        sooner = f"{name}: {n_members} members are there 20 times sooner than {SAMPLER}."
        found.append(Claim.tested(sooner, least >= 20, text, timed=True))
        theirs = {rival: min(curves[rival], key=lambda point: point.distance) for rival in RIVALS}
        nearer = [f"{rival} {_told(point)}" for rival, point in theirs.items() if not _clearly_closer(ours, point)]
        nearest = min(theirs, key=lambda rival: theirs[rival].distance)
        text = f"{_told(ours)}; the nearest of the {len(RIVALS)} others is {nearest} with {_told(theirs[nearest])}"
        if nearer:
            text += f"; nearer, or as near to within two standard errors: {', '.join(nearer)}"
        closer = f"{name}: closer to the process than every other method but the sampler, whatever its budget."
        found.append(Claim.tested(closer, not nearer, text))
    return tuple(found)


def _clearly_closer(point: Point, other: Point) -> bool:
    return point.distance + 2 * np.hypot(point.error, other.error) < other.distance


def _told(point: Point) -> str:
    return f"{point.distance:.4f} ± {point.error:.4f}"


def time_to_reach(distance: float, points: list[Point]) -> tuple[float, float]:
    """Between which times a method comes this near: of the last budget that does not, and the first that does."""
    reached = [point.distance <= distance for point in points]
    if True not in reached:
        return points[-1].seconds, np.inf
    first = reached.index(True)
    return (points[first - 1].seconds if first > 0 else 0.0), points[first].seconds


def draw(curves: Curves) -> bytes:
    """A panel for each task."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(1 + 6 * len(curves), 5), layout="constrained", squeeze=False)
    for ax, (title, methods) in zip(axes[0], curves.items(), strict=True):
        ax.axvline(methods[EXACT][0].seconds, color="#222222", linestyle=":", label=f"{EXACT} (distance 0)")
        others = {name: points for name, points in methods.items() if name != EXACT}
        for colour, (name, points) in zip(COLOURS, others.items(), strict=True):
            seconds, distance, _ = np.array(points).T
            style = {"marker": "o", "markersize": 4, "linewidth": 2 if "anchored" in name else 1.2}
            ax.plot(seconds, distance, color=colour, label=name, **style)
        ax.set(xscale="log", yscale="log", xlabel="seconds, without compilation", ylabel="2-Wasserstein distance")
        ax.set_title(f"{title}: distance to the exact process", fontsize=11)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, -1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return as_png(figure)


def table(title: str, methods: dict[str, list[Point]]) -> Table:
    """The largest budget of each method, the nearest first."""
    last = {name: points[-1] for name, points in methods.items()}
    names = sorted(last, key=lambda name: last[name].distance)
    rows = ((name, _told(last[name]), f"{last[name].seconds:.3f}") for name in names)
    return Table(("method", "2-Wasserstein", "seconds"), tuple(rows), f"{title}: the largest budgets", ("seconds",))
