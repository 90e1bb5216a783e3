"""The model of a Bayesian neural network, and the training problem of one ensemble member."""

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
    """A network with a prior over its parameters and a likelihood of its outputs.

    The network is a static argument of compiled programs, so that another network needs another compilation. The
    numbers in `prior` and `likelihood` are traced: new values need no compilation.
    """

    network: Network = field(metadata={"static": True})
    prior: Prior
    likelihood: Likelihood


def negative_log_likelihood(model: BayesianModel, params: object, data: Data) -> Array:
    """Return −Σ w log p(y | θ) over all rows of `data`, up to a constant, at the parameters θ = `params`.

    w are the weights of the rows; `model` holds the network and the likelihood p.
    """
    outputs = model.network.apply(params, data.inputs)
    return jnp.sum(data.weights * model.likelihood.negative_log_likelihood(outputs, data.targets))


AnchorAndModel = tuple[Params, BayesianModel]


class Problem(NamedTuple):
    """The training problem of one member."""

    start: Params  # initial parameters
    anchor: Params  # the parameters that the member is regularised towards
    model: BayesianModel  # its prior scale sets the strength of the regularisation: a larger scale is a weaker one
    data: Data  # training rows, with the targets of this member


class MemberKeys(NamedTuple):
    """The random keys of one member."""

    anchor: Key  # for its start and anchor
    data: Key  # for what is random in its data: noise of the targets, or which rows are drawn


class ProblemSampler(Protocol):
    """Draws the training problem of a member; each kind of ensemble has its own sampler.

    A sampler is hashable, since it is a static argument of compiled programs.
    """

    def __call__(self, normals: Params, keys: MemberKeys, model: BayesianModel, data: Data) -> Problem:
        """Return the problem of one member; a pure function, since it is traced.

        Parameters
        ----------
        normals : pytree
            Standard normals in the shapes of the parameters, from which start and anchor are made.
        keys : MemberKeys
            The member's random keys, for anything else that is drawn.
        model : BayesianModel
            Network, prior and likelihood.
        data : Data
            Training rows; rows of weight zero are padding.

        Returns
        -------
        Problem
            The problem.
        """
