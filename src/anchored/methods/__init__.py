"""Inference methods. Each has a method `fit(key, model, data)` that returns a Posterior."""

from anchored.inference.posterior import Posterior
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.bootstrap_ensemble import BootstrapEnsemble
from anchored.methods.deep_ensemble import DeepEnsemble
from anchored.methods.early_stopped_ensemble import EarlyStoppedEnsemble
from anchored.methods.gaussian_process import GaussianProcess
from anchored.methods.hmc import HMC
from anchored.methods.mc_dropout import MCDropout
from anchored.methods.randomized_prior import RandomizedPrior
from anchored.methods.regularized_ensemble import RegularizedEnsemble
from anchored.methods.unregularized_ensemble import UnregularizedEnsemble
from anchored.methods.variational import VariationalInference

__all__ = [
    "HMC",
    "AnchoredEnsemble",
    "BootstrapEnsemble",
    "DeepEnsemble",
    "EarlyStoppedEnsemble",
    "FirstOrder",
    "GaussNewton",
    "GaussianProcess",
    "MCDropout",
    "Posterior",
    "RandomizedPrior",
    "RegularizedEnsemble",
    "UnregularizedEnsemble",
    "VariationalInference",
]
