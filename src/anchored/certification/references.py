"""References: exact posteriors that fits are compared with.

A member's features are the outputs of its last hidden layer. If only the last layer is trained, the posterior given
each member's features is known at any width (Proposition 1 in docs/ideas/limit.md). Otherwise the reference is the
Gaussian process that the network converges to at infinite width, or draws from the posterior of the network itself.

`posterior.target` is the model passed to `fit`. `posterior.model` is the model of the members, to which a method may
have added parts, such as the tangent correction. The `anchoring` of a method is a name, or κ, the variance of the
anchors divided by that of the prior: one number, or one for each layer.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.errors import ArgumentError
from anchored.exact.kernels import kernel_of, tangent_kernel
from anchored.exact.last_layer import last_layer_distribution
from anchored.exact.processes import ConditionedProcess, GaussianProcess
from anchored.exact.wide_limit import wide_limit
from anchored.inference.posterior import MemberPosterior, Method, Posterior
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.hmc import HMC
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import MLP, CorrectedNetwork, RBFNetwork
from anchored.types import Data

MAX_COMPONENTS = 100  # largest number of members whose features are used, each for one component of the reference
GIVEN_FEATURES = (
    "the last layer's posterior given each member's features (Proposition 1), exact at any width; the features are "
    "draws from the prior, whereas the full posterior of the network would weight them by the data"
)


class Reference(NamedTuple):
    """The posterior that a fit is compared with, at some points.

    It has one or several components. A component is a normal distribution: the posterior itself, or the posterior given
    one member's features.
    """

    means: np.ndarray  # (components, points, outputs)
    covariances: np.ndarray  # (components, points, points, outputs)
    # Mean and standard deviation (s.d.) that theory predicts for the outputs of infinitely many members, once
    # `aligned` has been applied to them, (points, outputs) each
    predicted: tuple[np.ndarray, np.ndarray] | None
    description: str  # in words, for reports
    asymptotic: bool  # whether the posterior is the limit of infinite width, which the network only approximates

    @property
    def mean(self) -> np.ndarray:
        """Mean, averaged over components, (points, outputs)."""
        return self.means.mean(0)

    @property
    def std(self) -> np.ndarray:
        """Root mean square of the components' standard deviations, (points, outputs).

        It does not include the spread of their means, which `aligned` removes from the members too.
        """
        return np.sqrt(np.maximum(np.einsum("ciik->cik", self.covariances), 0).mean(0))

    def aligned(self, outputs: np.ndarray) -> np.ndarray:
        """Return the members' `outputs` without the effect of their different features.

        Each member's outputs are standardised by the mean and s.d. of its component, and then rescaled to the mean and
        s.d. of the whole reference. If there are several components, member i belongs to component i, and there must be
        at least as many components as members. `outputs` and the result have the shape (members, points, outputs).
        """
        component = np.zeros(len(outputs), int) if len(self.means) == 1 else np.arange(len(outputs))
        return self.mean + (outputs - self.means[component]) / self._component_std[component] * self.std

    @property
    def _component_std(self) -> np.ndarray:
        """Standard deviation of each component, (components, points, outputs).

        Where no feature of a member is active, the standard deviation is zero, and is replaced by a tiny number.
        """
        std = np.sqrt(np.maximum(np.einsum("ciik->cik", self.covariances), 0))
        return np.maximum(std, np.maximum(1e-6 * self.std, np.finfo(float).tiny))


def closed_form(posterior: Posterior, data: Data, points: np.ndarray) -> Reference:
    """Return the posterior in closed form that suits the method of a fit.

    Parameters
    ----------
    posterior : Posterior
        The fit.
    data : Data
        The training rows, in float64.
    points : (points, ...) array
        Inputs at which marginals are compared.

    Returns
    -------
    Reference
        The posterior given the members' features, if only the last layer was trained and the other layers are draws
        from the prior; otherwise the posterior of infinitely wide layers, with the tangent kernel if the members have
        the tangent correction.
    """
    method = method_of(posterior)
    if isinstance(method, AnchoredEnsemble) and _has_prior_features(method):
        assert isinstance(posterior, MemberPosterior)
        return _given_features(method, posterior, data, points)
    return wide(posterior, data, points, use_tangent_kernel=isinstance(posterior.model.network, CorrectedNetwork))


def wide(posterior: Posterior, data: Data, points: np.ndarray, use_tangent_kernel: bool = False) -> Reference:
    """Return the posterior of infinitely wide layers, and the mean and s.d. that theory predicts for the method.

    `posterior`, `data` and `points` are as in `closed_form`. `use_tangent_kernel` says whether to use the tangent
    kernel instead of the prior covariance of the outputs. Raises an ArgumentError if the network has no closed form.
    """
    check_closed_form(posterior)
    method = method_of(posterior)
    predicted = None
    if isinstance(method, AnchoredEnsemble) and _has_wide_limit(method):
        predicted = _wide_distribution(method, posterior, data, points)
    mean, covariance = wide_process(posterior, data, use_tangent_kernel).predict(points, return_cov=True)
    return Reference(mean[None], covariance[None], predicted, *_describe(posterior.target, use_tangent_kernel))


def check_closed_form(posterior: Posterior) -> None:
    """Raise an ArgumentError if the network of `posterior` has no closed form; it names settings that have one."""
    network = posterior.target.network
    if not isinstance(network, MLP | RBFNetwork):
        raise ArgumentError(
            "fitted",
            f"has a {type(network).__name__}, for which infinitely wide layers have no closed form",
            'fit with trainable="last_layer", which has a closed form for any network whose last_layer is set, or with '
            "hidden_layer_sizes instead of network; or pass reference=HMC(), which samples the posterior",
        )


def sampled(method: HMC, posterior: Posterior, data: Data, points: np.ndarray) -> Reference:
    """Return the posterior of the network itself, sampled by `method`.

    `posterior`, `data` and `points` are as in `closed_form`.
    """
    dtype = jnp.result_type(float)
    key_data = np.zeros(2, np.uint32) if posterior.record is None else posterior.record.key
    key = jax.random.fold_in(jax.random.wrap_key_data(jnp.asarray(key_data)), 1)  # not the key of the fit itself
    samples = method.fit(key, posterior.target, Data(*(np.asarray(part, dtype) for part in data)))
    outputs = np.asarray(samples.outputs(points.astype(samples.dtype)), np.float64)
    outputs = outputs[..., : data.targets.shape[1]]  # without log-variance outputs
    centred = outputs - outputs.mean(0)
    covariance = np.einsum("mik,mjk->ijk", centred, centred) / (len(outputs) - 1)
    size = f"with an effective sample size of at least {samples.n_effective:.0f}"
    description = f"{len(outputs)} draws of this network by {type(method).__name__}, {size}"
    return Reference(outputs.mean(0)[None], covariance[None], None, description, False)


def wide_process(posterior: Posterior, data: Data, use_tangent_kernel: bool = False) -> ConditionedProcess:
    """Return the Gaussian process of `posterior.target` with infinitely wide layers, conditioned on `data`.

    `use_tangent_kernel` says whether to use the tangent kernel instead of the prior covariance of the
    outputs.
    """
    kernel = kernel_of(posterior.target)
    noise = noise_of(posterior.target, data)
    return GaussianProcess(tangent_kernel(kernel) if use_tangent_kernel else kernel, noise).condition(*data)


def method_of(posterior: Posterior) -> Method | None:
    """Return the method by which `posterior` was fitted; None if there is no record of the fit."""
    return None if posterior.record is None else posterior.record.method


def noise_of(model: BayesianModel, data: Data) -> np.ndarray:
    """Return the noise variance of `model` for each output of `data`, shape (outputs,)."""
    noise = model.likelihood.noise_variance  # type: ignore[attr-defined]
    return np.broadcast_to(np.asarray(noise, np.float64), data.targets.shape[1:])


def _has_wide_limit(method: AnchoredEnsemble) -> bool:
    """Return whether the wide limit of the members is known.

    It is not known if there is a κ for each layer, if κ = 0, or if κ is given together with the tangent correction.
    """
    if isinstance(method.anchoring, str):
        return True
    return np.ndim(method.anchoring) == 0 and method.anchoring != 0 and not method.tangent_correction


def _wide_distribution(
    method: AnchoredEnsemble, posterior: Posterior, data: Data, points: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and s.d. over infinitely many, infinitely wide members at `points`, (points, outputs) each.

    Anchors whose variance is κ times the prior variance s² are draws from a prior with variance κs². The noise
    and prior variances enter the anchored loss (see `inference.anchoring.anchored_loss`) only as σ²/s², so that it is
    the same as for this prior and the noise variance κσ².
    """
    model, is_named = posterior.target, isinstance(method.anchoring, str)
    anchoring, kappa = (method.anchoring, 1.0) if is_named else ("prior", float(method.anchoring))  # type: ignore[arg-type]
    scale = jax.tree.map(lambda s: kappa**0.5 * np.asarray(s), model.prior.scale)
    kernel = kernel_of(replace(model, prior=replace(model.prior, scale=scale)))
    weights = np.broadcast_to(data.weights, data.targets.shape)
    distributions = []
    for k, noise in enumerate(noise_of(posterior.target, data)):
        limit = wide_limit(kernel, kappa * noise, str(anchoring), method.trainable, method.tangent_correction)
        distributions.append(limit.distribution(data.inputs, data.targets[:, k], points, weights[:, k]))
    means, covariances = (np.stack(part, axis=-1) for part in zip(*distributions, strict=True))
    return means, np.sqrt(np.maximum(np.einsum("iik->ik", covariances), np.finfo(float).tiny))


def _has_prior_features(method: AnchoredEnsemble) -> bool:
    """Return whether all layers but the last are fixed at draws from the prior itself, so that their κ is 1."""
    if method.trainable == "all" or method.tangent_correction:
        return False
    if isinstance(method.anchoring, str):
        return True
    kappas = np.atleast_1d(method.anchoring)
    return bool(np.all((kappas if len(kappas) == 1 else kappas[:-1]) == 1))


def _given_features(method: AnchoredEnsemble, posterior: MemberPosterior, data: Data, points: np.ndarray) -> Reference:
    """Return the posterior given each member's features, by Proposition 1, and what theory predicts for members."""
    members = [trees.take(posterior.members, i) for i in range(min(posterior.n_members, MAX_COMPONENTS))]
    distribution = partial(last_layer_distribution, posterior.model, data=data, points=points)
    exact = [distribution(member) for member in members]
    kappa = 1.0 if isinstance(method.anchoring, str) else float(np.ravel(method.anchoring)[-1])
    theoretical = exact
    if method.anchoring != "randomized":
        theoretical = [distribution(member, anchor_kappa=kappa, noisy_targets=False) for member in members]
    means, covariances = (np.stack(part) for part in zip(*exact, strict=True))
    reference = Reference(means, covariances, None, GIVEN_FEATURES, False)
    variances = [np.maximum(np.einsum("iik->ik", covariance), 0) for _, covariance in theoretical]
    # After `aligned`, theory predicts the mean of the reference, and its s.d. multiplied by this ratio
    ratio = np.sqrt(variances) / reference._component_std
    return reference._replace(predicted=(reference.mean, reference.std * np.sqrt(np.mean(ratio**2, axis=0))))


def _describe(model: BayesianModel, use_tangent_kernel: bool) -> tuple[str, bool]:
    """Return a description of the process of `model`, and whether it is only the limit of infinite width."""
    process = "tangent-kernel process" if use_tangent_kernel else "Gaussian process"
    sizes = model.network.hidden_layer_sizes  # type: ignore[attr-defined]  # other networks have no kernel
    if not sizes:
        return f"the {process} of this linear model, which is exact", False
    width = "-".join(map(str, sizes))
    return f"the {process} of infinitely wide layers; asymptotic, since the layers have {width} units", True
