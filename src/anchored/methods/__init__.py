"""Inference methods: each gives `fit(key, model, data) -> Posterior`."""

from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.method import Posterior
from anchored.solvers.first_order import FirstOrder
from anchored.solvers.gauss_newton import GaussNewton

__all__ = ["AnchoredEnsemble", "FirstOrder", "GaussNewton", "Posterior"]
