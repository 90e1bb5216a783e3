"""Pages in the browser, in which points are placed, and anchored ensembles compared with exact Gaussian processes."""

from anchored.playground.showing import show

__all__ = ["show"]
