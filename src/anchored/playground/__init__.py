"""A playground in the browser: place points, and watch the posterior beside the exact process."""

from anchored.playground.showing import show

__all__ = ["show"]
