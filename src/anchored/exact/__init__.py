"""Exact answers: what a model knows in closed form, to check every approximation against."""

from anchored.exact import kernels
from anchored.exact.last_layer import last_layer_law
from anchored.exact.linear_gaussian import LinearGaussian, cross_validated_kappa
from anchored.exact.processes import GaussianProcess
from anchored.exact.wide_limit import WideLimit, wide_limit

__all__ = [
    "GaussianProcess",
    "LinearGaussian",
    "WideLimit",
    "cross_validated_kappa",
    "kernels",
    "last_layer_law",
    "wide_limit",
]
