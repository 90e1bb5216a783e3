"""Closed forms of posteriors and of the distributions of anchored members, to check approximations against."""

from anchored.exact import kernels
from anchored.exact.last_layer import last_layer_distribution
from anchored.exact.linear_gaussian import LinearGaussian, cross_validated_kappa
from anchored.exact.processes import GaussianProcess
from anchored.exact.wide_limit import WideLimit, wide_limit

__all__ = [
    "GaussianProcess",
    "LinearGaussian",
    "WideLimit",
    "cross_validated_kappa",
    "kernels",
    "last_layer_distribution",
    "wide_limit",
]
