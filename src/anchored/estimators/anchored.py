"""What AnchoredRegressor and AnchoredClassifier share: an anchored ensemble that grows, and goes on with new rows."""

from dataclasses import replace
from typing import Self

import jax
import numpy as np
from numpy.typing import ArrayLike

from anchored.estimators import settings
from anchored.estimators.base import BayesianEstimator, fingerprint
from anchored.estimators.progress import Progress
from anchored.inference.anchoring import check_anchoring
from anchored.inference.posterior import MemberPosterior, Method, Posterior, Training
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Data, Key, OnProgress, Params

STREAM = "a stream of batches"  # in the place of a fingerprint


class AnchoredEstimator(BayesianEstimator):
    """An anchored ensemble, set up by flat arguments. Not for use by itself."""

    posterior_: MemberPosterior

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the ensemble.

        With `warm_start=True` and a larger `n_estimators`, only the new members are trained: give the same data
        again. The members already there stay as they are, bit for bit.

        Args:
            X: (rows, columns) numbers.
            y: (rows,), or (rows, outputs) for a regressor.
            sample_weight: (rows,) What each row's log-likelihood is multiplied by: 2 counts a row twice, 0 leaves it
                out. None for 1.

        Returns:
            The estimator itself.
        """
        if getattr(self, "warm_start", False) and hasattr(self, "posterior_"):
            self._check_arguments()
            return self._grow(*self._read(X, y, sample_weight, reset=False))
        super().fit(X, y, sample_weight)
        self._fitted_with = self._configuration()
        return self

    @property
    def anchors_(self) -> Params:
        """The draws that members are anchored to; every leaf has a leading member axis."""
        return self._training().anchors

    @property
    def loss_curve_(self) -> list[float]:
        """Mean loss over members after each epoch."""
        return np.nanmean(self._training().loss_curve, axis=1).tolist()

    @property
    def n_iter_(self) -> int:
        """Epochs, of the member that ran longest."""
        return int(np.max(self._training().n_epochs))

    def _training(self) -> Training:
        record = self.posterior_.record  # an AttributeError before the first fit, as scikit-learn wants it
        if record is None or record.training is None:
            raise AttributeError("the posterior has no record of its training")
        return record.training

    def _check_arguments(self) -> None:
        settings.check_network(self)
        settings.check_training(self)

    def _build_method(self, n_rows: int) -> AnchoredEnsemble:
        anchoring = self.anchoring if np.ndim(self.anchoring) == 0 else tuple(self.anchoring)
        solver = settings.solver(self, n_rows)
        return AnchoredEnsemble(self.n_estimators, anchoring, self.trainable, solver, self.n_jobs)

    def _pilot_method(self, n_rows: int) -> AnchoredEnsemble:
        return self._build_method(n_rows)

    def _check_model(self, method: Method, model: BayesianModel) -> None:
        check_anchoring(self.anchoring, model)

    def _phase(self, method: Method) -> tuple[str, int, str]:
        assert isinstance(method, AnchoredEnsemble)
        return "training members", method.solver.max_iter, "epochs"

    def _infer(
        self, method: Method, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None
    ) -> Posterior:
        assert isinstance(method, AnchoredEnsemble)
        return method.fit(key, model, data, on_progress, held_out=self._held_out(len(data.weights)))

    def _held_out(self, n_rows: int) -> np.ndarray | None:
        """The rows that early stopping watches, the same for all members; None without it."""
        if not self.early_stopping:
            return None
        n_held_out = max(1, round(self.validation_fraction * n_rows))
        if n_held_out >= n_rows:
            raise ValueError(f"early_stopping=True: {n_rows} rows are too few to hold any out")
        order = np.random.default_rng([self.seed_, 1]).permutation(n_rows)
        return order < n_held_out

    def _grow(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Self:
        n_members = self.posterior_.n_members
        if fingerprint(X, y, weights) != self.fingerprint_:
            raise ValueError(
                "warm_start=True grows the ensemble on the data it was fitted to, and these are other data. Set "
                "warm_start=False to fit anew, or use partial_fit to go on with new rows."
            )
        changed = [name for name, value in self._configuration().items() if self._fitted_with[name] != value]
        if changed:
            raise ValueError(f"warm_start=True grows the ensemble as it was fitted, but {changed} changed since then")
        if self.n_estimators < n_members:
            raise ValueError(f"n_estimators={self.n_estimators} is smaller than the {n_members} members fitted already")
        if self.n_estimators == n_members:
            return self
        data, method = self._data(X, y, weights), self._build_method(len(weights))
        key, held_out = jax.random.key(self.seed_), self._held_out(len(weights))
        with Progress(self.verbose).phase(*self._phase(method)) as on_progress:
            old = self.posterior_
            return self._keep(method.fit(key, old.model, data, on_progress, held_out=held_out, grow=old), data)

    def _after_loading(self) -> None:
        self._fitted_with = self._configuration()

    def _configuration(self) -> dict[str, str]:
        """The arguments a member depends on, as text; those that are code are left out."""
        free = ("n_estimators", "n_jobs", "verbose", "warm_start", "random_state", "network")
        params = self.get_params(deep=False)
        return {n: repr(value) for n, value in params.items() if n not in free and not callable(value)}

    def _partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        """One pass over new rows; the first call fits everything else."""
        self._check_arguments()
        first = not hasattr(self, "posterior_")
        X, y, weights = self._read(X, y, sample_weight, reset=first)
        method = self._build_method(len(weights))
        one_pass = replace(settings.solver(self, len(weights)), max_iter=1, decay=False, early_stopping=False)
        method = replace(method, solver=one_pass)
        if first:
            data, key = self._begin(method, X, y, weights)
            model = self._choose_model(method, key, data, Progress(self.verbose))
            self.n_rows_seen_, self.weight_seen_ = 0, 0.0
            self._fitted_with = self._configuration()
            posterior = method.fit(key, model, data, one_pass=True)
        else:
            data = self._data(X, y, weights)
            key = jax.random.fold_in(jax.random.key(self.seed_), self.n_rows_seen_)
            weight_scale = 1 + self.weight_seen_ / weights.sum()
            posterior = method.resume(key, self.posterior_, data, weight_scale)
        self.n_rows_seen_ += len(weights)
        self.weight_seen_ += float(weights.sum())
        self.fingerprint_ = STREAM
        return self._keep(posterior, data)
