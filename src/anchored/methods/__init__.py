"""Inference methods: each gives `fit(key, model, data) -> Posterior`."""

from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.method import Posterior

__all__ = ["AnchoredEnsemble", "Posterior"]
