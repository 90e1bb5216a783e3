"""Minimise the anchored loss (eq. 2 of `inference.anchoring`) with Gaussian noise by damped Gauss–Newton steps.

Let z = (θ − θ₀)/s, with anchor θ₀ and prior scales s. Let r be the residuals, and J the Jacobian of the outputs with
respect to z (rows × outputs, parameters). Each row of both is multiplied by √w/σ, with its weight w and the noise
variance σ². Then eq. 2 is proportional to ½|r|² + ½|z|², and a step of z with damping μ is

    d = −z/(1 + μ) + Jᵀ (J Jᵀ + (1 + μ) I)⁻¹ (r + J z/(1 + μ)).

The linear system has the size of the data, not of the network. For a wide network and a few hundred rows, about ten
steps replace thousands of first-order steps. Everything is computed in float64, whatever JAX's default is.
"""

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored import checks, trees
from anchored.inference.compilation import jit
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import ACTIVATIONS, MLP, Layers
from anchored.trees import Tree
from anchored.types import Array, Data, Number, Params

LENGTHS = (1.0, 0.5, 0.25, 0.125, 0.0625)  # fractions of a step among which the best is taken; 0 is tried too


@dataclass(frozen=True)
class GaussNewton:
    """Settings of the Gauss–Newton solver.

    Attributes
    ----------
    max_iter : int
        Largest number of steps.
    tolerance : float
        Training stops when the actual and the predicted gain of a step are at most this, in nats of the log posterior.
    """

    max_iter: int = 50
    tolerance: float = 0.1

    def check(self) -> None:
        """Raise a ValueError if a setting is invalid."""
        checks.whole("max_iter", self.max_iter)
        checks.positive("tolerance", self.tolerance)


class NewtonState(NamedTuple):
    """The state of a member between two steps."""

    params: Params  # θ
    objective: Array  # ½|r|² + ½|z|², in nats
    gain: Array  # the larger of the actual and the predicted decrease of the objective in the last step, in nats
    damping: Array  # μ
    n_steps: Array  # number of steps taken so far


def solve(anchor: Tree, start: Tree, model: BayesianModel, data: Data, solver: GaussNewton) -> tuple[Tree, float, int]:
    """Minimise the anchored loss of one member.

    Parameters
    ----------
    anchor : pytree
        θ₀, the member's anchor.
    start : pytree
        Parameters to start from.
    model : BayesianModel
        Network, prior and Gaussian likelihood.
    data : Data
        The member's rows.
    solver : GaussNewton
        Settings.

    Returns
    -------
    params : pytree
        The minimum, in the precision of `start`.
    loss : float
        The loss at the minimum.
    n_steps : int
        Number of steps taken.
    """
    with jax.enable_x64(True):
        result = _solve(*trees.to_float64((anchor, start, model, data)), solver.max_iter, solver.tolerance)
        params = jax.tree.map(lambda new, old: np.asarray(new, np.asarray(old).dtype), result.params, start)
        total_weight = max(float(np.sum(data.weights)) / data.weights.shape[1], 1e-12)  # averaged over outputs
        scale = float(model.likelihood.loss_scale) / total_weight  # ratio of eq. 2 to the negative log posterior
        return params, scale * float(result.objective), int(result.n_steps)


def full_step(anchor: Tree, params: Tree, model: BayesianModel, data: Data) -> tuple[Tree, float]:
    """Return the undamped step from `params` towards the minimum, and its length in posterior standard deviations.

    `anchor`, `model` and `data` are as in `solve`.
    """
    with jax.enable_x64(True):
        step, length = _full_step(*trees.to_float64((anchor, params, model, data)))
        return jax.tree.map(np.asarray, step), float(length)


@jit
def _solve(
    anchor: Tree, start: Tree, model: BayesianModel, data: Data, max_iter: Number, tolerance: Number
) -> NewtonState:
    """The compiled part of `solve`."""

    def continues(state: NewtonState) -> Array:
        return (state.n_steps < max_iter) & (state.gain > tolerance)

    def step(state: NewtonState) -> NewtonState:
        direction = _step(anchor, state.params, model, data, state.damping)
        _, slope = jax.jvp(lambda p: _objective(anchor, p, model, data), (state.params,), (direction,))

        def params_at(length: Array) -> Params:
            return jax.tree.map(lambda p, d: p + length * d, state.params, direction)

        lengths = jnp.asarray((*LENGTHS, 0.0))
        objectives = jax.lax.map(lambda length: _objective(anchor, params_at(length), model, data), lengths)
        objectives = jnp.where(jnp.isnan(objectives), jnp.inf, objectives)  # argmin would return the position of a NaN
        best = jnp.argmin(objectives)
        # A small actual gain alone does not show convergence: far from the minimum, a kink of the activation can make
        # the best step so short that its gain is small
        gain = jnp.maximum(state.objective - objectives[best], -0.5 * slope)
        # Lower the damping if the full step was best, keep it if half the step was, and raise it otherwise
        lower = jnp.where(state.damping < 0.05, 0, state.damping / 4)
        higher = 3 * jnp.maximum(state.damping, 0.05)
        damping = jnp.where(best == 0, lower, jnp.where(best == 1, state.damping, higher))
        return NewtonState(params_at(lengths[best]), objectives[best], gain, damping, state.n_steps + 1)

    objective = _objective(anchor, start, model, data)
    initial_gain = jnp.full_like(objective, jnp.inf)  # infinite, so that at least one step is made
    initial = NewtonState(start, objective, initial_gain, jnp.zeros(()), jnp.asarray(0))
    return jax.lax.while_loop(continues, step, initial)


@jit
def _full_step(anchor: Tree, params: Tree, model: BayesianModel, data: Data) -> tuple[Tree, Array]:
    """The compiled part of `full_step`."""
    step = _step(anchor, params, model, data, jnp.zeros(()))
    # The length is √(gᵀ H⁻¹ g) with gradient g and Hessian H (approximated as JᵀJ + I); the full step is −H⁻¹ g
    _, slope = jax.jvp(lambda p: _objective(anchor, p, model, data), (params,), (step,))
    return step, jnp.sqrt(jnp.maximum(-slope, 0))


def _objective(anchor: Tree, params: Tree, model: BayesianModel, data: Data) -> Array:
    """Return ½|r|² + ½|z|² at θ = `params`, in nats. `anchor`, `model` and `data` are as in `solve`."""
    residual = (data.targets - model.network.apply(params, data.inputs)) * _row_scale(model, data)
    penalty = jax.tree.map(lambda p, a, s: ((p - a) / s) ** 2, params, anchor, model.prior.scale)
    return 0.5 * jnp.sum(residual**2) + 0.5 * trees.total(penalty)


def _row_scale(model: BayesianModel, data: Data) -> jax.Array:
    """Return √w/σ for each row and output, where w is its weight. The noise of residuals times this has variance 1."""
    noise = model.likelihood.noise_variance  # type: ignore[attr-defined]
    return jnp.broadcast_to(jnp.sqrt(data.weights / noise), data.targets.shape)


def _step(anchor: Tree, params: Tree, model: BayesianModel, data: Data, damping: Array) -> Tree:
    """Return the step s d of the parameters θ = `params`, with the damping μ = `damping`.

    `anchor`, `model` and `data` are as in `solve`.
    """
    outputs, forward = jax.linearize(lambda p: model.network.apply(p, data.inputs), params)
    backward = jax.linear_transpose(forward, params)
    row_scale = _row_scale(model, data)
    residual = (data.targets - outputs) * row_scale
    shrunk = jax.tree.map(lambda p, a: (p - a) / (1 + damping), params, anchor)  # s z/(1 + μ)
    right_side = residual + forward(shrunk) * row_scale  # r + J z/(1 + μ)
    gram = _gram(model, params, data.inputs) * jnp.outer(row_scale.ravel(), row_scale.ravel())
    factor = jax.scipy.linalg.cho_factor(gram + (1 + damping) * jnp.eye(len(gram)))
    solved = jax.scipy.linalg.cho_solve(factor, right_side.ravel()).reshape(row_scale.shape)
    (transposed,) = backward(solved * row_scale)
    return jax.tree.map(lambda b, s, z: s**2 * b - z, transposed, model.prior.scale, shrunk)


def _gram(model: BayesianModel, params: Params, inputs: Array) -> Array:
    """Return J Jᵀ without the factors √w/σ, (rows × outputs, rows × outputs): the tangent kernel of the network."""
    network, scale = model.network, model.prior.scale
    if isinstance(network, MLP) and all(jnp.ndim(s) == 0 for s in jax.tree.leaves(scale)):  # one scale for each leaf
        return _layered_gram(network, params, scale, inputs)

    def row_outputs(p: object, x: Array) -> Array:
        return network.apply(p, x[None])[0]

    jacobian = jax.vmap(jax.jacrev(row_outputs), in_axes=(None, 0))(params, inputs)

    def scaled(j: Array, s: Array, p: Array) -> Array:
        return (j * s).reshape(-1, p.size)

    flat = jnp.concatenate(jax.tree.leaves(jax.tree.map(scaled, jacobian, scale, params)), axis=1)
    return flat @ flat.T


def _layered_gram(network: MLP, params: Layers, scale: Layers, inputs: Array) -> Array:
    """Return `_gram` of an MLP without forming J.

    For one row, the Jacobian with respect to the weights of a layer is the outer product of the layer's inputs and the
    derivatives of the outputs with respect to its pre-activations. The Gram matrix of a layer is therefore the
    elementwise product of the Gram matrices of these two.
    """
    activate = ACTIVATIONS[network.activation]
    n_layers = len(network.hidden_layer_sizes) + 1
    n_rows, n_outputs = len(inputs), network.n_outputs
    layer_inputs, slopes = [inputs], []
    for i in range(n_layers - 1):
        layer = params[f"layer_{i}"]
        pre_activation = layer_inputs[-1] @ layer["weights"] + layer.get("bias", 0.0)
        value, slope = jax.jvp(activate, (pre_activation,), (jnp.ones_like(pre_activation),))
        layer_inputs.append(value)
        slopes.append(slope)
    # (rows, outputs, units): derivatives of the outputs with respect to the pre-activations of layer i
    derivatives = jnp.broadcast_to(jnp.eye(n_outputs), (n_rows, n_outputs, n_outputs))
    gram = jnp.zeros((n_rows, n_outputs, n_rows, n_outputs))
    for i in reversed(range(n_layers)):
        gram_of_derivatives = jnp.einsum("nkh,mjh->nkmj", derivatives, derivatives)
        gram_of_inputs = scale[f"layer_{i}"]["weights"] ** 2 * (layer_inputs[i] @ layer_inputs[i].T)
        gram_of_inputs += scale[f"layer_{i}"].get("bias", 0.0) ** 2
        gram += gram_of_inputs[:, None, :, None] * gram_of_derivatives
        if i > 0:
            derivatives = (derivatives @ params[f"layer_{i}"]["weights"].T) * slopes[i - 1][:, None]
    return gram.reshape(n_rows * n_outputs, -1)
