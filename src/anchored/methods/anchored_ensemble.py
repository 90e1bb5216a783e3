"""Anchored ensembles (Pearce et al. 2018): members trained about their own draws from the prior."""

import warnings
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.exceptions import ConvergenceWarning

from anchored.likelihoods import Gaussian
from anchored.methods.method import Posterior
from anchored.model import BayesianModel
from anchored.networks import CorrectedNetwork
from anchored.priors import Prior
from anchored.solvers import blocks
from anchored.solvers.first_order import FirstOrder
from anchored.solvers.gauss_newton import GaussNewton
from anchored.training import (
    Anchoring,
    OnProgress,
    Recipe,
    Rows,
    Trained,
    as_rows,
    block_width,
    closed_form,
    directions,
    joined,
    same_model,
    train,
)
from anchored.types import Data, Key

STILL_FALLING = 0.25  # a loss that fell by more than this share over the last fifth was cut short


@dataclass(frozen=True)
class AnchoredEnsemble:
    """M networks, each the minimum of eq. 2 about its own anchor; their spread is the posterior."""

    n_estimators: int = 10
    anchoring: Anchoring = "prior"  # "prior", "randomized", or κ: one, or one a layer
    trainable: str = "all"  # "all" or "last_layer"
    solver: FirstOrder | GaussNewton = FirstOrder()
    n_jobs: int | None = None
    tangent_correction: bool = False  # add δ(x) to each member, for the posterior under the tangent kernel

    def fit(
        self,
        key: Key,
        model: BayesianModel,
        data: Data,
        held_out: np.ndarray | None = None,
        grow: Posterior | None = None,
        on_progress: OnProgress | None = None,
        warn: bool = True,
    ) -> Posterior:
        """Train members 0 to M−1, or only those that `grow` does not have yet.

        Early stopping watches the rows that `held_out` marks. `warn` names members cut short.
        """
        recipe = self.recipe(model)
        rows = as_rows(data, held_out=None if closed_form(recipe, model) else held_out)
        first = 0 if grow is None else grow.n_members
        trained = self._train_members(key, recipe, model, rows, first, on_progress)
        if grow is not None:
            both = (grow.diagnostics["trained"], trained)
            trained = joined([part._replace(optimizer_state=None) for part in both])
        if warn:
            _warn_if_short(self.solver, trained)
        return self._posterior(key, model, trained, data)

    def resume(self, key: Key, posterior: Posterior, data: Data, stands_for: float = 1.0) -> Posterior:
        """Go on from where the members are: anchors and optimisers kept, the data new.

        The rows stand for a data set `stands_for` times their size, which is what the anchor term is divided by.
        """
        if self.tangent_correction:
            raise ValueError("tangent_correction=True: members with a correction cannot go on with new rows; fit anew")
        recipe = self.recipe(posterior.model)
        lanes = same_model(posterior.model, np.arange(posterior.n_members))
        rows = as_rows(data)._replace(stands_for=stands_for)
        trained = train(key, recipe, lanes, rows, posterior.diagnostics["trained"])
        return self._posterior(key, posterior.model, trained, data)

    def recipe(self, model: BayesianModel) -> Recipe:
        """How lanes are trained; raises where the model does not allow it."""
        if not isinstance(model.likelihood, Gaussian):
            if self.tangent_correction:
                raise ValueError("tangent_correction=True needs the Gaussian likelihood")
            if isinstance(self.solver, GaussNewton):
                raise ValueError("solver: GaussNewton needs the Gaussian likelihood; use FirstOrder")
        return Recipe(self.anchoring, self.trainable, self.solver, self.tangent_correction)

    def _posterior(self, key: Key, model: BayesianModel, trained: Trained, data: Data) -> Posterior:
        diagnostics = {"trained": trained, "method": self, "key": np.asarray(jax.random.key_data(key))}
        if not self.tangent_correction:
            return Posterior(model, trained.params, diagnostics)
        direction = directions(key, model, np.arange(len(trained.n_epochs)), data.inputs)
        members = {"trained": trained.params, "anchor": trained.anchors, "direction": direction}
        network = CorrectedNetwork(model.network)
        prior = Prior(*(dict.fromkeys(members, tree) for tree in (model.prior.mean, model.prior.scale)))
        return Posterior(BayesianModel(network, prior, model.likelihood), members, diagnostics)

    def _train_members(
        self, key: Key, recipe: Recipe, model: BayesianModel, rows: Rows, first: int, on_progress: OnProgress | None
    ) -> Trained:
        """Whole blocks, shared out among joblib's workers; then only the members asked for are kept."""
        width = block_width(recipe, model.network, rows)
        begin, end = first // width, -(-self.n_estimators // width)
        n_jobs = min(effective_n_jobs(self.n_jobs), end - begin)
        shares = [np.arange(s[0] * width, (s[-1] + 1) * width) for s in np.array_split(np.arange(begin, end), n_jobs)]
        if n_jobs == 1:
            parts = [train(key, recipe, same_model(model, shares[0]), rows, None, on_progress, self.n_estimators)]
        else:
            as_numpy = jax.tree.map(np.asarray, (model, rows))
            seed = np.asarray(jax.random.key_data(key))
            double = blocks.in_double()
            work = (
                delayed(_train_share)(seed, recipe, *as_numpy, share, self.n_estimators, double) for share in shares
            )
            parts = Parallel(n_jobs=self.n_jobs)(work)
        everyone = joined(parts)
        kept = slice(first - begin * width, self.n_estimators - begin * width)
        return everyone.lanes(kept)


def _train_share(seed, recipe, model, rows, members, n_wanted, double) -> Trained:
    """One worker's members; runs in another process, perhaps on another machine."""
    with jax.enable_x64(double):
        key = jax.random.wrap_key_data(jnp.asarray(seed))
        return train(key, recipe, same_model(model, members), rows, n_wanted=n_wanted)


def _warn_if_short(solver: FirstOrder | GaussNewton, trained: Trained) -> None:
    """Name the members whose training was cut short."""
    rounds, remedy = "epochs", "Raise max_iter, or learning_rate_init"
    if isinstance(solver, GaussNewton):
        short = np.flatnonzero(trained.n_epochs >= solver.max_iter)
        why, rounds, remedy = "still gained from every step", "steps", "Raise max_iter"
    elif solver.early_stopping:
        short = np.flatnonzero(trained.n_epochs >= solver.max_iter)
        why = "had not stopped improving on the held-out rows"
    else:
        curve = trained.loss_curve
        last, earlier = curve[-1], curve[int(0.8 * (len(curve) - 1))]
        short = np.flatnonzero(earlier - last > STILL_FALLING * np.abs(last))
        why = "still had a falling loss"
    if len(short):
        names = ", ".join(map(str, short[:10])) + (", …" if len(short) > 10 else "")
        warnings.warn(
            f"member {names} {why} after max_iter={solver.max_iter} {rounds}. {remedy}.",
            ConvergenceWarning,
            stacklevel=5,  # where the user called fit
        )
