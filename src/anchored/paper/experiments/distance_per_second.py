"""Distance to the exact posterior against time, for every method, on two tasks.

The exact posterior is the Gaussian process of an infinitely wide network. The distance is the 2-Wasserstein distance
between normal marginals, averaged over points. Every method is run with growing budgets, each from the start, after a
warm-up that compiles its programs, so that times are without compilation. The process itself has distance 0.
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
from anchored.inference.solvers import blocks
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
from anchored.paper.findings import Claim, Condition, Figure, Progress, Table, Verdict, above, no_progress
from anchored.plots import as_png
from anchored.types import Data

OURS = "anchored, last layer"
SAMPLER = "Hamiltonian Monte Carlo"
RIVALS = (
    "variational inference",
    "MC dropout",
    "randomised prior functions",
    "unregularised",
    "regularised towards zero",
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
    """Time and distance of a method with one budget."""

    seconds: float  # time of the fit, without compilation
    distance: float
    error: float = 0.0  # standard error of the distance, over members or draws


Budgets = tuple[Method | None, list[Method]]  # the warm-up, and the method with growing budgets
Curves = dict[str, dict[str, list[Point]]]  # by task and method


@dataclass(frozen=True)
class FriedmanTable:
    """A table of Friedman's first function, which depends on five of its ten columns."""

    n_rows: int = 500  # number of training rows
    width: int = 200  # number of hidden units
    noise_variance: float = 0.05  # of standardised targets
    prior_scale: float = 2.0  # of the first layer
    n_points: int = 200  # at which methods are compared

    def _rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Return standardised X and y of the training rows, followed by the points."""
        X, y = make_friedman1(self.n_rows + self.n_points, noise=1.0, random_state=0)
        return (X - 0.5) * 12**0.5, (y - y.mean()) / y.std()

    @property
    def grid_rows(self) -> np.ndarray:
        """The inputs at which methods are compared, (points, columns); they are not training rows."""
        return self._rows()[0][self.n_rows :]

    def data(self) -> Data:
        """Return the rows to train on."""
        X, y = self._rows()
        parts = (X[: self.n_rows], y[: self.n_rows, None], np.ones((self.n_rows, 1)))
        return Data(*(part.astype(np.float32) for part in parts))

    def model(self) -> BayesianModel:
        """Return the network with one hidden layer of ReLUs, the prior of `layered_prior` and a Gaussian likelihood."""
        network = MLP((self.width,), 1)
        params = network.init(jax.random.key(0), self.grid_rows[:1])
        prior = layered_prior(network, params, default_layer_scales(network, self.prior_scale))
        return BayesianModel(network, prior, Gaussian(np.array([self.noise_variance], np.float32)))


@dataclass(frozen=True)
class Config:
    """Tasks, and the budgets of each method."""

    tasks: tuple[str, ...] = ("six points", "table")  # names of the tasks that are run
    members: tuple[int, ...] = (5, 20, 100)  # numbers of members of an ensemble, for the six points
    max_iter: int = 6000  # number of epochs of ensembles that are trained with Adam
    draws: tuple[int, ...] = (10, 15, 20, 30, 40, 50, 70, 100, 150, 300)  # of each of two chains; as many for warm-up
    table_members: tuple[int, ...] = (5, 15, 50)  # as `members`, for the table
    table_max_iter: int = 500  # as `max_iter`, for the table
    table_draws: tuple[int, ...] = (10, 20, 40)  # as `draws`, for the table
    steps: tuple[int, ...] = (300, 1000, 3000)  # of variational inference and MC dropout
    max_sgd_steps: int = 4096  # of early-stopped members, which need more steps than Adam
    table: FriedmanTable = FriedmanTable()  # the second task
    width: int = 1000  # of the six points' network
    seed: int = 0  # random seed of the methods


FULL = Config()
QUICK = Config(
    ("six points",), members=(5, 20), max_iter=200, draws=(30,), steps=(200, 400), max_sgd_steps=128, width=50
)


def budgets(config: Config, members: tuple[int, ...], draws: tuple[int, ...], max_iter: int) -> dict[str, Budgets]:
    """Return each method with growing budgets, by name.

    Parameters
    ----------
    config
        The configuration, with the numbers of steps of methods that are neither ensembles nor samplers.
    members
        Numbers of members of ensembles.
    draws
        Numbers of draws of the sampler.
    max_iter
        Number of epochs of ensembles.
    """
    adam = FirstOrder(max_iter=max_iter, learning_rate=0.01)
    short = replace(adam, max_iter=32)
    sgd = FirstOrder("sgd", 1.0, decay=False)  # `fit` reduces the learning rate to what the curvature allows
    last_layer = AnchoredEnsemble(2, "randomized", "last_layer")
    all_layers = AnchoredEnsemble(2, "randomized", solver=GaussNewton())
    by_members: dict[str, Callable[[int, FirstOrder], Method]] = {
        OURS: lambda m, _: replace(last_layer, n_estimators=m),
        "anchored, all layers": lambda m, _: replace(all_layers, n_estimators=m),
        "randomised prior functions": lambda m, solver: RandomizedPrior(m, solver=solver),
        "bootstrap": lambda m, solver: BootstrapEnsemble(m, solver),
        "regularised towards zero": lambda m, solver: RegularizedEnsemble(m, solver),
        "unregularised": lambda m, solver: UnregularizedEnsemble(m, solver),
        "deep ensemble": lambda m, solver: DeepEnsemble(m, solver),
        "early stopped": lambda m, solver: EarlyStoppedEnsemble(
            m, solver=replace(sgd, max_iter=32 if solver is short else config.max_sgd_steps)
        ),
    }
    growing: dict[str, Budgets] = {
        name: (make(5, short), [make(m, adam) for m in members]) for name, make in by_members.items()
    }
    return {
        **{name: growing[name] for name in list(growing)[:2]},
        SAMPLER: (None, [HMC(2, n, n) for n in draws]),  # each budget is a different program, so there is no warm-up
        "variational inference": (VariationalInference(200), [VariationalInference(n) for n in config.steps]),
        "MC dropout": (MCDropout(max_iter=32), [MCDropout(max_iter=n) for n in config.steps]),
        **{name: growing[name] for name in list(growing)[2:]},
        EXACT: (GaussianProcess(), [GaussianProcess()]),
    }


def run(config: Config, on_progress: Progress = no_progress) -> Curves:
    """Run every method on every task of `config`, and return a point for each budget.

    `on_progress` is called with fractions of the work.
    """
    tasks: dict[str, tuple[Task, dict[str, Budgets]]] = {
        "six points": (SixPoints(width=config.width), budgets(config, config.members, config.draws, config.max_iter)),
        "table": (config.table, budgets(config, config.table_members, config.table_draws, config.table_max_iter)),
    }
    curves: Curves = {}
    for title in config.tasks:
        task, methods_by_name = tasks[title]
        curves[title] = {}
        for name, (warm_up, methods) in methods_by_name.items():
            if name == SAMPLER:
                compile_samplers(task, methods, config.seed)
            curves[title][name] = measure(task, warm_up, methods, config.seed)
            on_progress(1 / len(config.tasks) / len(methods_by_name))
    return curves


def figures(config: Config, curves: Curves) -> tuple[Figure, ...]:
    """Return one figure with both tasks of `config`, from the `curves` of all methods."""
    return (
        Figure(
            name="distance_per_second",
            title="Distance to the exact posterior per second",
            paper="This is not in the paper. The paper says that exact inference does not scale, and that anchored "
            "ensembles are a practical way to come close. Here the distance to the exact process and the time are "
            "measured for every method with growing budgets, on the six points of figure 1 and on a table of "
            f"{config.table.n_rows} rows.",
            picture=draw(curves),
            description="Two panels: distance against seconds on logarithmic axes, with a line for each method. On the "
            "six points, the anchored ensemble with the last layer trained is the closest after the shortest time.",
            claims=claims(curves["six points"], max(config.members)),
            tables=tuple(table(title, methods) for title, methods in curves.items()),
            notes=(
                "Times are without compilation, and depend on the machine and on other programs that run at the same "
                "time. Distances are the same in every run.",
            ),
            ours=True,
        ),
    )


def compile_samplers(task: Task, methods: list[Method], seed: int) -> None:
    """Compile the programs of all samplers on all cores, before they are timed; arguments are as in `measure`."""
    key, model, data = jax.random.key(seed), task.model(), task.data()
    blocks.run(lambda sampler: sampler.compiled(key, model, data), [m for m in methods if isinstance(m, HMC)])


def measure(task: Task, warm_up: Method | None, methods: list[Method], seed: int) -> list[Point]:
    """Fit `methods`, one method with growing budgets, to `task`, and return a point for each.

    `warm_up` and `seed` are as in `timed_fit`.
    """

    def distance(mean: np.ndarray, std: np.ndarray) -> list[float]:
        return [distances(*exact_marginals(task), mean, std, task.noise_variance)["wasserstein"]]

    points = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # small budgets are too short on purpose
        for method in methods:
            fit = timed_fit(task, method, warm_up, seed)
            warm_up = None  # the programs are compiled now
            (error,) = standard_errors(task, fit.posterior, distance)
            points.append(Point(fit.seconds, distance(*marginals(task, fit.posterior))[0], float(error)))
    return points


def claims(curves: dict[str, list[Point]], n_members: int) -> tuple[Claim, ...]:
    """Return the claims about the six points: anchored ensembles are faster than the sampler, and closer than others.

    `curves` has the points of each method; `n_members` is the largest number of members.
    """
    tested = []
    for name in (OURS, "anchored, all layers"):
        ours = curves[name][-1]
        # Sorted, since a longer run may take less time on a busy machine.
        least, most = sorted(s / ours.seconds for s in time_to_reach(ours.distance, curves[SAMPLER]))
        between = f"{least:.0f} to {most:.0f}" if np.isfinite(most) else f"more than {least:.0f}"
        text = f"distance {_as_text(ours)} after {ours.seconds:.2f} s; the sampler needs {between} times as long"
        claim = f"{name}: {n_members} members reach their distance 20 times faster than {SAMPLER}."
        tested.append(Claim.tested(claim, [above(least, 0, 20)], text, timed=True))
        theirs = {rival: min(curves[rival], key=lambda point: point.distance) for rival in RIVALS}
        conditions = {rival: _is_closer(ours, point) for rival, point in theirs.items()}
        not_farther = [
            f"{rival} {_as_text(theirs[rival])}" for rival, c in conditions.items() if c.verdict is not Verdict.HOLDS
        ]
        nearest = min(theirs, key=lambda rival: theirs[rival].distance)
        text = (
            f"{_as_text(ours)}; the closest of the {len(RIVALS)} others is {nearest} with {_as_text(theirs[nearest])}"
        )
        if not_farther:
            text += f"; closer, or as close within two standard errors: {', '.join(not_farther)}"
        claim = f"{name}: closer to the process than all other methods except the sampler, whatever their budgets."
        tested.append(Claim.tested(claim, conditions.values(), text))
    return tuple(tested)


def _is_closer(point: Point, other: Point) -> Condition:
    """Return the condition that `point` is closer to the process than `other`."""
    return above(other.distance - point.distance, np.hypot(point.error, other.error), 0)


def _as_text(point: Point) -> str:
    """Return the distance with its standard error."""
    return f"{point.distance:.4f} ± {point.error:.4f}"


def time_to_reach(distance: float, points: list[Point]) -> tuple[float, float]:
    """Return bounds of the time in which a method with these `points` comes within `distance` of the process.

    They are the times of the last budget that does not come so close, and of the first budget that does.
    """
    reached = [point.distance <= distance for point in points]
    if True not in reached:
        return points[-1].seconds, np.inf
    first = reached.index(True)
    return (points[first - 1].seconds if first > 0 else 0.0), points[first].seconds


def draw(curves: Curves) -> bytes:
    """Return the picture of `curves` as PNG, with a panel for each task."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(1 + 5.5 * len(curves), 5), layout="constrained", squeeze=False)
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
    axes[0, -1].legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return as_png(figure)


def table(title: str, methods: dict[str, list[Point]]) -> Table:
    """Return a table of the largest budget of each of `methods` on the task `title`, the closest method first."""
    largest = {name: points[-1] for name, points in methods.items()}
    names = sorted(largest, key=lambda name: largest[name].distance)
    rows = ((name, _as_text(largest[name]), f"{largest[name].seconds:.3f}") for name in names)
    return Table(("method", "2-Wasserstein", "seconds"), tuple(rows), f"{title}: the largest budgets", ("seconds",))
