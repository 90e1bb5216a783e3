"""A plot of a function of one input with its uncertainty."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from anchored.plots.display import BAND_SHADES, INK, LINE, MEMBER, Display, finish
from anchored.types import RandomState

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False)
class BandDisplay(Display):
    """A plot of a function of one input: its mean, and bands of one to three standard deviations.

    Examples
    --------
    >>> from sklearn.gaussian_process import GaussianProcessRegressor
    >>> from anchored.plots import BandDisplay
    >>> model = GaussianProcessRegressor(alpha=0.1).fit([[0.0], [1.0]], [0.0, 1.0])
    >>> display = BandDisplay.from_estimator(model, [[0.0], [1.0]], [0.0, 1.0], limits=(-2, 3))
    >>> display.mean.shape
    (200,)
    """

    x: np.ndarray  # (points,), inputs in ascending order
    mean: np.ndarray  # (points,), in units of y
    std: np.ndarray  # (points,), in units of y
    members: np.ndarray | None = None  # (members, points), outputs of members
    x_data: np.ndarray | None = None  # (rows,), inputs of the data
    y_data: np.ndarray | None = None  # (rows,), targets of the data

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        limits: tuple[float, float] | None = None,
        n_points: int = 200,
        n_members: int = 0,
        random_state: RandomState = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> "BandDisplay":
        """Predict on an evenly spaced grid, and plot the predictions.

        Parameters
        ----------
        estimator : regressor
            A fitted regressor with `predict(X, return_std=True)`.
        X : (rows, 1) array or data frame
            Inputs of the data, which are plotted.
        y : (rows,) array
            Targets of the data.
        limits : (float, float), optional
            Ends of the grid. By default, it extends beyond the range of X by a third of this range on either side.
        n_points : int
            Number of points of the grid.
        n_members : int
            Number of functions from `estimator.sample_functions` that are plotted.
        random_state : int, generator or None
            Passed to `sample_functions`.
        ax : matplotlib.axes.Axes, optional
            Axes to plot into; new ones by default.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        BandDisplay
            The display.
        """
        x_data, y_data = np.asarray(X, np.float64), np.asarray(y, np.float64)
        if x_data.ndim != 2 or x_data.shape[1] != 1 or y_data.size != len(x_data):
            raise ValueError(
                f"X must have one column and y one target for each row, got shapes {x_data.shape} and {y_data.shape}"
            )
        margin = (x_data.max() - x_data.min()) / 3
        low, high = (x_data.min() - margin, x_data.max() + margin) if limits is None else limits
        grid = np.linspace(low, high, n_points)[:, None]
        # If X is a data frame, the grid is one too, so that the estimator finds the column by its name
        mean, std = estimator.predict(type(X)(grid, columns=X.columns) if hasattr(X, "iloc") else grid, return_std=True)
        functions = estimator.sample_functions(n_members, random_state) if n_members else []
        members = np.stack([np.ravel(function(grid)) for function in functions]) if functions else None
        return cls.from_predictions(
            grid[:, 0], mean, std, members=members, x_data=x_data, y_data=y_data, ax=ax, **kwargs
        )

    @classmethod
    def from_predictions(
        cls,
        x: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike,
        *,
        members: ArrayLike | None = None,
        x_data: ArrayLike | None = None,
        y_data: ArrayLike | None = None,
        ax: "Axes | None" = None,
        **kwargs: Any,
    ) -> "BandDisplay":
        """Plot given predictions.

        Parameters
        ----------
        x : (points,) array
            Inputs, in ascending order.
        mean, std : (points,) array
            Means and standard deviations, in units of y.
        members : (members, points) array, optional
            Outputs of members, each plotted as a line.
        x_data, y_data : (rows,) array, optional
            Inputs and targets of the data; pass both or neither.
        ax : matplotlib.axes.Axes, optional
            Axes to plot into; new ones by default.
        **kwargs
            Arguments of `plot`.

        Returns
        -------
        BandDisplay
            The display.
        """
        data = (None if values is None else np.ravel(values) for values in (x_data, y_data))
        functions = None if members is None else np.asarray(members)
        return cls(np.ravel(x), np.ravel(mean), np.ravel(std), functions, *data).plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, *, n_bands: int = 3, **kwargs: Any) -> "BandDisplay":
        """Plot the mean, the bands, the members and the data.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Axes to plot into; new ones by default.
        n_bands : int
            Number of bands, from 0 to 3: of one, two and three standard deviations on either side of the mean.
        **kwargs
            Arguments of `Axes.plot` for the line of the mean.

        Returns
        -------
        BandDisplay
            The display.
        """
        if n_bands not in (0, 1, 2, 3):
            raise ValueError(f"n_bands must be 0, 1, 2 or 3, got {n_bands!r}")
        ax = self.set_axes(ax)
        for width in range(n_bands, 0, -1):  # the widest first, so that narrower bands are on top
            label = f"± {width} standard deviation{'s' if width > 1 else ''}"
            lower, upper = self.mean - width * self.std, self.mean + width * self.std
            ax.fill_between(self.x, lower, upper, color=BAND_SHADES[width - 1], linewidth=0, label=label)
        if self.members is not None:
            lines = ax.plot(self.x, self.members.T, color=MEMBER, linewidth=0.7, alpha=0.8)
            lines[0].set_label("members")
        ax.plot(self.x, self.mean, **{"color": LINE, "linewidth": 2, "label": "mean", **kwargs})
        if self.x_data is not None:
            y_data = cast(np.ndarray, self.y_data)  # given if x_data is
            ax.plot(self.x_data, y_data, "o", color=INK, markersize=4, markeredgewidth=0, label="data")
        ax.set(xlabel="x", ylabel="y", xlim=(self.x[0], self.x[-1]))
        return finish(self, reverse=True)
