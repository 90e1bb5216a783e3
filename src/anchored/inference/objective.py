"""The anchored loss as an objective for the first-order solver."""

from dataclasses import dataclass

import jax.numpy as jnp

from anchored import trees
from anchored.inference import anchoring
from anchored.inference.solvers import ridge
from anchored.inference.solvers.first_order import AnchorAndModel
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import last_layer_mask
from anchored.trees import Tree
from anchored.types import Array, Data


@dataclass(frozen=True)
class AnchoredObjective:
    """The anchored loss (eq. 2 in `anchoring`) as a function of the trained parameters; others stay at the anchor."""

    trainable: str  # as in TrainingConfig

    def loss(self, params: object, problem: AnchorAndModel, batch: Data, size: Array) -> Array:
        """Return eq. 2 at `params` for one `batch` of data of total weight `size`; `problem` is (anchor, model)."""
        anchor, model = problem
        return anchoring.anchored_loss(self.merged(params, anchor, model), anchor, model, batch, size)

    def held_out_loss(self, params: object, problem: AnchorAndModel, batch: Data) -> Array:
        """Return the mean negative log-likelihood of the rows of `batch` at `params`; `problem` is (anchor, model)."""
        anchor, model = problem
        outputs = model.network.apply(self.merged(params, anchor, model), batch.inputs)
        total = jnp.sum(batch.weights * model.likelihood.negative_log_likelihood(outputs, batch.targets))
        return total / jnp.maximum(jnp.sum(batch.weights), 1e-12)

    def merged(self, params: Tree, anchor: Tree, model: BayesianModel) -> Tree:
        """Return `params` with all leaves that are not trained replaced by those of `anchor`."""
        if self.trainable == "all":
            return params
        if self.trainable == "last_layer":
            is_trained = last_layer_mask(model.network, params)
        else:
            is_trained = trees.mask_below(self.trainable, params)
        return ridge.merge_trained(is_trained, params, anchor)
