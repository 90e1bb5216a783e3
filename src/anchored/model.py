"""A Bayesian neural network before it has seen data: network, prior, likelihood."""

from dataclasses import dataclass, field

from anchored import trees
from anchored.likelihoods import Likelihood
from anchored.networks import Network
from anchored.priors import Prior


@trees.register
@dataclass(frozen=True)
class BayesianModel:
    """The network is static (a new one compiles anew); every number in prior and likelihood is traced."""

    network: Network = field(metadata={"static": True})
    prior: Prior
    likelihood: Likelihood
