"""Mean-field variational inference (Graves 2011; Blundell et al. 2015): the best approximation by independent normals.

Let z = (θ − μ)/s be the parameters whitened by the prior N(μ, s²), so that their prior is standard normal. The
approximation q(z) = Πⱼ N(zⱼ; mⱼ, vⱼ) maximises

    ELBO = E_q[log p(y | f(X; μ + s z))] − ½ Σⱼ (mⱼ² + vⱼ − 1 − log vⱼ).

The second term, KL(q ‖ prior), has a closed form, and the first is estimated by sampling. q ignores correlations: for a
normal posterior with precision matrix Λ, vⱼ is 1/Λⱼⱼ, which is at most the true variance (Λ⁻¹)ⱼⱼ. The spread of the
functions is not always too small, however: for wide networks, q tends to the prior and ignores the data (Coker et al.
2022).

Without data, q is the prior, and members are draws from it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.flatten_util import ravel_pytree

from anchored import checks
from anchored.inference.compilation import jit
from anchored.inference.failures import warn_if_improving
from anchored.inference.posterior import FitRecord, MemberPosterior, Posterior, key_data
from anchored.inference.schedule import half_cosine
from anchored.model.bayesian_model import BayesianModel, negative_log_likelihood
from anchored.types import Array, Data, Key, Number, OnProgress, Params

if TYPE_CHECKING:
    from numpyro.infer import SVI
    from numpyro.infer.svi import SVIState

STEPS_PER_CALL = 100  # steps between reports of progress
INITIAL_SCALE = 0.1  # initial √v; small, so that gradients are not dominated by the noise of sampling


@dataclass(frozen=True)
class VariationalRecord(FitRecord):
    """How the ELBO changed during the optimisation."""

    elbo: np.ndarray = field(kw_only=True)  # (steps,) in nats, without the constant terms of the log-likelihood


@dataclass(frozen=True)
class VariationalInference:
    """Independent normals fitted by Adam; members are draws from them.

    Attributes
    ----------
    n_steps : int
        Number of steps, each on all rows.
    learning_rate : float
        Initial learning rate. It decays to zero along half a cosine.
    n_members : int
        Number of members, drawn from q.
    n_particles : int
        Number of draws of z that estimate the expected log-likelihood in each step.
    """

    n_steps: int = 3000
    learning_rate: float = 0.03
    n_members: int = 200
    n_particles: int = 8

    def fit(self, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None = None) -> Posterior:
        """Maximise the ELBO, draw the members and return the posterior.

        `key`, `model`, `data` and `on_progress` are as in `Method.fit`. The reported loss is −ELBO.
        """
        self.check(model)
        start_key, draw_key = jax.random.split(key)
        state = _start(self.n_particles, start_key, model, data)
        parts: list[np.ndarray] = []
        for first in range(0, self.n_steps, STEPS_PER_CALL):
            n = min(STEPS_PER_CALL, self.n_steps - first)
            state, elbo = _run_steps(self.n_particles, state, model, data, self.learning_rate, self.n_steps, n)
            parts.append(np.asarray(elbo)[:n])
            if on_progress is not None:
                on_progress(n / self.n_steps, -float(parts[-1].mean()))
        curve = np.concatenate(parts)
        warn_if_improving(curve, "VariationalInference", "n_steps")
        members = _draw(state, draw_key, model, data, np.arange(self.n_members))
        record = VariationalRecord(self, key_data(key), model, elbo=curve)
        return MemberPosterior(model, jax.tree.map(np.asarray, members), record)

    def check(self, model: BayesianModel) -> None:
        """Raise a ValueError if a setting is invalid, or an ImportError if NumPyro is missing; accepts any `model`."""
        for name in ("n_steps", "n_members", "n_particles"):
            checks.whole(name, getattr(self, name))
        checks.positive("learning_rate", self.learning_rate)
        checks.installed("numpyro", "VariationalInference", "compare")


@partial(jit, static_argnums=(0,))
def _start(n_particles: int, key: Key, model: BayesianModel, data: Data) -> "SVIState":
    """Return the initial state.

    Means are drawn from the prior: if all were zero, all units of a layer would stay equal.
    """
    return _inference(n_particles, model, data).init(key)


@partial(jit, static_argnums=(0,))
def _run_steps(
    n_particles: int,
    state: "SVIState",
    model: BayesianModel,
    data: Data,
    learning_rate: Number,
    total: Number,
    n_steps: Number,
) -> "tuple[SVIState, Array]":
    """Return the state after `n_steps` more steps of `total`, and the ELBO at each step, padded to STEPS_PER_CALL."""
    inference = _inference(n_particles, model, data, learning_rate, total)
    inference.init(state.rng_key)  # sets up the guide; the state it returns is not used

    def step(i: Array, carry: "tuple[SVIState, jax.Array]") -> "tuple[SVIState, jax.Array]":
        state, elbo = carry
        state, loss = inference.update(state)
        return state, elbo.at[i].set(-loss)

    return jax.lax.fori_loop(0, n_steps, step, (state, jnp.zeros(STEPS_PER_CALL)))


@jit
def _draw(state: "SVIState", key: Key, model: BayesianModel, data: Data, members: Array) -> Params:
    """Return the parameters μ + s (m + √v ε) of each member; `members` holds their numbers, which determine ε."""
    inference = _inference(1, model, data)
    inference.init(key)
    fitted = inference.get_params(state)
    flat, unravel = _ravelled(model, data)

    def draw(member: Array) -> Params:
        normal = jax.random.normal(jax.random.fold_in(key, member), flat.shape, flat.dtype)
        return model.prior.unwhiten(unravel(fitted["z_auto_loc"] + fitted["z_auto_scale"] * normal))

    return jax.vmap(draw)(members)


def _inference(
    n_particles: int, model: BayesianModel, data: Data, learning_rate: Number = 0.0, total: Number = 1
) -> "SVI":
    """Return NumPyro's variational inference, not yet initialised; the learning rate decays over `total` steps."""
    import numpyro
    from numpyro import distributions, infer

    flat, unravel = _ravelled(model, data)

    def joint() -> None:
        z = numpyro.sample("z", distributions.Normal(0, 1).expand(flat.shape).to_event(1))
        numpyro.factor("likelihood", -negative_log_likelihood(model, model.prior.unwhiten(unravel(z)), data))

    def rate(count: Array) -> Array:
        return learning_rate * half_cosine(count / total)

    guide = infer.autoguide.AutoNormal(joint, init_loc_fn=infer.init_to_sample, init_scale=INITIAL_SCALE)
    return infer.SVI(joint, guide, optax.adam(rate), infer.TraceMeanField_ELBO(n_particles))


def _ravelled(model: BayesianModel, data: Data) -> tuple[Array, Callable[[Array], Params]]:
    """Return a vector of all parameters, and the function that turns such a vector into their pytree."""
    flat, unravel = ravel_pytree(model.network.init(jax.random.key(0), data.inputs[:1]))
    return flat, lambda z: unravel(z.astype(flat.dtype))
