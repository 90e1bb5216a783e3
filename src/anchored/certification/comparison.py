"""Compare an ensemble with its reference, the exact posterior.

This module computes the distances between the two, the distances that Monte-Carlo error alone would cause, and how far
further training moves the members.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.certification.distances import Optimisation, Range, distances
from anchored.certification.references import Reference
from anchored.exact.padding import with_zeros
from anchored.exact.processes import covariance_root
from anchored.inference.posterior import MemberPosterior, Posterior
from anchored.inference.solvers import gauss_newton
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import member_problems
from anchored.methods.anchored_ensemble import AnchoredEnsemble, trained_parameters
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import last_layer_mask
from anchored.types import Data

N_SIMULATED = 200  # number of simulated ensembles of exact draws, from which the Monte-Carlo error is estimated
MAX_CONTINUED = 10  # largest number of members that are trained further, to see whether they had converged
# If there are more than MANY_TARGETS targets (rows × outputs), fewer members are trained further, since the time grows
# with the cube of the number of targets
MANY_TARGETS, MAX_CONTINUED_IF_MANY = 1500, 3


def mean_and_std(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the standard deviation (s.d.) over members, (points, outputs) each.

    `outputs` has the shape (members, points, outputs).
    """
    return outputs.mean(0), outputs.std(0, ddof=min(1, len(outputs) - 1))


@dataclass(frozen=True)
class Comparison:
    """Computes the `distances` of an ensemble's marginals from the exact marginals.

    Attributes
    ----------
    exact_mean, exact_std : (points, outputs) array
        Mean and s.d. of the exact marginals.
    noise_variance : (outputs,) array
        Noise variance of the exact model.
    y_scale : (outputs,) array
        Factor that converts the means and standard deviations to units of y.
    """

    exact_mean: np.ndarray
    exact_std: np.ndarray
    noise_variance: np.ndarray
    y_scale: np.ndarray

    def __call__(
        self, mean: np.ndarray, std: np.ndarray, fit_noise_variance: np.ndarray | None = None
    ) -> dict[str, float]:
        """Return the distances, by name, of marginals with `mean` and `std`, (points, outputs) each.

        `fit_noise_variance`, (points, outputs), is the noise variance of the fit, if it differs from that of the exact
        model.
        """
        return distances(
            self.exact_mean, self.exact_std, mean, std, self.noise_variance, fit_noise_variance, self.y_scale
        )


def distances_of_exact_draws(compare: Comparison, reference: Reference, n_members: int) -> dict[str, Range]:
    """Return the distances of simulated ensembles of exact draws, which are due to Monte-Carlo error alone.

    Parameters
    ----------
    compare : Comparison
        Computes distances from the reference.
    reference : Reference
        The exact posterior.
    n_members : int
        Number of draws in each ensemble.

    Returns
    -------
    dict of str to Range
        Mean and central 95 % interval of each distance over the simulated ensembles.
    """
    rng = np.random.default_rng(0)
    n_components, _, n_outputs = reference.means.shape
    # If there is one component, all draws come from it; otherwise draw i comes from component i
    component = np.arange(n_members) % n_components
    roots = [[covariance_root(c[..., k]) for k in range(n_outputs)] for c in reference.covariances]
    simulated = []
    for _ in range(N_SIMULATED):
        normal = rng.standard_normal((n_members, *reference.means.shape[1:]))
        draws = np.empty_like(normal)
        for c in range(n_components):
            in_component = component == c
            for k in range(n_outputs):
                draws[in_component, :, k] = reference.means[c, :, k] + normal[in_component, :, k] @ roots[c][k].T
        simulated.append(compare(*mean_and_std(reference.aligned(draws))))
    by_name = {name: np.array([found[name] for found in simulated]) for name in simulated[0]}
    return {
        name: Range(float(values.mean()), *np.quantile(values, [0.025, 0.975]).tolist())
        for name, values in by_name.items()
    }


def train_further(posterior: Posterior, data: Data, points: np.ndarray, exact_std: np.ndarray) -> Optimisation | None:
    """Train some members further, each with its own anchor and targets, and return how far they move.

    Parameters
    ----------
    posterior : Posterior
        The fit.
    data : Data
        The training rows, in float64.
    points : (points, ...) array
        Inputs at which the outputs before and after the further training are compared.
    exact_std : (points, outputs) array
        S.d. of the exact posterior, the unit of the shifts.

    Returns
    -------
    Optimisation or None
        How far the members moved; None if there is no record of their training, the method is not an anchored
        ensemble, or it uses early stopping.
    """
    record, model = posterior.record, posterior.target
    if record is None or record.training is None or not isinstance(posterior, MemberPosterior):
        return None
    method = record.method
    if not isinstance(method, AnchoredEnsemble) or getattr(method.solver, "early_stopping", False):
        return None  # with early stopping, members are not meant to reach the minimum
    max_members = MAX_CONTINUED if data.targets.size <= MANY_TARGETS else MAX_CONTINUED_IF_MANY
    members = np.arange(min(posterior.n_members, max_members))
    trained, anchors = (trees.take(tree, members) for tree in (trained_parameters(posterior), record.training.anchors))
    key = jax.random.wrap_key_data(jnp.asarray(record.key))
    dtype = jax.tree.leaves(trained)[0].dtype
    rows = with_zeros(Data(*(part.astype(dtype) for part in data)))
    step_lengths, outputs_before, outputs_after = [], [], []
    with jax.enable_x64(dtype == np.float64):  # draw targets in the precision that members were trained in
        problems = member_problems(key, method.training_config(), model, rows, members)
    trained_model = model if method.trainable == "all" else _with_fixed_features(model, trees.take(trained, 0))
    for i in members.tolist():
        anchor, params_before = trees.take(anchors, i), trees.take(trained, i)
        problem = Data(problems.inputs, problems.targets[i], problems.weights[i])
        step_lengths.append(gauss_newton.full_step(anchor, params_before, trained_model, problem)[1])
        params_after, _, _ = gauss_newton.solve(anchor, params_before, trained_model, problem, GaussNewton(max_iter=20))
        outputs_before.append(model.network.apply(params_before, points))
        outputs_after.append(model.network.apply(params_after, points))
    pairs = zip(mean_and_std(np.array(outputs_before)), mean_and_std(np.array(outputs_after)), strict=True)
    is_certain = exact_std <= 1e-7 * exact_std.max()  # for example at x = 0 in a linear model, where nothing can move
    shifts = (np.where(is_certain, 0, after - before) / np.where(is_certain, 1, exact_std) for before, after in pairs)
    mean_shift, std_shift = (float(np.sqrt(np.mean(shift**2))) for shift in shifts)
    return Optimisation(float(np.mean(step_lengths)), mean_shift, std_shift, len(members))


def _with_fixed_features(model: BayesianModel, params: object) -> BayesianModel:
    """Return `model` with a tiny prior scale for all layers but the last, which fixes them at their anchors.

    Only the structure of `params`, parameters of its network, is used.
    """
    mask = last_layer_mask(model.network, params)
    scale = jax.tree.map(lambda is_last, s: s if is_last else np.float64(1e-30), mask, model.prior.scale)
    return replace(model, prior=replace(model.prior, scale=scale))
