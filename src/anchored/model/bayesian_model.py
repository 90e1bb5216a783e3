"""A Bayesian neural network before it has seen data, and the problem that one member of an ensemble solves."""

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import jax.numpy as jnp

from anchored import trees
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import Network
from anchored.model.priors import Prior
from anchored.types import Array, Data, Key, Params


@trees.register
@dataclass(frozen=True)
class BayesianModel:
    """The network is static (a new one compiles anew); every number in prior and likelihood is traced."""

    network: Network = field(metadata={"static": True})
    prior: Prior
    likelihood: Likelihood


def negative_log_likelihood(model: BayesianModel, params: Params, data: Data) -> Array:
    """−log p(y | θ) of all rows, up to a constant; a weight multiplies its row's log-likelihood."""
    outputs = model.network.apply(params, data.inputs)
    return jnp.sum(data.weights * model.likelihood.misfit(outputs, data.targets))


class Problem(NamedTuple):
    """One member's own: where it starts, what it is pulled to and how strongly, and its data."""

    start: Params
    anchor: Params
    model: BayesianModel  # the scale of its prior is the weakness of the pull
    data: Data


class ProblemSampler(Protocol):
    """How a member's problem is drawn: what tells one kind of ensemble from another. A hashable value."""

    def __call__(self, anchor_key: Key, noise_key: Key, model: BayesianModel, like: Params, data: Data) -> Problem:
        """Pure, since it is traced: `like` has the shapes of the parameters, rows of weight zero are padding."""
