"""What the page of curves shows: an anchored ensemble of one-dimensional data, beside an exact process or a method.

Nothing here depends on Bokeh, so that tests can compare the numbers with those of the library.

Points are padded with rows of weight zero, which have no effect, so that shapes stay the same when a point is added,
and nothing has to be compiled.
"""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from sklearn.base import clone

from anchored import AnchoredRegressor, certify, checks
from anchored.certification.distances import distances
from anchored.errors import ArgumentError
from anchored.exact.kernels import kernel_of, tangent_kernel
from anchored.exact.wide_limit import WideLimit
from anchored.inference.posterior import MemberPosterior, Method
from anchored.inference.schedule import half_cosine
from anchored.inference.solvers.first_order import FirstOrder
from anchored.methods import (
    HMC,
    AnchoredEnsemble,
    BootstrapEnsemble,
    DeepEnsemble,
    MCDropout,
    RandomizedPrior,
    RegularizedEnsemble,
    UnregularizedEnsemble,
    VariationalInference,
)
from anchored.model.networks import ACTIVATIONS
from anchored.playground import continuation
from anchored.playground.points import MAX_POINTS, Points
from anchored.types import Data

N_EPOCHS = 1000  # of a fit from the anchors
N_CONTINUED = 200  # epochs of further training after a point has moved
N_FRAMES = 80  # pictures that are shown while members are trained
PROCESSES = {"process": False, "tangent process": True}  # whether each uses the tangent kernel
METHODS: dict[str, Callable[[], Method]] = {
    "randomized targets": lambda: AnchoredEnsemble(10, "randomized", solver=FirstOrder(learning_rate=0.01)),
    "deep ensemble": lambda: DeepEnsemble(10),
    "regularized ensemble": lambda: RegularizedEnsemble(10),
    "unregularized ensemble": lambda: UnregularizedEnsemble(10),
    "bootstrap ensemble": lambda: BootstrapEnsemble(10),
    "randomized prior": lambda: RandomizedPrior(10),
    "MC dropout": lambda: MCDropout(),
    "variational inference": lambda: VariationalInference(),
    "Hamiltonian Monte Carlo": lambda: HMC(n_chains=2, n_warmup=300, n_samples=300),
}
LIMITS = {  # smallest and largest value of each number among the settings
    "n_members": (2, 50),
    "width": (1, 300),
    "depth": (1, 3),
    "noise": (0.01, 2.0),
    "prior_scale": (0.1, 10.0),
    "kappa": (0.0, 4.0),
    "seed": (0, 2**31 - 2),
}


@dataclass(frozen=True)
class CurveSettings:
    """The controls of the page."""

    n_members: int = 10
    width: int = 50  # units of each hidden layer
    depth: int = 1  # number of hidden layers
    activation: str = "gelu"
    noise: float = 0.1  # standard deviation of an observation, in units of y
    prior_scale: float = 2.0
    anchoring: str = "prior"  # or "randomized", or "kappa"
    kappa: float = 1.0  # variance of the anchors, relative to that of the prior, if anchoring is "kappa"
    trainable: str = "all"  # or "last_layer"
    other: str = "process"  # what the second panel shows: a name in PROCESSES or METHODS
    seed: int = 0

    def check(self) -> None:
        """Raise an ArgumentError if a value cannot be used."""
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if isinstance(getattr(type(self), name), int):
                checks.whole(name, value, int(least))
            if not checks.is_real(value) or not least <= value <= most:
                raise ArgumentError(name, f"must lie between {least:g} and {most:g}, got {value!r}")
        checks.one_of("activation", self.activation, ACTIVATIONS)
        checks.one_of("anchoring", self.anchoring, ("prior", "randomized", "kappa"))
        checks.one_of("trainable", self.trainable, ("all", "last_layer"))
        checks.one_of("other", self.other, (*PROCESSES, *METHODS))

    def arguments(self) -> dict[str, object]:
        """Return the arguments of the `AnchoredRegressor` that the settings describe."""
        return {
            "n_estimators": self.n_members,
            "hidden_layer_sizes": (self.width,) * self.depth,
            "activation": self.activation,
            "noise_variance": round(float(self.noise) ** 2, 8),
            "prior_scale": float(self.prior_scale),
            "anchoring": float(self.kappa) if self.anchoring == "kappa" else self.anchoring,
            "trainable": self.trainable,
            "max_iter": N_EPOCHS,
            "batch_size": MAX_POINTS,
            "random_state": self.seed,
        }


class Curve(NamedTuple):
    """What a panel draws, in units of y, at the inputs of a grid."""

    mean: np.ndarray  # (points,)
    std: np.ndarray  # (points,) standard deviation of the function
    total_std: np.ndarray  # (points,) standard deviation of an observation
    functions: np.ndarray  # (functions, points): members, or draws


@dataclass(frozen=True)
class CurveFit:
    """An ensemble and the points that it has been trained on."""

    model: AnchoredRegressor  # a fitted estimator, whose members may have been trained further
    points: Points  # (points, 2)
    is_continued: bool = False  # whether members were first fitted to other points, whose standardisation then remains

    @property
    def is_closed_form(self) -> bool:
        """Whether the last layer is solved in closed form, and nothing else is trained."""
        return self.model.trainable == "last_layer"

    def data(self) -> Data:
        """Return the points, standardised, in float64."""
        return continuation.data_of(self.model, self.points[:, :1], self.points[:, 1])

    def curve(self, grid: np.ndarray) -> Curve:
        """Return the predictions of the ensemble at the inputs `grid`, (points,)."""
        predictive = self.model.predict_dist(grid[:, None])
        outputs = self.model.posterior_.outputs(self.model._standardised_inputs(grid[:, None]))[..., 0]
        units = self.model._target_units()
        return Curve(
            np.ravel(predictive.mean),
            np.sqrt(np.ravel(predictive.epistemic_variance)),
            np.ravel(predictive.std),
            outputs * units.scale + units.mean,
        )


def fit_anew(settings: CurveSettings, points: Points) -> CurveFit:
    """Return a fit of all members from their anchors: `AnchoredRegressor(...).fit`."""
    settings.check()
    require_two(points)
    return CurveFit(AnchoredRegressor(**settings.arguments()).fit(points[:, :1], points[:, 1]), points)


def fit_like(fit: CurveFit, points: Points) -> CurveFit:
    """Return a fit of all members from their anchors, with the arguments of the model of `fit`."""
    require_two(points)
    return CurveFit(clone(fit.model).fit(points[:, :1], points[:, 1]), points)


def arguments_of(fit: CurveFit) -> dict[str, object]:
    """Return the arguments of the model of `fit` that are not the defaults."""
    defaults = AnchoredRegressor().get_params()
    return {name: value for name, value in fit.model.get_params().items() if repr(value) != repr(defaults[name])}


def require_two(points: Points) -> None:
    """Raise an ArgumentError unless there are at least two points."""
    if len(points) < 2:
        raise ArgumentError("points", "must be at least two", "click into the left picture to add one")


def continued(fit: CurveFit, points: Points) -> CurveFit:
    """Return the ensemble after its members have been trained further, on other points.

    If the last layer is solved in closed form, it is solved again instead.
    """
    require_two(points)
    if fit.is_closed_form:
        return CurveFit(copy.copy(fit.model).fit(points[:, :1], points[:, 1]), points)
    solver = continuation.solver_of(fit.model, N_CONTINUED, decay=True)
    return CurveFit(continuation.trained_further(fit.model, points[:, :1], points[:, 1], solver), points, True)


def prepare(settings: CurveSettings, fit: CurveFit) -> None:
    """Compile what the next points will need, so that they are drawn at once.

    These are the two programs that continue a fit (without and with a state of the optimiser), and the program of a
    fit of more rows, since rows are padded to multiples of eight.
    """
    if not fit.is_closed_form:
        continued(continued(fit, fit.points), fit.points)
    n_rows = 8 * (len(fit.points) // 8 + 1)
    if n_rows + 8 <= MAX_POINTS:
        fit_anew(settings, np.column_stack([np.linspace(-1, 1, n_rows + 1), np.zeros(n_rows + 1)]))


def training_frames(fit: CurveFit) -> Iterator[tuple[int, CurveFit]]:
    """Yield the number of epochs so far and the ensemble after them, from its anchors to the end of its training.

    Members take the steps of a fit, with the learning rate constant between two pictures.
    """
    training = fit.model._training()
    posterior = fit.model.posterior_
    record = replace(posterior.record, training=replace(training, optimizer_state=None))
    at_anchors = MemberPosterior(posterior.model, training.anchors, record)
    shown = CurveFit(continuation.with_posterior(fit.model, at_anchors), fit.points, is_continued=True)
    yield 0, shown
    ends = np.unique(np.ceil(N_EPOCHS * (np.arange(1, N_FRAMES + 1) / N_FRAMES) ** 2).astype(int))
    for start, stop in zip([0, *ends[:-1]], ends):
        solver = continuation.solver_of(fit.model, int(stop - start), decay=False)
        rate = solver.learning_rate * float(half_cosine(np.asarray((start + stop) / 2 / N_EPOCHS)))
        model = continuation.trained_further(
            shown.model, fit.points[:, :1], fit.points[:, 1], replace(solver, learning_rate=rate)
        )
        shown = CurveFit(model, fit.points, is_continued=True)
        yield int(stop), shown


def other_curve(fit: CurveFit, other: str, grid: np.ndarray) -> Curve:
    """Return what the second panel shows: the exact process, or a method with the same prior, noise and points.

    Parameters
    ----------
    fit : CurveFit
        The ensemble of the first panel, whose units, prior and noise are used.
    other : str
        A name in PROCESSES or METHODS.
    grid : (points,) array
        Inputs.
    """
    inputs = np.asarray(fit.model._standardised_inputs(grid[:, None])[:], np.float64)
    if other in PROCESSES:
        return _process(fit, inputs, PROCESSES[other])
    posterior = fit.model.posterior_
    data = Data(*(np.asarray(part, posterior.dtype) for part in fit.data()))
    found = METHODS[other]().fit(jax.random.key(fit.model.seed_), posterior.target, data)
    predictive = found.predict_regression(inputs.astype(found.dtype))
    functions = found.outputs(inputs.astype(found.dtype))[:10, :, 0]
    return _in_units_of_y(
        fit, predictive.mean[:, 0], predictive.epistemic_variance[:, 0], predictive.aleatoric_variance[:, 0], functions
    )


def _process(fit: CurveFit, inputs: np.ndarray, use_tangent_kernel: bool) -> Curve:
    """Return the posterior of the network with infinitely wide layers, and ten functions drawn from it."""
    target, data = fit.model.posterior_.target, fit.data()
    kernel = tangent_kernel(kernel_of(target)) if use_tangent_kernel else kernel_of(target)
    noise = float(np.ravel(target.likelihood.noise_variance)[0])
    exact = WideLimit(kernel, kernel, noise, noisy_targets=True)  # a posterior, since both kernels are the same
    mean, covariance = exact.distribution(data.inputs, data.targets, inputs, data.weights)
    values, vectors = np.linalg.eigh(covariance)
    normals = np.random.default_rng(0).standard_normal((10, len(inputs)))
    draws = mean + (normals * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return _in_units_of_y(fit, mean, np.maximum(np.diag(covariance), 0), np.full(len(mean), noise), draws)


def _in_units_of_y(
    fit: CurveFit, mean: np.ndarray, variance: np.ndarray, noise_variance: np.ndarray, functions: np.ndarray
) -> Curve:
    """Return a Curve, all of whose arrays are converted to units of y."""
    units = fit.model._target_units()
    total_std = np.sqrt(variance + noise_variance)
    return Curve(
        mean * units.scale + units.mean,
        np.sqrt(variance) * units.scale,
        total_std * units.scale,
        functions * units.scale + units.mean,
    )


def compared(ensemble: Curve, other: Curve) -> dict[str, float]:
    """Return the distances of the first panel from the second, by the names that certificates use."""
    noise_variance = np.maximum(other.total_std**2 - other.std**2, np.finfo(float).tiny)
    return distances(other.mean, other.std, ensemble.mean, ensemble.std, noise_variance)


def finding(fit: CurveFit, grid: np.ndarray) -> str:
    """Return the finding, in a sentence, of the ensemble's certificate at the inputs `grid`, (points,)."""
    inputs = np.asarray(fit.model._standardised_inputs(grid[:, None])[:], np.float64)
    data = fit.data()
    return certify(fit.model.posterior_, data.inputs, data.targets, inputs, data.weights).summary
