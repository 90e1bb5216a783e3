"""Estimators with scikit-learn's interface."""

from anchored.estimators.classifier import AnchoredClassifier
from anchored.estimators.gaussian_process import NNGPRegressor
from anchored.estimators.regressor import AnchoredRegressor

__all__ = ["AnchoredClassifier", "AnchoredRegressor", "NNGPRegressor"]
