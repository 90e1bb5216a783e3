"""Distances of members from a reference: measured, of perfect draws, and after further training."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from anchored import trees
from anchored.certification.diagnosis import Optimisation, Range
from anchored.certification.distances import distances
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

N_PERFECT = 200  # ensembles of perfect draws that are simulated to find the Monte-Carlo error
MAX_CONTINUED = 10  # members that are trained further, to see whether they had converged


def moments(outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and s.d. over members of `outputs` (members, points, outputs), each (points, outputs)."""
    return outputs.mean(0), outputs.std(0, ddof=min(1, len(outputs) - 1))


@dataclass(frozen=True)
class Comparison:
    """Computes distances from the exact marginals, see `distances`."""

    mean: np.ndarray  # exact
    std: np.ndarray  # exact
    noise: np.ndarray
    y_scale: np.ndarray

    def __call__(self, mean: np.ndarray, std: np.ndarray, own_noise: np.ndarray | None = None) -> dict[str, float]:
        """Return distances of marginals with `mean` and `std` (points, outputs), and noise variance `own_noise`."""
        return distances(self.mean, self.std, mean, std, self.noise, own_noise, self.y_scale)


def perfect_distances(compare: Comparison, reference: Reference, n_members: int) -> dict[str, Range]:
    """Simulate ensembles of perfect draws, to find the distances that are due to Monte-Carlo error alone.

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
        Mean and central 95 % interval of each distance.
    """
    rng = np.random.default_rng(0)
    n_components, _, n_outputs = reference.means.shape
    component = np.arange(n_members) % n_components  # one draw given each member's features
    roots = [[covariance_root(c[..., k]) for k in range(n_outputs)] for c in reference.covariances]
    found = []
    for _ in range(N_PERFECT):
        normal = rng.standard_normal((n_members, *reference.means.shape[1:]))
        draws = np.empty_like(normal)
        for c in range(n_components):
            own = component == c
            for k in range(n_outputs):
                draws[own, :, k] = reference.means[c, :, k] + normal[own, :, k] @ roots[c][k].T
        found.append(compare(*moments(reference.aligned(draws))))
    columns = {name: np.array([one[name] for one in found]) for name in found[0]}
    return {n: Range(float(v.mean()), *np.quantile(v, [0.025, 0.975]).tolist()) for n, v in columns.items()}


def train_further(posterior: Posterior, data: Data, points: np.ndarray, exact_std: np.ndarray) -> Optimisation | None:
    """Train some members further, each with its own anchor and targets, and return how far they move.

    Parameters
    ----------
    posterior : Posterior
        The fit.
    data : Data
        Its training rows, in float64.
    points : (points, ...) array
        Inputs at which outputs are compared.
    exact_std : (points, outputs) array
        S.d. of the exact posterior, the unit of the result.

    Returns
    -------
    Optimisation or None
        None if the method is not an anchored ensemble, or its members stop early.
    """
    record, model = posterior.record, posterior.target
    if record is None or record.training is None or not isinstance(posterior, MemberPosterior):
        return None
    method = record.method
    if not isinstance(method, AnchoredEnsemble) or getattr(method.solver, "early_stopping", False):
        return None  # members that stop early are not meant to reach their minimum
    n_numbers = data.targets.size
    members = np.arange(min(posterior.n_members, MAX_CONTINUED if n_numbers <= 1500 else 3))
    trained, anchors = (trees.take(tree, members) for tree in (trained_parameters(posterior), record.training.anchors))
    key = jax.random.wrap_key_data(jnp.asarray(record.key))
    dtype = jax.tree.leaves(trained)[0].dtype
    rows = Data(*(part.astype(dtype) for part in data))
    lengths, before, after = [], [], []
    with jax.enable_x64(dtype == np.float64):  # draw targets in the precision of the training
        stack = member_problems(key, method.training_config(), model, rows, members)
    own = model if method.trainable == "all" else _with_fixed_features(model, trees.take(trained, 0))
    for i in members.tolist():
        anchor, params = trees.take(anchors, i), trees.take(trained, i)
        problem = Data(stack.inputs, stack.targets[i], stack.weights[i])
        lengths.append(gauss_newton.full_step(anchor, params, own, problem)[1])
        further, _, _ = gauss_newton.solve(anchor, params, own, problem, GaussNewton(max_iter=20))
        before.append(model.network.apply(params, points))
        after.append(model.network.apply(further, points))
    (mean, std), (later_mean, later_std) = moments(np.array(before)), moments(np.array(after))
    shifts = ((later - now) / exact_std for later, now in ((later_mean, mean), (later_std, std)))
    mean_shift, std_shift = (float(np.sqrt(np.mean(shift**2))) for shift in shifts)
    return Optimisation(float(np.mean(lengths)), mean_shift, std_shift, len(members))


def _with_fixed_features(model: BayesianModel, params: object) -> BayesianModel:
    """The same model with all layers but the last fixed, by a tiny prior scale."""
    mask = last_layer_mask(model.network, params)
    scale = jax.tree.map(lambda is_last, s: s if is_last else np.float64(1e-30), mask, model.prior.scale)
    return replace(model, prior=replace(model.prior, scale=scale))
