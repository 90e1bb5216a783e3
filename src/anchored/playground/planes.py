"""What the page of planes shows: class probabilities and uncertainty of an anchored classifier of two inputs."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from anchored import AnchoredClassifier, checks
from anchored.errors import ArgumentError
from anchored.model.networks import ACTIVATIONS
from anchored.playground import continuation
from anchored.playground.points import MAX_POINTS, Points

N_CLASSES = 4  # largest number of classes
N_EPOCHS = 400  # of a fit from the anchors
N_CONTINUED = 200  # epochs of further training after a point has moved
RANGE = (-3.0, 3.0)  # of both inputs
LIMITS = {"n_members": (2, 50), "width": (1, 300), "depth": (1, 3), "prior_scale": (0.1, 10.0), "seed": (0, 2**31 - 2)}


@dataclass(frozen=True)
class PlaneSettings:
    """The controls of the page."""

    n_members: int = 10
    width: int = 50  # units of each hidden layer
    depth: int = 2  # number of hidden layers
    activation: str = "gelu"
    prior_scale: float = 3.0
    seed: int = 0

    def check(self) -> None:
        """Raise an ArgumentError if a value cannot be used."""
        for name, (least, most) in LIMITS.items():
            value = getattr(self, name)
            if name != "prior_scale":
                checks.whole(name, value, int(least))
            if not checks.is_real(value) or not least <= value <= most:
                raise ArgumentError(name, f"must lie between {least:g} and {most:g}, got {value!r}")
        checks.one_of("activation", self.activation, ACTIVATIONS)

    def arguments(self) -> dict[str, object]:
        """Return the arguments of the `AnchoredClassifier` that the settings describe."""
        return {
            "n_estimators": self.n_members,
            "hidden_layer_sizes": (self.width,) * self.depth,
            "activation": self.activation,
            "temperature": 1.0,
            "prior_scale": float(self.prior_scale),
            "max_iter": N_EPOCHS,
            "batch_size": MAX_POINTS,
            "random_state": self.seed,
        }


class Maps(NamedTuple):
    """What the page draws, on a square grid; the first axis is the second input."""

    probabilities: np.ndarray  # (points, points, classes)
    epistemic: np.ndarray  # (points, points) disagreement between members, in nats
    classes: np.ndarray  # (classes,) their numbers, from 0


@dataclass(frozen=True)
class PlaneFit:
    """A classifier and the points that it has been trained on."""

    model: AnchoredClassifier
    points: Points  # (points, 3): two inputs and the number of a class
    is_continued: bool = False  # whether members were first fitted to other points

    def maps(self, n_grid: int) -> Maps:
        """Return the maps on a grid of `n_grid` × `n_grid` points."""
        axis = np.linspace(*RANGE, n_grid)
        x, y = np.meshgrid(axis, axis)
        predicted = self.model.predict_dist(np.column_stack([x.ravel(), y.ravel()]))
        shape = (n_grid, n_grid)
        return Maps(
            predicted.probabilities.reshape(*shape, -1),
            np.reshape(predicted.epistemic_entropy, shape),
            np.asarray(self.model.classes_, int),
        )


def require_two_classes(points: Points) -> None:
    """Raise an ArgumentError unless there are points of at least two classes."""
    if len(np.unique(points[:, 2])) < 2:
        raise ArgumentError("points", "must be of at least two classes", "choose another class, and add a point of it")


def checked_classes(points: Points) -> Points:
    """Return `points`, or raise an ArgumentError if a point has no valid class."""
    if not np.isin(points[:, 2], np.arange(N_CLASSES)).all():
        raise ArgumentError("points", f"must have classes 1 to {N_CLASSES}")
    return points


def fit_anew(settings: PlaneSettings, points: Points) -> PlaneFit:
    """Return a fit of all members from their anchors: `AnchoredClassifier(...).fit`."""
    settings.check()
    require_two_classes(points)
    model = AnchoredClassifier(**settings.arguments()).fit(points[:, :2], points[:, 2].astype(int))
    return PlaneFit(model, points)


def continued(settings: PlaneSettings, fit: PlaneFit, points: Points) -> PlaneFit:
    """Return the classifier after its members have been trained further, on other points.

    If the points have other classes than before, all members are trained anew, since the network has one output for
    each class.
    """
    require_two_classes(points)
    if not np.array_equal(np.unique(points[:, 2]), fit.model.classes_):
        return fit_anew(settings, points)
    solver = continuation.solver_of(fit.model, N_CONTINUED, decay=True)
    labels = points[:, 2].astype(int)
    return PlaneFit(continuation.trained_further(fit.model, points[:, :2], labels, solver), points, True)


def prepare(settings: PlaneSettings, fit: PlaneFit) -> None:
    """Compile what the next points will need, so that they are drawn at once."""
    continued(settings, continued(settings, fit, fit.points), fit.points)


def _clusters(centres: list[tuple[float, float]], n: int, spread: float, seed: int) -> Points:
    """Return `n` normal points of class k about each of `centres`, with the standard deviation `spread`."""
    rng = np.random.default_rng(seed)
    parts = [np.column_stack([rng.normal(c, spread, (n, 2)), np.full(n, k)]) for k, c in enumerate(centres)]
    return np.concatenate(parts)


def _moons() -> Points:
    """Return 14 points of each of two classes, on two interleaved half circles."""
    angle = np.linspace(0, np.pi, 14)
    rng = np.random.default_rng(0)
    upper = np.column_stack([1.2 * np.cos(angle) - 0.5, 1.2 * np.sin(angle) - 0.2, np.zeros(14)])
    lower = np.column_stack([0.7 - 1.2 * np.cos(angle), 0.3 - 1.2 * np.sin(angle), np.ones(14)])
    points = np.concatenate([upper, lower])
    points[:, :2] += 0.1 * rng.standard_normal((28, 2))
    return points


def _ring() -> Points:
    """Return 8 points of class 0, and 16 points of class 1 on a circle around them."""
    angle = np.linspace(0, 2 * np.pi, 17)[:-1]
    inner = _clusters([(0.0, 0.0)], 8, 0.25, 1)
    return np.concatenate([inner, np.column_stack([1.7 * np.cos(angle), 1.7 * np.sin(angle), np.ones(16)])])


PRESETS = {  # points by the name of the preset
    "Two moons": _moons(),
    "Three clusters": _clusters([(-1.3, -1.0), (1.3, -1.0), (0.0, 1.4)], 8, 0.35, 2),
    "A ring": _ring(),
    "Four corners": _clusters([(-1.2, -1.2), (1.2, 1.2), (1.2, -1.2), (-1.2, 1.2)], 6, 0.3, 3),
}
