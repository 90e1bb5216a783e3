"""Open the playground in a browser."""

import webbrowser
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from anchored import AnchoredRegressor, checks
from anchored.errors import ArgumentError
from anchored.playground.curves import CurveFit
from anchored.playground.points import MAX_POINTS

if TYPE_CHECKING:
    from bokeh.server.server import Server

EXTRA = ("bokeh", "the playground", "playground")  # arguments of checks.installed


def show(model: AnchoredRegressor, X: ArrayLike, y: ArrayLike, port: int = 0, open_browser: bool = True) -> "Server":
    """Open a page that shows a fitted model of one input beside the exact process; its points can be dragged.

    The server runs in a thread until the program ends, or until the result's `stop` is called.

    Parameters
    ----------
    model : AnchoredRegressor
        A fitted model of one input and one output, with Gaussian noise.
    X : (rows, 1)
        The inputs that `model` was fitted to, at most 200.
    y : (rows,)
        The targets that `model` was fitted to.
    port : int
        Port of the page; 0 for any free one.
    open_browser : bool
        Whether to open the page in the browser. Otherwise its address is `http://127.0.0.1:{server.port}`.

    Returns
    -------
    bokeh.server.server.Server
        The running server.
    """
    points = _points_of(model, X, y)
    checks.installed(*EXTRA)
    from anchored.playground.running import run_in_thread

    server = run_in_thread(port, CurveFit(model, points))
    if open_browser:
        webbrowser.open(f"http://127.0.0.1:{server.port}/curves")
    return server


def _points_of(model: AnchoredRegressor, X: ArrayLike, y: ArrayLike) -> np.ndarray:
    """Check the arguments of `show`, and return the points, (rows, 2)."""
    if not isinstance(model, AnchoredRegressor) or not hasattr(model, "posterior_"):
        raise ArgumentError("model", f"must be a fitted AnchoredRegressor, got {type(model).__name__}")
    inputs, targets = np.asarray(X, np.float64), np.asarray(y, np.float64)
    if inputs.ndim != 2 or inputs.shape[1] != 1 or targets.shape != inputs.shape[:1]:
        raise ArgumentError(
            "X, y", f"must have the shapes (rows, 1) and (rows,), got {inputs.shape} and {targets.shape}"
        )
    if len(inputs) > MAX_POINTS:
        raise ArgumentError("X", f"must have at most {MAX_POINTS} rows to be shown, got {len(inputs):,}")
    model._for_certificate(inputs, targets, None, None)  # raises if these are not the data of the fit
    return np.column_stack([inputs[:, 0], targets])
