"""The Bayesian model that all inference methods share, and the training problem of one ensemble member."""

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

    The network is static: a program is compiled anew for another network. The numbers in `prior` and `likelihood` are
    traced, so that new values need no compilation.
    """

    network: Network = field(metadata={"static": True})
    prior: Prior
    likelihood: Likelihood


def negative_log_likelihood(model: BayesianModel, params: object, data: Data) -> Array:
    """Return −Σ w log p(y | x, θ), up to a constant, at the parameters θ = `params`.

    The sum is over the rows of `data`, with inputs x, targets y and weights w. `model` holds the network and the
    likelihood p.
    """
    outputs = model.network.apply(params, data.inputs)
    return jnp.sum(data.weights * model.likelihood.negative_log_likelihood(outputs, data.targets))


AnchorAndModel = tuple[Params, BayesianModel]  # the anchor of one member, and its model


class Problem(NamedTuple):
    """The training problem of one member."""

    start: Params  # initial parameters
    anchor: Params  # the parameters that the member is regularised towards
    model: BayesianModel  # the larger its prior scale, the weaker the regularisation
    data: Data  # training rows, with the targets of this member


class MemberKeys(NamedTuple):
    """The random keys of one member."""

    anchor: Key  # for its initial parameters and its anchor
    data: Key  # for its data: noise that is added to the targets, or the choice of rows


class ProblemSampler(Protocol):
    """A function that draws the training problem of a member. Each kind of ensemble has its own.

    A sampler must be hashable, since it is a static argument of compiled programs.
    """

    def __call__(self, normals: Params, keys: MemberKeys, model: BayesianModel, data: Data) -> Problem:
        """Return the problem of one member. The function is traced, so it must be pure.

        Parameters
        ----------
        normals : pytree
            Standard normal draws in the shapes of the parameters, from which the start and the anchor are made.
        keys : MemberKeys
            The member's random keys, for everything else that is drawn.
        model : BayesianModel
            Network, prior and likelihood.
        data : Data
            Training rows. Rows of weight zero are padding.

        Returns
        -------
        Problem
            Start, anchor, model and data of the member.
        """
