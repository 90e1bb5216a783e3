"""The convergence study on the Boston data, in the setting of the literature; the data are not in the package."""

from dataclasses import replace

from anchored.paper.experiments import convergence
from anchored.paper.experiments.convergence import figures, run

FULL = replace(convergence.FULL, dataset="boston", noise_variance=0.1)
QUICK = replace(convergence.QUICK, dataset="boston", noise_variance=0.1)

__all__ = ["FULL", "QUICK", "figures", "run"]
