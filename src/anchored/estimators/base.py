"""The base class of all estimators: `fit`, and the validation and standardisation of data."""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from anchored import checks, trees
from anchored.errors import ArgumentError, DataMismatchError
from anchored.estimators import checkpoints, settings
from anchored.estimators.encoding import EncodedInputs
from anchored.estimators.fingerprints import fingerprint
from anchored.estimators.guarantee import Guarantee
from anchored.estimators.model_choice import ModelChoice
from anchored.estimators.progress import Progress
from anchored.estimators.standardisation import Standardisation
from anchored.inference import cluster, compilation, pieces, workers
from anchored.inference.posterior import MemberPosterior, Method, Posterior
from anchored.inference.training import TrainingConfig
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.types import Array, Data, Key, OnProgress, RandomState, Units

MIN_WEIGHT, MAX_WEIGHT = 1e-30, 1e30  # allowed range of the largest weight, well within the range of float32


class BayesianEstimator(ModelChoice):
    """Base class of estimators with scikit-learn's interface, which fit a Bayesian neural network.

    Arguments set to "auto" are chosen before the fit by cross-validation with pilot members: members that are trained
    for fewer epochs, each without one fold of the rows.
    """

    pilot_epochs: int  # pilot members are trained for a fraction of this; anchored estimators use `max_iter` instead
    posterior_: Posterior  # set by `fit`
    guarantee_: Guarantee | None  # set by `conformalize`; a later fit sets it to None

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Infer the posterior from training data.

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
        return self._fit(X, y, sample_weight, None)

    # Steps of a fit

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, checkpoint: Path | str | None) -> Self:
        """Infer the posterior; everything that is trained is kept in the folder `checkpoint`, if one is given."""
        self._check_arguments()
        X, y, weights = self._validate_training_data(X, y, sample_weight, reset=True)
        self.__dict__.pop("posterior_", None)  # a fit that fails must not leave the posterior of an earlier fit
        with checkpoints.keeping(checkpoint, self, {"X": X, "y": y, "sample_weight": weights}):
            return self._fit_validated(X, y, weights)

    def _fit_validated(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Self:
        """Infer the posterior from checked training data."""
        method = self._build_method(len(weights))
        precision = jax.enable_x64(True) if getattr(method, "needs_float64", False) else nullcontext()
        with cluster.using(getattr(method, "n_jobs", 1)), precision:
            part = pieces.first_piece(len(weights))  # everything but the members is learnt from the first piece
            self.n_rows_seen_, self.weight_seen_ = len(weights), float(weights.sum())
            first_data, key = self._fit_preprocessing(method, X[part], y[part], weights[part], y)
            progress = Progress(self.verbose)
            method, model = self._choose_model(method, key, first_data, progress)
            first_data = first_data._replace(inputs=self._encoded(first_data.inputs))
            is_all = len(first_data.weights) == len(weights)
            data = first_data if is_all else self._standardised_data(X, y, weights)
            self.fingerprint_ = fingerprint(X, y, weights)
            with progress.phase(*self._progress_bar(method)) as on_progress:
                return self._store_posterior(self._infer(method, key, model, data, on_progress), first_data)

    def _check_arguments(self) -> None:
        """Raise a ValueError if an argument of the constructor is invalid."""
        settings.check_network(self)
        settings.check_method(self.method)

    def _build_method(self, n_rows: int) -> Method:
        """Return the inference method for training data of `n_rows` rows."""
        return self.method

    def _progress_bar(self, method: Method) -> tuple[str, int, str]:
        """Return the title, the length and the unit of the progress bar of a fit by `method`."""
        return type(method).__name__, 100, "%"

    def _infer(
        self, method: Method, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None
    ) -> Posterior:
        """Run `method` on standardised `data`, and return the posterior of `model`."""
        return method.fit(key, model, data, on_progress)

    def _validate_training_data(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return X, y and the weights as checked arrays, without the rows whose weight is zero.

        `reset` says whether the columns of X, and the outputs or classes of y, may differ from those of the last fit.
        """
        raise NotImplementedError

    def _drop_zero_weights(
        self, X: np.ndarray, y: np.ndarray, sample_weight: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Check `sample_weight`, and return X, y and the weights of the rows whose weight is positive."""
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        is_used = weights > 0
        if not is_used.any():
            raise ValueError("sample_weight: all weights are zero; at least two rows need a positive weight")
        if is_used.sum() == 1 and len(is_used) > 1:
            raise ValueError("sample_weight: all weights but one are zero; at least two rows need a positive weight")
        largest = weights.max()
        if not MIN_WEIGHT <= largest <= MAX_WEIGHT:
            size, remedy = ("small", "multiply") if largest < MIN_WEIGHT else ("large", "divide")
            raise ValueError(
                f"sample_weight: {largest:.0e} is too {size} for float32; {remedy} all weights by a constant"
            )
        return X[is_used], y[is_used], weights[is_used]

    def _fit_preprocessing(
        self, method: Method, X: np.ndarray, y: np.ndarray, weights: np.ndarray, labels: np.ndarray
    ) -> tuple[Data, Key]:
        """Draw the seed and learn the standardisation; return standardised data and the random key of the fit.

        `labels` must hold every class at least once: they are the targets of all rows, whereas `y` may hold the targets
        of some rows only, or the classes themselves.
        """
        if cluster.current() is None:
            workers.check(getattr(method, "n_jobs", 1))  # raises before any pilot member is trained
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        is_part = len(weights) < self.n_rows_seen_
        self.x_standardisation_, self.input_encoding_ = Standardisation.fit(X, weights, "X", is_part=is_part), None
        self._fit_target_transform(y, weights, labels)
        return self._standardised_data(X, y, weights), jax.random.key(self.seed_)

    def _fit_target_transform(self, y: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> None:
        """Learn the standardisation of the targets `y` of rows with these `weights`, or the classes in `labels`."""
        raise NotImplementedError

    def _transform_targets(self, y: np.ndarray) -> np.ndarray:
        """Return the targets `y` for training: standardised, (rows, outputs), or as class indices, (rows,)."""
        raise NotImplementedError

    def _outlier_weights(self, y: np.ndarray) -> np.ndarray | float:
        """Return factors of the rows' weights, (rows, 1) or 1, which are below 1 for outliers among the targets `y`."""
        return 1.0

    def _standardised_data(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Data:
        """Return training data with standardised and encoded inputs and transformed targets.

        All arrays of numbers are in JAX's default precision.
        """
        data = self._unencoded_data(X, y, weights)
        return data._replace(inputs=self._encoded(data.inputs))

    def _unencoded_data(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Data:
        """Return what `_standardised_data` returns, but with inputs that are not encoded."""
        dtype = jnp.result_type(float)
        inputs = self.x_standardisation_.transform_inputs(X, dtype, "X")
        return Data(inputs, self._transform_targets(y), (weights[:, None] * self._outlier_weights(y)).astype(dtype))

    def _encoded(self, inputs: Array) -> Array:
        """Return standardised `inputs`, (..., columns), encoded by `input_encoding_`, as the network takes them."""
        return inputs if self.input_encoding_ is None else self.input_encoding_.transform(inputs)

    def _n_features(self) -> int:
        """Return the number of features that the network takes."""
        return self.n_features_in_ if self.input_encoding_ is None else self.input_encoding_.n_features

    def _choose_model(self, method: Method, key: Key, data: Data, progress: Progress) -> tuple[Method, BayesianModel]:
        """Choose the arguments set to "auto", and return the inference method and the model to fit.

        Sets `input_encoding_`, `prior_scale_` and `candidates_`.

        Parameters
        ----------
        method : Method
            The inference method that the constructor's arguments describe.
        key : Key
            Random key of the fit.
        data : Data
            Training rows, whose inputs are standardised but not encoded.
        progress : Progress
            Progress bars.
        """
        raise NotImplementedError

    def _pilot_config(self, method: Method, n_rows: int, is_nearly_noise_free: bool = False) -> TrainingConfig:
        """Return how pilot members are trained on `n_rows` rows, except for the number of epochs.

        They are members of an anchored ensemble, whatever `method` is. `is_nearly_noise_free` is not used.
        """
        return AnchoredEnsemble(solver=settings.pilot_solver(self.pilot_epochs, n_rows)).training_config()

    def _check_model(self, method: Method, model: BayesianModel) -> None:
        """Raise a ValueError if `method` cannot fit `model`."""
        method.check(model)

    def _store_posterior(self, posterior: Posterior, data: Data) -> Self:
        """Set `posterior_`, the posterior given `data`, and attributes that depend on it."""
        self.posterior_, self.guarantee_ = posterior, None
        return self

    # Prediction

    def _standardised_inputs(self, X: ArrayLike) -> np.ndarray:
        """Check X, (rows, columns), and return it standardised and encoded, in the precision of the posterior.

        For a MemberPosterior, rows are encoded only when they are predicted, chunk by chunk.
        """
        check_is_fitted(self)
        compilation.check_process()
        rows = numeric_data(self, X, dtype=np.float64, reset=False)
        inputs = self.x_standardisation_.transform_inputs(rows, self.posterior_.dtype, "X")
        if self.input_encoding_ is not None and isinstance(self.posterior_, MemberPosterior):
            return EncodedInputs(inputs, self.input_encoding_)  # type: ignore[return-value]  # acts like an array
        return np.asarray(self._encoded(inputs))

    def _calibration_rows(self, X: ArrayLike, y: ArrayLike) -> tuple[np.ndarray, np.ndarray, str]:
        """Check the calibration rows X and y of a guarantee, and return them as arrays, with their fingerprint.

        Raises an ArgumentError if they are the training rows.
        """
        check_is_fitted(self)
        X, y, weights = self._validate_training_data(X, y, None, reset=False)
        found = fingerprint(X, y, weights)
        if found == self.fingerprint_:
            raise ArgumentError("X, y", "are the rows that the model was fitted to", "pass rows that it has not seen")
        return X, y, found

    def _require_guarantee(self) -> Guarantee:
        """Return the guarantee that `conformalize` has set; raise a NotFittedError if there is none."""
        check_is_fitted(self)
        if self.guarantee_ is None:
            raise NotFittedError("the model guarantees nothing yet; call conformalize with rows that it has not seen")
        return self.guarantee_

    def _member_functions(
        self, n_samples: int, random_state: RandomState, convert: Callable[[Array, int], jax.Array]
    ) -> list[Callable]:
        """Draw members without replacement, and return them as functions of unstandardised inputs.

        Parameters
        ----------
        n_samples : int
            Number of members.
        random_state : int, RandomState or None
            Random seed.
        convert : function
            Called with the outputs of the network, (rows, outputs), and the number of dimensions of the inputs, which
            is 1 for a single row; returns the value of a function.

        Returns
        -------
        list of functions
            Functions of inputs, (columns,) or (rows, columns).
        """
        check_is_fitted(self)
        checks.whole("n_samples", n_samples)
        posterior = self.posterior_
        if not isinstance(posterior, MemberPosterior):
            raise ValueError("method: an exact Gaussian process has no members; use sample_y")
        n_members = posterior.n_members
        if n_samples > n_members:
            raise ValueError(
                f"n_samples={n_samples}, but the ensemble has only {n_members} members, each of which is one function. "
                f"Add members by set_params(warm_start=True, n_estimators={n_samples}).fit(X, y) with the training "
                "data, or choose a larger number of members for the method."
            )
        chosen = check_random_state(random_state).permutation(n_members)[:n_samples]
        standardisation, network = self.x_standardisation_, posterior.model.network

        def as_function(index: int) -> Callable:
            member = trees.take(posterior.members, index)

            def function(inputs: ArrayLike) -> jax.Array:
                if not isinstance(inputs, jax.Array):
                    inputs = np.asarray(inputs, np.float64)  # so that a large mean is subtracted in float64
                inputs = jnp.asarray((inputs - standardisation.mean) / standardisation.scale)
                inputs = self._encoded(standardisation.compressed(inputs))
                return convert(network.apply(member, jnp.atleast_2d(inputs)), inputs.ndim)

            return function

        return [as_function(int(index)) for index in chosen]

    def _for_certificate(
        self, X: ArrayLike, y: ArrayLike, X_eval: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Posterior, Data, np.ndarray | None, Units]:
        """Return what a certificate compares with the exact posterior.

        Parameters
        ----------
        X, y, sample_weight
            The training data of the fit. Other data raise a DataMismatchError.
        X_eval : (points, columns) or None
            Inputs at which the posteriors are compared.

        Returns
        -------
        posterior : Posterior
            The posterior of the fit.
        data : Data
            The standardised training data.
        points : (points, features) or None
            `X_eval`, standardised and encoded; None if `X_eval` is None.
        units : Units
            The units of y.
        """
        check_is_fitted(self)
        X, y, weights = self._validate_training_data(X, y, sample_weight, reset=False)
        if fingerprint(X, y, weights) != self.fingerprint_:
            raise DataMismatchError(
                "X, y, sample_weight",
                "are not the data of the fit",
                "pass the training data in the same order; a model trained by partial_fit cannot be certified",
            )
        points = None if X_eval is None else self._standardised_inputs(X_eval)[:]
        return self.posterior_, self._standardised_data(X, y, weights), points, self._target_units()

    def _target_units(self) -> Units:
        """Return the units of y, to which standardised outputs are converted; by default they are not converted."""
        return Units()

    def _after_loading(self) -> None:
        """Set attributes of a loaded estimator that follow from those in its file; by default there are none."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")


def numeric_data(estimator: BaseEstimator, X: ArrayLike, *arguments: ArrayLike, **options: Any) -> Any:
    """Call scikit-learn's `validate_data` with the same arguments; errors about a data frame X name the column."""
    _refuse_columns(X, "mM")  # dates and durations, which NumPy would read as nanoseconds
    try:
        return validate_data(estimator, X, *arguments, **options)
    except (TypeError, ValueError):
        _refuse_columns(X, "OmMSUTVc")
        raise


def _refuse_columns(X: object, kinds: str) -> None:
    """Raise an ArgumentError if X is a data frame with a column whose type is one of NumPy's `kinds`, or unknown."""
    dtypes = getattr(X, "dtypes", None)
    if dtypes is None:
        return
    for name, dtype in zip(getattr(X, "columns", ()), dtypes):
        kind = getattr(dtype, "kind", "f" if hasattr(dtype, "is_numeric") and dtype.is_numeric() else "O")
        if kind in kinds:
            remedy = "use anchored.tables.TableRegressor or TableClassifier, which take such data frames"
            raise ArgumentError("X", f"has the column {name!r} of type {dtype}, not of numbers", remedy)
