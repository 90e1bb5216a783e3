"""Monte-Carlo dropout (Gal & Ghahramani 2016): one network, trained and evaluated with random dropout.

    loss(θ) = (1/N) [−Σᵢ wᵢ log p(yᵢ | f(xᵢ; θ, ξᵢ)) + ½ Σⱼ (θⱼ − μⱼ)² / sⱼ²],    ξ ~ Bernoulli(1 − rate) / (1 − rate)

for rows with weights w whose sum is N, and the prior N(μ, s²). The masks ξ multiply the hidden units, and are drawn
again for each row and step. The loss is multiplied by the `loss_scale` of the likelihood: 2σ² for the Gaussian, as in
eq. 2 (see `inference.anchoring`), and the temperature for classes. A member is the trained network with one fixed mask
for each hidden layer. The mask is multiplied into the weights of the next layer, so that a member is an ordinary
network. (The variational argument of Gal & Ghahramani would multiply the penalty of those weights by 1/(1 − rate).)

The spread of the members depends on the dropout rate, which is not learned from the data, so it does not estimate the
spread of the posterior. With rate 0, all members are the same MAP estimate. Without data, the network converges to the
prior mean, which is zero for all weights that masks multiply, so that all members are equal to the prior mean.
"""

from dataclasses import dataclass, field
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from anchored import checks, trees
from anchored.inference.compilation import jit
from anchored.inference.failures import warn_if_improving
from anchored.inference.posterior import FitRecord, MemberPosterior, Posterior, key_data
from anchored.inference.schedule import half_cosine
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import MLP, Layers, RBFNetwork
from anchored.types import Array, Data, Key, Number, OnProgress

STEPS_PER_CALL = 100  # steps between reports of progress


@dataclass(frozen=True)
class DropoutRecord(FitRecord):
    """How the network was trained."""

    loss_curve: np.ndarray = field(kw_only=True)  # (steps,), the loss at each step, with its random masks


@dataclass(frozen=True)
class MCDropout:
    """One network trained with dropout by Adam; members are the network with different fixed masks.

    Attributes
    ----------
    rate : float or tuple of float
        Probability that a hidden unit is dropped: one for all hidden layers, or one for each.
    n_members : int
        Number of members, each with its own masks.
    learning_rate : float
        Initial learning rate for the whitened parameters (θ − μ)/s. It decays to zero along half a cosine.
    max_iter : int
        Number of steps, each on all rows.
    """

    rate: float | tuple[float, ...] = 0.1
    n_members: int = 100
    learning_rate: float = 0.1
    max_iter: int = 2000

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train the network, starting at a draw from the prior; draw the members' masks, and return the posterior.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`.
        """
        self.check(model)
        rates = np.broadcast_to(self.rate, len(model.network.hidden_layer_sizes)).astype(jnp.result_type(float))  # type: ignore[attr-defined]
        start_key, step_key, member_key = jax.random.split(key, 3)
        state = _start(start_key, model, data)
        parts: list[np.ndarray] = []
        for first in range(0, self.max_iter, STEPS_PER_CALL):
            stop = min(first + STEPS_PER_CALL, self.max_iter)
            state, losses = _run_steps(
                state, step_key, model, data, rates, self.learning_rate, first, stop, self.max_iter
            )
            parts.append(np.asarray(losses)[: stop - first])
            if on_progress is not None:
                on_progress((stop - first) / self.max_iter, float(parts[-1].mean()))
        curve = np.concatenate(parts)
        warn_if_improving(-curve, "MCDropout", "max_iter")
        members = jax.tree.map(np.asarray, _members(state[0], member_key, model, rates, np.arange(self.n_members)))
        return MemberPosterior(model, members, DropoutRecord(self, key_data(key), model, loss_curve=curve))

    def check(self, model: BayesianModel) -> None:
        """Raise a ValueError if a setting is invalid or cannot be used with `model`."""
        for name in ("n_members", "max_iter"):
            checks.whole(name, getattr(self, name))
        checks.positive("learning_rate", self.learning_rate)
        if not isinstance(model.network, MLP | RBFNetwork) or not model.network.hidden_layer_sizes:
            raise ValueError(
                f"network: MCDropout needs an MLP or RBFNetwork with hidden units, got {model.network!r}. Use such a "
                "network, or another method: HMC and VariationalInference take any network."
            )
        n_layers = len(model.network.hidden_layer_sizes)
        rates = np.atleast_1d(np.asarray(self.rate, object))
        if len(rates) not in (1, n_layers) or not all(checks.is_real(rate) and 0 <= rate < 1 for rate in rates):
            raise ValueError(
                f"rate must be a number in [0, 1), or one for each of the {n_layers} hidden layers, got {self.rate!r}"
            )


State = tuple[Layers, optax.OptState]  # whitened parameters, and the state of the optimiser


@jit
def _start(key: Key, model: BayesianModel, data: Data) -> State:
    """Return whitened parameters drawn from the prior, and the initial state of the optimiser."""
    z = trees.normal_like(key, model.network.init(key, data.inputs[:1]))
    return z, optax.adam(0.0).init(z)


@jit
def _run_steps(
    state: State,
    key: Key,
    model: BayesianModel,
    data: Data,
    rates: Array,
    learning_rate: Number,
    first: Number,
    stop: Number,
    total: Number,
) -> tuple[State, Array]:
    """Run steps `first` to `stop` − 1 of `total`; return the state and the losses, padded to STEPS_PER_CALL."""
    network = cast(MLP | RBFNetwork, model.network)  # checked by the method
    total_weight = jnp.sum(data.weights) / data.weights.shape[1]
    divisor = jnp.where(total_weight > 0, total_weight, 1)  # N in the loss; 1 without data

    def loss(z: Layers, mask_key: Key) -> Array:
        masks = draw_masks(mask_key, network, rates, (len(data.inputs),))
        outputs = network.apply(model.prior.unwhiten(z), data.inputs, masks)
        negative_log_likelihood = jnp.sum(
            data.weights * model.likelihood.negative_log_likelihood(outputs, data.targets)
        )
        penalty = 0.5 * trees.total(jax.tree.map(jnp.square, z))
        return model.likelihood.loss_scale * (negative_log_likelihood + penalty) / divisor

    def step(i: Array, carry: tuple[State, jax.Array]) -> tuple[State, jax.Array]:
        (z, optimizer_state), losses = carry
        value, gradient = jax.value_and_grad(loss)(z, jax.random.fold_in(key, i))
        rate = learning_rate * half_cosine(i / total)
        updates, optimizer_state = optax.adam(rate).update(gradient, optimizer_state)
        return (optax.apply_updates(z, updates), optimizer_state), losses.at[i - first].set(value)

    return jax.lax.fori_loop(first, stop, step, (state, jnp.zeros(STEPS_PER_CALL)))


@jit
def _members(z: Layers, key: Key, model: BayesianModel, rates: Array, members: Array) -> Layers:
    """Return the parameters of the network for each member, with the member's masks multiplied into the weights.

    `members` holds the numbers of the members.
    """
    params = model.prior.unwhiten(z)
    network = cast(MLP | RBFNetwork, model.network)  # checked by the method

    def member(number: Array) -> Layers:
        masks = draw_masks(jax.random.fold_in(key, number), network, rates)
        return apply_masks(params, masks)

    return jax.vmap(member)(members)


def draw_masks(key: Key, network: MLP | RBFNetwork, rates: Array, rows: tuple[int, ...] = ()) -> list[Array]:
    """Draw a mask for each hidden layer: 0 for dropped units, and 1/(1 − rate) for the others.

    Parameters
    ----------
    key : Key
        Random key.
    network : MLP or RBFNetwork
        The network.
    rates : (hidden layers,) array
        Probabilities of being dropped.
    rows : tuple of int
        Leading shape of the masks: (n_rows,) for masks that differ between rows, () for the same masks for all rows.

    Returns
    -------
    list of (*rows, units) array
        The masks.
    """
    keys = jax.random.split(key, len(network.hidden_layer_sizes))
    return [
        jax.random.bernoulli(k, 1 - rate, (*rows, width)) / (1 - rate)
        for k, rate, width in zip(keys, rates, network.hidden_layer_sizes, strict=True)
    ]


def apply_masks(params: Layers, masks: list[Array]) -> Layers:
    """Return `params` with the mask of each hidden layer multiplied into the weights of the next layer.

    `masks` has one mask, (units,), for each hidden layer. An ordinary network with the returned parameters has the same
    outputs as one with `params` and the masks.
    """
    input_mask = {f"layer_{i + 1}": mask for i, mask in enumerate(masks)}
    return {
        name: {**layer, "weights": input_mask[name][:, None] * layer["weights"]} if name in input_mask else layer
        for name, layer in params.items()
    }
