"""Compare an ensemble with its reference, the exact posterior.

The functions compute the ensemble's distances from the reference, the distances that Monte-Carlo error alone causes,
and how far further training moves the members.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.certification.distances import Optimisation, Range, distances
from anchored.certification.references import Reference
from anchored.exact.processes import covariance_root
from anchored.inference.posterior import MemberPosterior, Posterior
from anchored.inference.solvers import gauss_newton
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.training import member_problems
from anchored.methods.anchored_ensemble import AnchoredEnsemble, trained_parameters
from anchored.model.bayesian_model import BayesianModel
from anchored.model.networks import last_layer_mask
from anchored.types import Data

N_SIMULATED = 200  # simulated ensembles of exact draws, to find the Monte-Carlo error
MAX_CONTINUED = 10  # members that are trained further, to see whether they had converged
# With more than MANY_TARGETS targets (rows × outputs), fewer members are trained further, since the time grows with the
# cube of the number of targets
MANY_TARGETS, MAX_CONTINUED_IF_MANY = 1500, 3


def moments(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and s.d. over members of `outputs` (members, points, outputs), each (points, outputs)."""
    return outputs.mean(0), outputs.std(0, ddof=min(1, len(outputs) - 1))


@dataclass(frozen=True)
class Comparison:
    """Computes distances of an ensemble's marginals from the exact ones, by `distances`.

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
        """Return the distances, by name, of marginals with `mean` and `std` (points, outputs).

        `fit_noise_variance` is the noise variance of the fit, (points, outputs), if it differs from the exact model's.
        """
        return distances(
            self.exact_mean, self.exact_std, mean, std, self.noise_variance, fit_noise_variance, self.y_scale
        )


def distances_of_exact_draws(compare: Comparison, reference: Reference, n_members: int) -> dict[str, Range]:
    """Simulate ensembles of exact draws from the reference, whose distances are due to Monte-Carlo error alone.

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
    # All draws come from the component if there is one, otherwise draw i from component i
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
        simulated.append(compare(*moments(reference.aligned(draws))))
    by_name = {name: np.array([found[name] for found in simulated]) for name in simulated[0]}
    return {n: Range(float(v.mean()), *np.quantile(v, [0.025, 0.975]).tolist()) for n, v in by_name.items()}


def train_further(posterior: Posterior, data: Data, points: np.ndarray, exact_std: np.ndarray) -> Optimisation | None:
    """Train some members further, each with the anchor and targets of its fit, and return how far they move.

    Parameters
    ----------
    posterior : Posterior
        The fit.
    data : Data
        Its training rows, in float64.
    points : (points, ...) array
        Inputs at which outputs before and after are compared.
    exact_std : (points, outputs) array
        S.d. of the exact posterior, the unit of the shifts.

    Returns
    -------
    Optimisation or None
        How far the members moved; None if there is no training record, the method is not an anchored ensemble, or its
        members stop early.
    """
    record, model = posterior.record, posterior.target
    if record is None or record.training is None or not isinstance(posterior, MemberPosterior):
        return None
    method = record.method
    if not isinstance(method, AnchoredEnsemble) or getattr(method.solver, "early_stopping", False):
        return None  # members that stop early are not meant to reach their minimum
    max_members = MAX_CONTINUED if data.targets.size <= MANY_TARGETS else MAX_CONTINUED_IF_MANY
    members = np.arange(min(posterior.n_members, max_members))
    trained, anchors = (trees.take(tree, members) for tree in (trained_parameters(posterior), record.training.anchors))
    key = jax.random.wrap_key_data(jnp.asarray(record.key))
    dtype = jax.tree.leaves(trained)[0].dtype
    rows = Data(*(part.astype(dtype) for part in data))
    step_lengths, outputs_before, outputs_after = [], [], []
    with jax.enable_x64(dtype == np.float64):  # draw targets in the precision of the training
        problems = member_problems(key, method.training_config(), model, rows, members)
    trained_model = model if method.trainable == "all" else _with_fixed_features(model, trees.take(trained, 0))
    for i in members.tolist():
        anchor, params_before = trees.take(anchors, i), trees.take(trained, i)
        problem = Data(problems.inputs, problems.targets[i], problems.weights[i])
        step_lengths.append(gauss_newton.full_step(anchor, params_before, trained_model, problem)[1])
        params_after, _, _ = gauss_newton.solve(anchor, params_before, trained_model, problem, GaussNewton(max_iter=20))
        outputs_before.append(model.network.apply(params_before, points))
        outputs_after.append(model.network.apply(params_after, points))
    pairs = zip(moments(np.array(outputs_before)), moments(np.array(outputs_after)), strict=True)
    is_certain = exact_std <= 1e-7 * exact_std.max()  # as for a linear model at 0, where members cannot change
    shifts = (np.where(is_certain, 0, after - before) / np.where(is_certain, 1, exact_std) for before, after in pairs)
    mean_shift, std_shift = (float(np.sqrt(np.mean(shift**2))) for shift in shifts)
    return Optimisation(float(np.mean(step_lengths)), mean_shift, std_shift, len(members))


def _with_fixed_features(model: BayesianModel, params: object) -> BayesianModel:
    """Return `model` with all layers but the last fixed at their anchors, by a tiny prior scale.

    `params` are any parameters of its network, of which only the structure is used.
    """
    mask = last_layer_mask(model.network, params)
    scale = jax.tree.map(lambda is_last, s: s if is_last else np.float64(1e-30), mask, model.prior.scale)
    return replace(model, prior=replace(model.prior, scale=scale))
