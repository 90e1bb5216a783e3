"""The base class of AnchoredRegressor and AnchoredClassifier, which implements `warm_start` and `partial_fit`."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Self

import jax
import numpy as np
from numpy.typing import ArrayLike

from anchored.errors import ArgumentError
from anchored.estimators import checkpoints, settings
from anchored.estimators.base import BayesianEstimator
from anchored.estimators.candidates import NetworkOption
from anchored.estimators.encoding import PiecewiseLinearEncoding
from anchored.estimators.fingerprints import fingerprint
from anchored.estimators.model_choice import MAX_ROWS_OF_WIDE
from anchored.estimators.progress import Progress
from anchored.estimators.streams import RowStream, encoded, store_folder, write_store
from anchored.inference import cluster, pieces, splits
from anchored.inference.anchoring import check_anchoring
from anchored.inference.posterior import MemberPosterior, Method, Posterior, Training
from anchored.inference.solvers.first_order import FirstOrder
from anchored.inference.training import TrainingConfig
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.short_training import ShortTrainingWarning
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Data, Key, OnProgress, Params

BATCHES_FINGERPRINT = "a stream of batches"  # replaces the hash of the training data after `partial_fit`
STREAM_FINGERPRINT = "rows of files"  # replaces the hash if the training data did not fit in memory
HELD_OUT_SEED = 1  # added to the seed sequence of the fit, so that held-out rows are drawn independently of other draws


class AnchoredEstimator(BayesianEstimator):
    """Base class of estimators that fit an anchored ensemble, whose settings are arguments of their constructors."""

    posterior_: MemberPosterior  # the members, set by `fit` and `partial_fit`

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        checkpoint: Path | str | None = None,
    ) -> Self:
        """Train the ensemble.

        If `warm_start=True` and the estimator is already fitted, members are added until there are `n_estimators`. The
        existing members stay the same, bit for bit. The data and the other arguments must be those of the last fit.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        y : (rows,), or (rows, outputs) for a regressor
            Targets.
        sample_weight : (rows,) or None
            The factor of each row's log-likelihood: 2 counts a row twice, 0 ignores it. None means 1 for every row.
        checkpoint : path or None
            A new folder, in which everything that is trained is kept. If the fit is interrupted, the same call
            continues it, and ends with the members of a fit that was never interrupted, bit for bit. Delete the folder
            when the model is saved. If it belongs to a fit of other data, or with other arguments, an ArgumentError is
            raised.

        Returns
        -------
        self
        """
        if self.warm_start and hasattr(self, "posterior_"):
            self._check_arguments()
            X, y, weights = self._validate_training_data(X, y, sample_weight, reset=False)
            with checkpoints.keeping(checkpoint, self, {"X": X, "y": y, "sample_weight": weights}):
                return self._add_members(X, y, weights)
        self._fit(X, y, sample_weight, checkpoint)
        self._fitted_configuration = self._configuration()
        return self

    def fit_stream(self, stream: RowStream, checkpoint: Path | str | None = None) -> Self:
        """Train the ensemble on rows that need not fit in memory; they are stored on disk during the fit.

        The members are those that `fit` trains from the same rows in memory, bit for bit.

        Parameters
        ----------
        stream : RowStream
            The rows: an object with the interface of `anchored.estimators.streams.RowStream`.
        checkpoint : path or None
            A new folder from which an interrupted fit is continued, as in `fit`. The rows are stored in this folder,
            or among the system's temporary files if `checkpoint` is None.

        Returns
        -------
        self
        """
        if stream.n_rows <= pieces.PIECE_ROWS:
            return self.fit(*stream.first_piece(), checkpoint=checkpoint)
        self._check_arguments()
        _check_streamable(self)
        X, y, weights = self._validate_training_data(*stream.first_piece(), None, reset=True)
        self.__dict__.pop("posterior_", None)
        method = replace(self._build_method(stream.n_rows), n_jobs=1)  # the store is on this machine
        identity = {"X": X, "y": y, "files": stream.identity}
        with checkpoints.keeping(checkpoint, self, identity), store_folder(checkpoint) as folder:
            self.n_rows_seen_, self.weight_seen_ = stream.n_rows, float(stream.n_rows)
            first_data, key = self._fit_preprocessing(method, X, y, weights, stream.labels)
            progress = Progress(self.verbose)
            chosen, model = self._choose_model(method, key, first_data, progress)
            first_data = first_data._replace(inputs=self._encoded(first_data.inputs))
            checked = (self._validate_training_data(*batch, None, reset=False) for batch in stream.batches())
            parts = (self._unencoded_data(*batch) for batch in checked)
            with progress.phase("storing rows", stream.n_rows, "rows") as on_progress:
                stored = write_store(folder, stream.n_rows, parts, on_progress)
            data = encoded(stored, self.input_encoding_)
            self.fingerprint_ = STREAM_FINGERPRINT
            title, n_epochs, _ = self._progress_bar(chosen)
            with progress.phase(title, n_epochs * stream.n_rows, "rows") as on_progress:
                self._store_posterior(self._infer(chosen, key, model, data, on_progress), first_data)
        self._fitted_configuration = self._configuration()
        return self

    @property
    def anchors_(self) -> Params:
        """The anchors: parameters of the network, in which the first axis of every array counts the members."""
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
        """Return the ensemble that the constructor's arguments describe, for `n_rows` training rows."""
        anchoring = self.anchoring if np.ndim(self.anchoring) == 0 else tuple(self.anchoring)
        solver = settings.solver(self, n_rows)
        return AnchoredEnsemble(self.n_estimators, anchoring, self.trainable, solver, self.n_jobs)

    def _pilot_config(self, method: Method, n_rows: int, is_nearly_noise_free: bool = False) -> TrainingConfig:
        """Return how members of the fit are trained; pilot members share their compiled program.

        Parameters
        ----------
        method : Method
            The ensemble.
        n_rows : int
            Number of training rows.
        is_nearly_noise_free : bool
            Whether the data have hardly any noise. Such data need more epochs of training.
        """
        assert isinstance(method, AnchoredEnsemble)
        return replace(method, solver=settings.solver(self, n_rows, is_nearly_noise_free)).training_config()

    def _method_for(self, method: Method, option: NetworkOption, n_rows: int, is_nearly_noise_free: bool) -> Method:
        """Return the ensemble for the chosen network; the arguments are those of `ModelChoice._method_for`."""
        assert isinstance(method, AnchoredEnsemble)
        return replace(method, trainable=option.trainable, solver=settings.solver(self, n_rows, is_nearly_noise_free))

    def _may_solve_last_layer(
        self, method: Method, data: Data, encodings: list[PiecewiseLinearEncoding | None]
    ) -> bool:
        """Return whether a wide network whose last layer is solved in closed form may be chosen.

        `encodings` holds the encodings to choose from, for the inputs of `data`.
        """
        assert isinstance(method, AnchoredEnsemble)
        chooses_network = self.network is None and settings.is_auto(self.hidden_layer_sizes) and None in encodings
        is_partial_fit = isinstance(method.solver, FirstOrder) and not method.solver.decay
        is_excluded = method.trainable == "last_layer" or self.early_stopping or np.ndim(self.prior_scale) > 0
        return chooses_network and not (is_partial_fit or is_excluded) and len(data.weights) <= MAX_ROWS_OF_WIDE

    def _check_model(self, method: Method, model: BayesianModel) -> None:
        """Raise a ValueError if the argument `anchoring` cannot be used with `model`."""
        check_anchoring(self.anchoring, model)

    def _progress_bar(self, method: Method) -> tuple[str, int, str]:
        """Return the title, the length and the unit of the progress bar of a fit by `method`."""
        assert isinstance(method, AnchoredEnsemble)
        return "training members", method.solver.max_iter, "epochs"

    def _infer(
        self, method: Method, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None
    ) -> Posterior:
        """Train the ensemble `method` on standardised and encoded `data`, and return the posterior of `model`."""
        assert isinstance(method, AnchoredEnsemble)
        with warnings.catch_warnings():
            if settings.is_auto(self.max_iter):  # a user who leaves the number of epochs to "auto" need not be warned
                warnings.simplefilter("ignore", ShortTrainingWarning)
            return method.fit(key, model, data, on_progress, held_out=self._held_out(data))

    def _held_out(self, data: Data) -> np.ndarray | None:
        """Return a mask, (rows,), of the rows of `data` held out for early stopping; None without early stopping.

        Copies of a row are held out together.
        """
        if not self.early_stopping:
            return None
        n_rows = len(data.weights)
        order = np.argsort(np.random.default_rng([self.seed_, HELD_OUT_SEED]).permutation(n_rows))
        n_held_out = max(1, round(self.validation_fraction * n_rows))
        mask = splits.held_out(splits.first_copies(data.inputs, data.targets), order, n_held_out)
        if mask.all():
            reason = f"needs rows to hold out, but none of the {n_rows} rows would then remain to train on"
            raise ArgumentError("early_stopping", reason, "set early_stopping=False")
        return mask

    def _add_members(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Self:
        """Train further members until there are `n_estimators`; X, y and `weights` must be those of the last fit."""
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
                f"warm_start=True adds members with the arguments of the last fit, but {changed} have changed"
            )
        if self.n_estimators < n_members:
            raise ValueError(
                f"n_estimators={self.n_estimators} is smaller than the number of members already fitted, {n_members}"
            )
        if self.n_estimators == n_members:
            return self
        data, method = self._standardised_data(X, y, weights), self._fitted_method()
        key, held_out = jax.random.key(self.seed_), self._held_out(data)
        with Progress(self.verbose).phase(*self._progress_bar(method)) as on_progress:
            existing = self.posterior_
            posterior = method.fit(key, existing.model, data, on_progress, held_out=held_out, existing=existing)
            return self._store_posterior(posterior, data)

    def _fitted_method(self) -> AnchoredEnsemble:
        """Return the ensemble of the last fit, with the current `n_estimators`, `n_jobs` and `optimizer`."""
        method = self.posterior_.record.method if self.posterior_.record is not None else None
        assert isinstance(method, AnchoredEnsemble) and isinstance(method.solver, FirstOrder)
        solver = replace(method.solver, optimizer=self.optimizer)  # a function is not stored in a file
        return replace(method, n_estimators=self.n_estimators, n_jobs=self.n_jobs, solver=solver)

    def _after_loading(self) -> None:
        """Store the arguments of the fit, because a later `fit` with `warm_start=True` must have the same."""
        self._fitted_configuration = self._configuration()

    def _configuration(self) -> dict[str, str]:
        """Return the `repr` of each argument that members depend on, by name, except for functions and networks."""
        omitted = ("n_estimators", "n_jobs", "verbose", "warm_start", "random_state", "network")
        params = self.get_params(deep=False)
        return {name: repr(value) for name, value in params.items() if name not in omitted and not callable(value)}

    def _partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> Self:
        """Train for one epoch on new rows; the first call also learns the standardisation and chooses the model."""
        self._check_arguments()
        is_first = not hasattr(self, "posterior_")
        X, y, weights = self._validate_training_data(X, y, sample_weight, reset=is_first)
        method = _for_one_epoch(self._build_method(len(weights)))
        if is_first:
            with cluster.using(self.n_jobs):
                self.n_rows_seen_ = len(weights)
                data, key = self._fit_preprocessing(method, X, y, weights, y)
                chosen, model = self._choose_model(method, key, data, Progress(self.verbose))
                method = _for_one_epoch(chosen)
                data = data._replace(inputs=self._encoded(data.inputs))
                self.n_rows_seen_, self.weight_seen_ = 0, 0.0
                self._fitted_configuration = self._configuration()
                posterior = method.fit(key, model, data, will_resume=True)
        else:
            data = self._standardised_data(X, y, weights)
            method = replace(method, trainable=self._fitted_method().trainable)
            key = jax.random.fold_in(jax.random.key(self.seed_), self.n_rows_seen_)
            weight_scale = 1 + self.weight_seen_ / weights.sum()  # weight of all rows so far, relative to the new rows
            posterior = method.resume(key, self.posterior_, data, weight_scale)
        self.n_rows_seen_ += len(weights)
        self.weight_seen_ += float(weights.sum())
        self.fingerprint_ = BATCHES_FINGERPRINT
        return self._store_posterior(posterior, data)


def _for_one_epoch(method: Method) -> AnchoredEnsemble:
    """Return the ensemble `method` with a solver that trains for one epoch at a constant learning rate."""
    assert isinstance(method, AnchoredEnsemble) and isinstance(method.solver, FirstOrder)
    return replace(method, solver=replace(method.solver, max_iter=1, decay=False, early_stopping=False))


def _check_streamable(estimator: AnchoredEstimator) -> None:
    """Raise an ArgumentError if an argument of `estimator` needs all rows in memory."""
    if estimator.early_stopping:
        raise ArgumentError("early_stopping", "needs all rows in memory, but there are too many", "use False")
    if estimator.n_jobs not in (None, 1):
        raise ArgumentError("n_jobs", "sends all rows to workers, but there are too many", "use None")
    if isinstance(estimator.anchoring, str) and estimator.anchoring == "randomized":
        raise ArgumentError("anchoring", "draws noise for all rows at once, but there are too many", 'use "prior"')
    if estimator.trainable == "last_layer":
        raise ArgumentError("trainable", "needs all rows in memory, but there are too many", 'use "all"')
