"""The convergence study on the Boston data, as in the literature; the package does not contain the data."""

from dataclasses import replace

from anchored.paper.experiments import convergence
from anchored.paper.experiments.convergence import figures, run

FULL = replace(convergence.FULL, dataset="boston", noise_variance=0.1)
QUICK = replace(convergence.QUICK, dataset="boston", noise_variance=0.1)

__all__ = ["FULL", "QUICK", "figures", "run"]
