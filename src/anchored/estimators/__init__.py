"""Estimators with scikit-learn's interface."""

from anchored.estimators.classifiers import AnchoredClassifier, BayesianClassifier
from anchored.estimators.regressors import AnchoredRegressor, BayesianRegressor

__all__ = ["AnchoredClassifier", "AnchoredRegressor", "BayesianClassifier", "BayesianRegressor"]
