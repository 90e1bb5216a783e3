"""The base class of AnchoredRegressor and AnchoredClassifier, with `warm_start` and `partial_fit`."""

import warnings
from dataclasses import replace
from typing import Self

import jax
import numpy as np
from numpy.typing import ArrayLike

from anchored.estimators import settings
from anchored.estimators.base import BayesianEstimator, fingerprint
from anchored.estimators.candidates import NetworkOption
from anchored.estimators.encoding import PiecewiseLinearEncoding
from anchored.estimators.model_choice import MAX_ROWS_TO_SOLVE, is_auto
from anchored.estimators.progress import Progress
from anchored.inference.anchoring import check_anchoring
from anchored.inference.posterior import MemberPosterior, Method, Posterior, Training
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.short_training import ShortTrainingWarning
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Data, Key, OnProgress, Params

BATCHES_FINGERPRINT = "a stream of batches"  # in place of a hash of the data, after `partial_fit`
HELD_OUT_STREAM = 1  # with the seed, gives early stopping random numbers that nothing else uses


class AnchoredEstimator(BayesianEstimator):
    """Base class of estimators that fit an anchored ensemble, whose settings are arguments of the constructor."""

    posterior_: MemberPosterior  # the members, set by `fit` and `partial_fit`

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the ensemble.

        If `warm_start=True` and there was a fit before, members are added until there are `n_estimators`, and the
        existing members stay the same, bit for bit. The data and the other arguments must be those of the last fit.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        y : (rows,), or (rows, outputs) for a regressor
            Targets.
        sample_weight : (rows,) or None
            The factor of each row's log-likelihood: 2 counts a row twice, 0 ignores it. None means 1 for every row.

        Returns
        -------
        self
        """
        if self.warm_start and hasattr(self, "posterior_"):
            self._check_arguments()
            return self._add_members(*self._validate_training_data(X, y, sample_weight, reset=False))
        super().fit(X, y, sample_weight)
        self._fitted_configuration = self._configuration()
        return self

    @property
    def anchors_(self) -> Params:
        """The anchor of each member, as parameters of the network with a leading member axis on every leaf."""
        return self._training().anchors

    @property
    def loss_curve_(self) -> list[float]:
        """The loss after each epoch, averaged over members."""
        return np.nanmean(self._training().loss_curve, axis=1).tolist()

    @property
    def n_iter_(self) -> int:
        """The largest number of epochs that a member was trained for."""
        return int(np.max(self._training().n_epochs))

    def _training(self) -> Training:
        """Return the record of the members' training."""
        record = self.posterior_.record  # raises an AttributeError before the first fit, as scikit-learn requires
        if record is None or record.training is None:
            raise AttributeError("the posterior has no record of its training")
        return record.training

    def _check_arguments(self) -> None:
        """Raise a ValueError if an argument of the constructor is invalid."""
        settings.check_network(self)
        settings.check_training(self)

    def _build_method(self, n_rows: int) -> AnchoredEnsemble:
        """Return the ensemble that the constructor's arguments describe, with a batch size for `n_rows` rows."""
        anchoring = self.anchoring if np.ndim(self.anchoring) == 0 else tuple(self.anchoring)
        solver = settings.solver(self, n_rows)
        return AnchoredEnsemble(self.n_estimators, anchoring, self.trainable, solver, self.n_jobs)

    def _pilot_config(self, method: Method, n_rows: int, is_noise_free: bool = False) -> TrainingConfig:
        """Return how the ensemble of the fit is trained, whose compiled program pilot members share."""
        assert isinstance(method, AnchoredEnsemble)
        return replace(method, solver=settings.solver(self, n_rows, is_noise_free)).training_config()

    def _method_for(self, method: Method, option: NetworkOption, n_rows: int, is_noise_free: bool) -> Method:
        """Return the ensemble for the chosen `option` and `n_rows` rows; `method` is the one asked for."""
        assert isinstance(method, AnchoredEnsemble)
        return replace(method, trainable=option.trainable, solver=settings.solver(self, n_rows, is_noise_free))

    def _may_solve_last_layer(
        self, method: Method, data: Data, encodings: list[PiecewiseLinearEncoding | None]
    ) -> bool:
        """Return whether a wide network with a last layer in closed form may be chosen for `data`."""
        assert isinstance(method, AnchoredEnsemble)
        is_stream = isinstance(method.solver, FirstOrder) and not method.solver.decay
        asked_for = method.trainable == "last_layer" or self.early_stopping or np.ndim(self.prior_scale) > 0
        must_choose = self.network is None and is_auto(self.hidden_layer_sizes) and None in encodings
        return must_choose and not (asked_for or is_stream) and len(data.weights) <= MAX_ROWS_TO_SOLVE

    def _check_model(self, method: Method, model: BayesianModel) -> None:
        """Raise a ValueError if members of `model` cannot be anchored as `anchoring` says."""
        check_anchoring(self.anchoring, model)

    def _progress_bar(self, method: Method) -> tuple[str, int, str]:
        """Return the title, the length and the unit of the progress bar of a fit by `method`."""
        assert isinstance(method, AnchoredEnsemble)
        return "training members", method.solver.max_iter, "epochs"

    def _infer(
        self, method: Method, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None
    ) -> Posterior:
        """Train the ensemble `method` on standardised `data`, and return the posterior of `model`."""
        assert isinstance(method, AnchoredEnsemble)
        with warnings.catch_warnings():
            if is_auto(self.max_iter):  # the user need not think about the number of epochs
                warnings.simplefilter("ignore", ShortTrainingWarning)
            return method.fit(key, model, data, on_progress, held_out=self._held_out(len(data.weights)))

    def _held_out(self, n_rows: int) -> np.ndarray | None:
        """Return a mask, (rows,), of the rows held out from all members for early stopping; None if that is off."""
        if not self.early_stopping:
            return None
        n_held_out = max(1, round(self.validation_fraction * n_rows))
        if n_held_out >= n_rows:
            raise ValueError(f"early_stopping=True: {n_rows} rows are too few to hold out validation rows")
        order = np.random.default_rng([self.seed_, HELD_OUT_STREAM]).permutation(n_rows)
        return order < n_held_out

    def _add_members(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Self:
        """Train new members until there are `n_estimators`, on the data of the last fit."""
        n_members = self.posterior_.n_members
        if fingerprint(X, y, weights) != self.fingerprint_:
            raise ValueError(
                "warm_start=True adds members to the ensemble and needs the data of the last fit, but X, y or "
                "sample_weight differ. Set warm_start=False to fit a new ensemble, or use partial_fit to train on new "
                "rows."
            )
        changed = [name for name, value in self._configuration().items() if self._fitted_configuration[name] != value]
        if changed:
            raise ValueError(
                f"warm_start=True adds members with the arguments of the last fit, but {changed} changed since then"
            )
        if self.n_estimators < n_members:
            raise ValueError(
                f"n_estimators={self.n_estimators} is smaller than the number of members already fitted, {n_members}"
            )
        if self.n_estimators == n_members:
            return self
        data, method = self._standardised_data(X, y, weights), self._method_of_members()
        key, held_out = jax.random.key(self.seed_), self._held_out(len(weights))
        with Progress(self.verbose).phase(*self._progress_bar(method)) as on_progress:
            before = self.posterior_
            posterior = method.fit(key, before.model, data, on_progress, held_out=held_out, grow=before)
            return self._store_posterior(posterior, data)

    def _method_of_members(self) -> AnchoredEnsemble:
        """Return the ensemble whose members were trained, with the arguments that members do not depend on."""
        method = self.posterior_.record.method if self.posterior_.record is not None else None
        assert isinstance(method, AnchoredEnsemble) and isinstance(method.solver, FirstOrder)
        solver = replace(method.solver, optimizer=self.optimizer)  # an optimiser that is code is not stored in a file
        return replace(method, n_estimators=self.n_estimators, n_jobs=self.n_jobs, solver=solver)

    def _after_loading(self) -> None:
        """Store the arguments of the fit, which a later `fit` with `warm_start` must not change."""
        self._fitted_configuration = self._configuration()

    def _configuration(self) -> dict[str, str]:
        """Return the arguments that members depend on, by name, as text; arguments that are code are left out."""
        left_out = ("n_estimators", "n_jobs", "verbose", "warm_start", "random_state", "network")
        params = self.get_params(deep=False)
        return {n: repr(value) for n, value in params.items() if n not in left_out and not callable(value)}

    def _partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        """Train for one epoch on new rows; the first call also chooses the model and learns the standardisation."""
        self._check_arguments()
        is_first = not hasattr(self, "posterior_")
        X, y, weights = self._validate_training_data(X, y, sample_weight, reset=is_first)
        method = _for_one_pass(self._build_method(len(weights)))
        if is_first:
            data, key = self._fit_preprocessing(method, X, y, weights)
            chosen, model = self._choose_model(method, key, data, Progress(self.verbose))
            method = _for_one_pass(chosen)
            data = data._replace(inputs=self._encoded(data.inputs))
            self.n_rows_seen_, self.weight_seen_ = 0, 0.0
            self._fitted_configuration = self._configuration()
            posterior = method.fit(key, model, data, one_pass=True)
        else:
            data = self._standardised_data(X, y, weights)
            method = replace(method, trainable=self._method_of_members().trainable)
            key = jax.random.fold_in(jax.random.key(self.seed_), self.n_rows_seen_)
            weight_scale = 1 + self.weight_seen_ / weights.sum()  # weight of all rows so far / weight of these rows
            posterior = method.resume(key, self.posterior_, data, weight_scale)
        self.n_rows_seen_ += len(weights)
        self.weight_seen_ += float(weights.sum())
        self.fingerprint_ = BATCHES_FINGERPRINT
        return self._store_posterior(posterior, data)


def _for_one_pass(method: Method) -> AnchoredEnsemble:
    """Return the ensemble `method`, trained for one epoch at a constant learning rate."""
    assert isinstance(method, AnchoredEnsemble) and isinstance(method.solver, FirstOrder)
    return replace(method, solver=replace(method.solver, max_iter=1, decay=False, early_stopping=False))
