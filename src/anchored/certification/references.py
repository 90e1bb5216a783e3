"""The exact posterior that a fit is compared with.

Where the last layer alone is trained, the posterior given each member's features is known at any width (Proposition 1).
Otherwise the reference is the Gaussian process of infinitely wide layers, which any fit may be compared with; or, for a
small network, what a sampler draws at its own width.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.exact.kernels import kernel_of, tangent_kernel
from anchored.exact.last_layer import last_layer_distribution
from anchored.exact.processes import ConditionedProcess, GaussianProcess
from anchored.exact.wide_limit import wide_limit
from anchored.inference.posterior import MemberPosterior, Method, Posterior
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.hmc import HMC
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import CorrectedNetwork
from anchored.types import Data

MOST_FEATURES = 100  # members whose features are looked at
GIVEN_FEATURES = (
    "the last layer's posterior given each member's features (Proposition 1), exact at any width; the features stay "
    "draws from the prior, where the network's own posterior would weigh them by the data"
)


class Reference(NamedTuple):
    """The exact posterior at some points: one normal, or one for each member given its features."""

    means: np.ndarray  # (components, points, outputs)
    covariances: np.ndarray  # (components, points, points, outputs)
    predicted: tuple[np.ndarray, np.ndarray] | None  # mean and s.d. in theory of members anchored in this way
    description: str
    asymptotic: bool  # whether it is a limit that the network is only near

    @property
    def mean(self) -> np.ndarray:
        """Of a member on average, (points, outputs)."""
        return self.means.mean(0)

    @property
    def std(self) -> np.ndarray:
        """Of a member on average, given its features, (points, outputs)."""
        return np.sqrt(np.maximum(np.einsum("ciik->cik", self.covariances), 0).mean(0))

    def aligned(self, outputs: np.ndarray) -> np.ndarray:
        """Members as if all had the average features: each standardised by its own law, then moved to the average one.

        What is left is how they are drawn, which is what is to be judged; features of their own would hide it.
        """
        component = np.arange(len(outputs)) % len(self.means)
        return self.mean + (outputs - self.means[component]) / self._own_std[component] * self.std

    @property
    def _own_std(self) -> np.ndarray:
        """Of each component; not quite zero where none of its features is active."""
        own = np.sqrt(np.maximum(np.einsum("ciik->cik", self.covariances), 0))
        return np.maximum(own, np.maximum(1e-6 * self.std, np.finfo(float).tiny))


def nearest(posterior: Posterior, data: Data, points: np.ndarray) -> Reference:
    """The closed form that is nearest to what the method is to draw from, given the data."""
    method = method_of(posterior)
    if isinstance(method, AnchoredEnsemble) and _features_are_of_the_prior(method):
        assert isinstance(posterior, MemberPosterior)
        return _given_features(method, posterior, data, points)
    return wide(posterior, data, points, tangent=isinstance(posterior.model.network, CorrectedNetwork))


def wide(posterior: Posterior, data: Data, points: np.ndarray, tangent: bool = False) -> Reference:
    """The process of infinitely wide layers, and what theory predicts for the method, both given the data."""
    method = method_of(posterior)
    predicted = None
    if isinstance(method, AnchoredEnsemble) and np.ndim(method.anchoring) == 0 and method.anchoring != 0:
        named = isinstance(method.anchoring, str)
        predicted = _wide_law(method, posterior, data, points) if named or not method.tangent_correction else None
    mean, covariance = wide_process(posterior, data, tangent).predict(points, return_cov=True)
    return Reference(mean[None], covariance[None], predicted, *_described(posterior.target, tangent))


def sampled(method: HMC, posterior: Posterior, data: Data, points: np.ndarray) -> Reference:
    """The posterior as a sampler draws it, at the network's own width."""
    double = jnp.result_type(float)
    numbers = np.zeros(2, np.uint32) if posterior.record is None else posterior.record.key
    key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(numbers)), 1)
    found = method.fit(key, posterior.target, Data(*(np.asarray(part, double) for part in data)))
    outputs = np.asarray(found.outputs(points.astype(found.dtype)), np.float64)[..., : data.targets.shape[1]]
    centred = outputs - outputs.mean(0)
    covariance = np.einsum("mik,mjk->ijk", centred, centred) / (len(outputs) - 1)
    worth = f"worth at least {found.n_effective:.0f} independent ones"
    description = f"{len(outputs)} draws by {type(method).__name__} at this width, {worth}"
    return Reference(outputs.mean(0)[None], covariance[None], None, description, False)


def wide_process(posterior: Posterior, data: Data, tangent: bool = False) -> ConditionedProcess:
    """The process of the model's network with infinitely wide layers, or of its tangent kernel, given the data."""
    kernel = kernel_of(posterior.target)
    noise = noise_of(posterior.target, data)
    return GaussianProcess(tangent_kernel(kernel) if tangent else kernel, noise).condition(*data)


def method_of(posterior: Posterior) -> Method | None:
    """How the posterior was found, where that is known."""
    return None if posterior.record is None else posterior.record.method


def noise_of(model: BayesianModel, data: Data) -> np.ndarray:
    """The noise variance of each output, as the members' loss has it."""
    noise = model.likelihood.noise_variance  # type: ignore[attr-defined]
    return np.broadcast_to(np.asarray(noise, np.float64), data.targets.shape[1:])


def _wide_law(
    method: AnchoredEnsemble, posterior: Posterior, data: Data, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and s.d. of infinitely many, infinitely wide members.

    Eq. 2 divided by κ is that of the prior κs² and the noise κσ², with anchors from that prior.
    """
    model, named = posterior.target, isinstance(method.anchoring, str)
    anchoring, kappa = (method.anchoring, 1.0) if named else ("prior", float(method.anchoring))  # type: ignore[arg-type]
    scale = jax.tree.map(lambda s: kappa**0.5 * np.asarray(s), model.prior.scale)
    kernel = kernel_of(replace(model, prior=replace(model.prior, scale=scale)))
    weights = np.broadcast_to(data.weights, data.targets.shape)
    laws = []
    for k, noise in enumerate(noise_of(posterior.target, data)):
        limit = wide_limit(kernel, kappa * noise, str(anchoring), method.trainable, method.tangent_correction)
        laws.append(limit.distribution(data.inputs, data.targets[:, k], points, weights[:, k]))
    means, covariances = (np.stack(part, axis=-1) for part in zip(*laws, strict=True))
    return means, np.sqrt(np.maximum(np.einsum("iik->ik", covariances), np.finfo(float).tiny))


def _features_are_of_the_prior(method: AnchoredEnsemble) -> bool:
    """Whether all but the last layer are frozen at draws from the prior itself: κ scales them too."""
    if method.trainable == "all" or method.tangent_correction:
        return False
    return isinstance(method.anchoring, str) or (
        np.ndim(method.anchoring) > 0 and bool(np.all(np.asarray(method.anchoring)[:-1] == 1))
    )


def _given_features(method: AnchoredEnsemble, posterior: MemberPosterior, data: Data, points: np.ndarray) -> Reference:
    """Proposition 1 for every member."""
    members = [trees.take(posterior.members, i) for i in range(min(posterior.n_members, MOST_FEATURES))]
    law = partial(last_layer_distribution, posterior.model, data=data, points=points)
    exact = [law(member) for member in members]
    kappa = 1.0 if isinstance(method.anchoring, str) else float(np.ravel(method.anchoring)[-1])
    noisy = method.anchoring == "randomized"
    laws = exact if noisy else [law(member, anchor_kappa=kappa, noisy_targets=False) for member in members]
    means, covariances = (np.stack(part) for part in zip(*exact, strict=True))
    reference = Reference(means, covariances, None, GIVEN_FEATURES, False)
    ratio = np.sqrt([np.maximum(np.einsum("iik->ik", law[1]), 0) for law in laws]) / reference._own_std
    return reference._replace(predicted=(reference.mean, reference.std * np.sqrt(np.mean(ratio**2, axis=0))))


def _described(model: BayesianModel, tangent: bool) -> tuple[str, bool]:
    """What the process is of, and whether it is only a limit."""
    what = "tangent-kernel process" if tangent else "Gaussian process"
    sizes = model.network.hidden_layer_sizes  # type: ignore[attr-defined]  # others have no kernel
    if not sizes:
        return f"the {what} of this linear model, which is exact", False
    width = "-".join(map(str, sizes))
    return f"the {what} of infinitely wide layers; asymptotic, since this network has {width} units", True
