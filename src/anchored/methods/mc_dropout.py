"""Monte-Carlo dropout (Gal & Ghahramani 2016): one network, trained and used with hidden units missing at random.

    loss(θ) = (1/N) [−Σᵢ wᵢ log p(yᵢ | f(xᵢ; θ, ξᵢ)) + ½ Σⱼ (θⱼ − μⱼ)² / sⱼ²],    ξ ~ Bernoulli(1 − rate) / (1 − rate)

with fresh masks ξ on the hidden units for each row and step (for the Gaussian likelihood times 2σ², as eq. 2). A member
is the trained network under one mask, which is folded into the weights of the layer above: an ordinary network. (By
their variational argument weights above dropped units would be pulled 1/(1 − rate) times as strongly.)

The spread of the members follows from the rate, which the data do not move: it is no estimate, biased or not, of the
posterior's, nor of the Gaussian process that the network is at infinite width. With rate 0 all members are one MAP
network. Without data they are all the prior's mean, which for a prior about zero is the function zero.
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
from anchored.inference.posterior import FitRecord, MemberPosterior, Posterior, key_numbers
from anchored.inference.schedule import half_cosine
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import MLP, RBFNetwork
from anchored.types import Array, Data, Key, Number, OnProgress, Params

STEPS_A_CALL = 100  # between reports of progress


@dataclass(frozen=True)
class DropoutRecord(FitRecord):
    """How the training of the one network went."""

    loss_curve: np.ndarray = field(kw_only=True)  # (steps,)


@dataclass(frozen=True)
class MCDropout:
    """One network trained by Adam with rates down half a cosine; members are its sub-networks under fixed masks."""

    rate: float | tuple[float, ...] = 0.1  # of units dropped: one for all hidden layers, or one each
    n_members: int = 100
    learning_rate: float = 0.1  # of whitened parameters (θ − μ)/s
    max_iter: int = 2000  # steps, each on all rows

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Train one network from a draw of the prior, then draw the members' masks."""
        self.check(model)
        rates = np.broadcast_to(self.rate, len(model.network.hidden_layer_sizes)).astype(jnp.result_type(float))  # type: ignore[attr-defined]
        start_key, step_key, member_key = jax.random.split(key, 3)
        state = _start(start_key, model, data)
        parts: list[np.ndarray] = []
        for first in range(0, self.max_iter, STEPS_A_CALL):
            stop = min(first + STEPS_A_CALL, self.max_iter)
            state, losses = _descend(
                state, step_key, model, data, rates, self.learning_rate, first, stop, self.max_iter
            )
            parts.append(np.asarray(losses)[: stop - first])
            if on_progress is not None:
                on_progress((stop - first) / self.max_iter, float(parts[-1].mean()))
        curve = np.concatenate(parts)
        warn_if_improving(-curve, "MCDropout", "max_iter")
        members = jax.tree.map(np.asarray, _members(state[0], member_key, model, rates, np.arange(self.n_members)))
        return MemberPosterior(model, members, DropoutRecord(self, key_numbers(key), model, loss_curve=curve))

    def check(self, model: BayesianModel) -> None:
        """Raise where a setting cannot be used, or not with this model."""
        for name in ("n_members", "max_iter"):
            checks.whole(name, getattr(self, name))
        checks.positive("learning_rate", self.learning_rate)
        if not isinstance(model.network, MLP | RBFNetwork) or not model.network.hidden_layer_sizes:
            raise ValueError(
                f"network: MCDropout drops the hidden units of an MLP or RBFNetwork, which {model.network!r} does not "
                "have. Use such a network, or another method: HMC and VariationalInference take any."
            )
        n_layers = len(model.network.hidden_layer_sizes)
        rates = np.atleast_1d(np.asarray(self.rate, object))
        if len(rates) not in (1, n_layers) or not all(checks.is_real(rate) and 0 <= rate < 1 for rate in rates):
            raise ValueError(
                f"rate must be a number in [0, 1), or one for each of the {n_layers} hidden layers, got {self.rate!r}"
            )


Descent = tuple[Params, optax.OptState]  # whitened parameters, and the optimiser's state


@jit
def _start(key: Key, model: BayesianModel, data: Data) -> Descent:
    """Whitened parameters at a draw from the prior, and a fresh optimiser."""
    z = trees.normal_like(key, model.network.init(key, data.inputs[:1]))
    return z, optax.adam(0.0).init(z)


@jit
def _descend(
    state: Descent,
    key: Key,
    model: BayesianModel,
    data: Data,
    rates: Array,
    learning_rate: Number,
    first: Number,
    stop: Number,
    total: Number,
) -> tuple[Descent, Array]:
    """Steps `first` to `stop` of `total`, and the loss at each of them."""
    network = cast(MLP | RBFNetwork, model.network)  # checked by the method
    weight = jnp.sum(data.weights) / data.weights.shape[1]
    size = jnp.where(weight > 0, weight, 1)

    def loss(z: Params, mask_key: Key) -> Array:
        masks = draw_masks(mask_key, network, rates, (len(data.inputs),))
        outputs = network.apply(model.prior.unwhiten(z), data.inputs, masks)
        misfit = jnp.sum(data.weights * model.likelihood.misfit(outputs, data.targets))
        pull = 0.5 * trees.total(jax.tree.map(jnp.square, z))
        return model.likelihood.loss_scale * (misfit + pull) / size

    def step(i: Array, carry: tuple[Descent, jax.Array]) -> tuple[Descent, jax.Array]:
        (z, optimizer_state), losses = carry
        value, gradient = jax.value_and_grad(loss)(z, jax.random.fold_in(key, i))
        rate = learning_rate * half_cosine(i / total)
        updates, optimizer_state = optax.adam(rate).update(gradient, optimizer_state)
        return (optax.apply_updates(z, updates), optimizer_state), losses.at[i - first].set(value)

    return jax.lax.fori_loop(first, stop, step, (state, jnp.zeros(STEPS_A_CALL)))


@jit
def _members(z: Params, key: Key, model: BayesianModel, rates: Array, members: Array) -> Params:
    params = model.prior.unwhiten(z)
    network = cast(MLP | RBFNetwork, model.network)  # checked by the method

    def member(number: Array) -> Params:
        masks = draw_masks(jax.random.fold_in(key, number), network, rates)
        return folded(params, masks)

    return jax.vmap(member)(members)


def draw_masks(key: Key, network: MLP | RBFNetwork, rates: Array, rows: tuple[int, ...] = ()) -> list[Array]:
    """For each hidden layer, 0 at units that are dropped and 1/(1 − rate) at the others, (*rows, units)."""
    keys = jax.random.split(key, len(network.hidden_layer_sizes))
    return [
        jax.random.bernoulli(k, 1 - rate, (*rows, width)) / (1 - rate)
        for k, rate, width in zip(keys, rates, network.hidden_layer_sizes, strict=True)
    ]


def folded(params: Params, masks: list[Array]) -> Params:
    """Parameters of an ordinary network that says the same: a unit's mask multiplies the weights that leave it."""
    above = {f"layer_{i + 1}": mask for i, mask in enumerate(masks)}
    return {
        name: layer if name not in above else {**layer, "weights": above[name][:, None] * layer["weights"]}
        for name, layer in params.items()
    }
