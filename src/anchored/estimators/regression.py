"""The mixin of the regressors: choice of the noise variance and the prior scale, and predictions in units of y."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from anchored import checks
from anchored.estimators import noise, selection
from anchored.estimators.base import numeric_data
from anchored.estimators.candidates import Candidate
from anchored.estimators.model_choice import as_prior_scale, layer_scales
from anchored.estimators.progress import Progress
from anchored.estimators.standardisation import TARGET_SCALE_RANGE, Standardisation
from anchored.inference.posterior import MemberPosterior, Method, Posterior
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian, Likelihood
from anchored.model.predictive import Predictive, Shape
from anchored.types import Data, Key, RandomState, Units

MAX_DECADES = 20  # largest |log₁₀(noise variance / variance of y)|, so that float32 can hold both


class RegressionMixin(RegressorMixin):
    """Mixin that adds to a BayesianEstimator the methods of a regressor."""

    pilot_epochs = 800
    noise_model_: MemberPosterior | None  # how the noise varies with x, fitted to residuals; None without such a fit
    candidates_: list[Candidate]  # what was chosen from, the chosen one first
    noise_shape_: Shape  # of observations about the mean; normal if the noise is given

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the mean of each row, and optionally the standard deviation or the covariance between rows.

        Standard deviation and covariance include the observation noise; `predict_dist` separates epistemic and
        aleatoric variance.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        return_std : bool
            Whether to return the standard deviations of observations too, in units of y and in the shape of the mean.
        return_cov : bool
            Whether to return the covariances of observations too, in squared units of y, (rows, rows) or
            (rows, rows, outputs).

        Returns
        -------
        array, or pair of arrays
            The mean in units of y, (rows,) or (rows, outputs); if `return_std` or `return_cov`, a pair of the mean and
            the standard deviations or covariances.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be true")
        inputs = self._standardised_inputs(X)
        predictive = self._predictive(inputs)
        if return_cov:
            return predictive.mean, self._covariance(inputs)
        return (predictive.mean, predictive.std) if return_std else predictive.mean

    def predict_dist(self, X: ArrayLike) -> Predictive:
        """Return the predictive distribution of each row of X, (rows, columns).

        It has the methods of a frozen distribution of SciPy, and holds the mean in units of y, and the epistemic and
        the aleatoric variance in squared units of y.
        """
        return self._predictive(self._standardised_inputs(X))

    def predict_interval(self, X: ArrayLike, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends of an interval for each row of X.

        The interval is central and contains an observation with probability `coverage`, between 0 and 1. Both ends are
        in units of y and have the shape (rows,) or (rows, outputs).
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        return self.predict_dist(X).interval(coverage)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: RandomState = 0) -> np.ndarray:
        """Draw observations: each sample is one member's outputs for all rows, plus observation noise.

        Over many samples, an observation has the distribution that `predict_dist` returns.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        n_samples : int
            How many samples to draw; their members are drawn with replacement.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        (rows, n_samples), or (rows, outputs, n_samples)
            Samples in units of y.
        """
        checks.whole("n_samples", n_samples)
        rng = check_random_state(random_state)
        inputs, to_y = self._standardised_inputs(X), self.y_standardisation_
        outputs = self.posterior_.sample_outputs(inputs, n_samples, rng)
        values = outputs[..., : len(to_y.mean)] * to_y.scale + to_y.mean
        predictive = self._predictive_by_output(inputs)
        noise = np.sqrt(predictive.aleatoric_variance) * rng.standard_normal(values.shape)
        observations = values + noise
        if not self.noise_shape_.is_normal:
            normal = (observations - predictive.mean) / predictive.std
            observations = predictive.ppf(special.ndtr(normal))
        return np.moveaxis(self._squeeze_outputs(observations), 0, -1)

    def sample_functions(self, n_samples: int = 1, random_state: RandomState = None) -> list[Callable]:
        """Draw functions from the posterior, without replacement.

        Parameters
        ----------
        n_samples : int
            How many functions to draw, at most the number of members.
        random_state : int, RandomState or None
            Random seed.

        Returns
        -------
        list of functions
            Differentiable JAX functions from inputs, (columns,) or (rows, columns), to outputs in units of y, without
            noise.
        """
        check_is_fitted(self)
        mean, scale = self.y_standardisation_.mean, self.y_standardisation_.scale

        def finish(outputs, n_dimensions):
            values = outputs[..., : len(mean)] * scale + mean
            values = values[..., 0] if self.y_is_vector_ else values
            return values[0] if n_dimensions == 1 else values

        return self._member_functions(n_samples, random_state, finish)

    @property
    def training_noise_variance_(self) -> float | np.ndarray:
        """The noise variance σ² in the members' loss, in squared units of y: a number, or (outputs,).

        For the loss see `inference.anchoring.anchored_loss`.
        """
        likelihood = self.posterior_.target.likelihood
        if not isinstance(likelihood, Gaussian):
            raise AttributeError(f"a {type(likelihood).__name__} likelihood has no noise variance to train with")
        variance = np.broadcast_to(np.asarray(likelihood.noise_variance), len(self.y_standardisation_.scale))
        return self._scalar_or_array(variance * self.y_standardisation_.scale**2)

    # Fitting

    def _validate_training_data(self, X, y, sample_weight, reset):
        """Return checked X, y and weights; unless `reset`, y must have as many outputs as in the last fit."""
        options = {
            "dtype": np.float64,
            "multi_output": True,
            "y_numeric": True,
            "ensure_min_samples": 2 if reset else 1,
        }
        X, y = numeric_data(self, X, y, reset=reset, **options)
        y = np.asarray(y, np.float64)
        n_outputs = _as_columns(y).shape[1]
        if not reset and n_outputs != len(self.y_standardisation_.mean):
            raise ValueError(f"y has {n_outputs} outputs, but the model has {len(self.y_standardisation_.mean)}")
        return self._drop_zero_weights(X, y, sample_weight)

    def _fit_target_transform(self, y: np.ndarray, weights: np.ndarray) -> None:
        """Learn the standardisation of y, and whether y is one-dimensional."""
        self.y_is_vector_ = y.ndim == 1
        self.y_standardisation_ = Standardisation.fit(_as_columns(y), weights, "y", TARGET_SCALE_RANGE)

    def _transform_targets(self, y: np.ndarray) -> np.ndarray:
        """Return y standardised, (rows, outputs)."""
        return self.y_standardisation_.transform_targets(_as_columns(y), "y").astype(jnp.result_type(float))

    def _outlier_weights(self, y: np.ndarray) -> np.ndarray:
        """Return factors of the weights, (rows, 1), that are below 1 for targets unlike all others."""
        return self.y_standardisation_.outlier_weights(self.y_standardisation_.transform_targets(_as_columns(y), "y"))

    def _target_units(self) -> Units:
        """Return mean and standard deviation of each output of y."""
        return Units(self.y_standardisation_.scale, self.y_standardisation_.mean)

    def _given_likelihood(self, n_outputs: int) -> Likelihood | None:
        """Return the likelihood that the arguments give, in units of y, or None if the noise is to be estimated.

        Raises a ValueError if it is invalid.
        """
        raise NotImplementedError

    def _is_heteroscedastic(self) -> bool:
        """Whether the noise must be modelled as a function of x, even if constant noise predicts better."""
        raise NotImplementedError

    def _choose_model(self, method: Method, key: Key, data: Data, progress: Progress) -> tuple[Method, BayesianModel]:
        """Choose the prior scale and the noise variances of training and observation; return the method and the model.

        Those that the arguments give are not chosen. Sets `prior_scale_` and the attributes that describe the noise.
        """
        n_outputs, dtype = data.targets.shape[1], data.inputs.dtype
        y_variance = self.y_standardisation_.scale**2
        given_in_units_of_y = self._given_likelihood(n_outputs)
        given = given_in_units_of_y and _standardised(given_in_units_of_y, self.y_standardisation_.scale, dtype)

        def likelihood_with(variance: float) -> Likelihood:
            return given or Gaussian(np.full(n_outputs, variance).astype(dtype))

        self.noise_model_, self.noise_shape_ = None, Shape()
        noise_variance = np.full(n_outputs, np.nan)  # NaN: known only after the fit
        if hasattr(method, "choose"):
            (self.input_encoding_,) = self._input_encodings(data)
            data = data._replace(inputs=self._encoded(data.inputs))
            self.prior_scale_, likelihood = self._choose_by_evidence(method, given, data)
            model = self._model_factory(method, data.inputs, n_outputs, self._sizes(len(data.weights)))(
                self.prior_scale_, likelihood
            )
            noise_variance = np.asarray(likelihood.noise_variance) * y_variance
            self.candidates_ = []
        else:
            variances = selection.NOISE_VARIANCES if given is None else (np.nan,)  # NaN is not used
            method, model, pilots = self._choose_by_pilots(
                method, key, data, n_outputs, likelihood_with, variances, selection.residual_scorer, progress
            )
            if given is None and "noise_variance" not in getattr(method, "ignores", ()):
                with progress.phase("estimating the noise", pilots.n_epochs(noise.RESIDUAL_SHARE)) as on_progress:
                    estimated = noise.estimate(pilots, model, self._is_heteroscedastic(), on_progress)
                noise_variance = estimated.variance * y_variance
                self.noise_model_, self.noise_shape_ = estimated.model, estimated.shape
        if isinstance(given_in_units_of_y, Gaussian):
            noise_variance = np.broadcast_to(given_in_units_of_y.noise_variance, n_outputs)
        self.noise_variance_ = self._scalar_or_array(noise_variance)
        return method, model

    def _choose_by_evidence(self, method: Any, given: Any, data: Data) -> tuple[float | tuple[float, ...], Gaussian]:
        """Choose the prior scale and the likelihood by the log marginal likelihood, unless the arguments give them.

        `method` has a function `choose`, such as GaussianProcess; `given` is the given likelihood, or None.
        """
        n_outputs = data.targets.shape[1]
        sizes = self._sizes(len(data.weights))
        network = self._network(n_outputs, sizes)
        chooses_scale = isinstance(self.prior_scale, str)
        scale = 1.0 if chooses_scale else as_prior_scale(self.prior_scale)
        checked = self._model_factory(method, data.inputs, n_outputs, sizes)
        checked(scale, given or Gaussian(np.ones(n_outputs)))  # raises an error if an argument is invalid
        if given is not None and not chooses_scale:
            return scale, given
        variance = None if given is None else np.broadcast_to(given.noise_variance, n_outputs)
        rows = self._subsample(data, method.max_rows_to_choose)
        chosen_scale, variance = method.choose(network, layer_scales(network, scale), variance, chooses_scale, rows)
        return chosen_scale if chooses_scale else scale, Gaussian(variance) if given is None else given

    def _store_posterior(self, posterior: Posterior, data: Data):
        """Store the posterior, and the average noise variance over `data` if it was not known before the fit."""
        super()._store_posterior(posterior, data)
        if np.isnan(self.noise_variance_).any():  # neither given nor estimated before the fit
            inputs = data.inputs.astype(posterior.dtype)
            variance = posterior.predict_regression(inputs).aleatoric_variance * self.y_standardisation_.scale**2
            weights = np.broadcast_to(data.weights, variance.shape)
            self.noise_variance_ = self._scalar_or_array(np.average(variance, axis=0, weights=weights))
        return self

    # Prediction

    def _predictive(self, inputs: np.ndarray) -> Predictive:
        """Return the predictive distribution in units of y at standardised `inputs`, (rows, columns)."""
        by_output = self._predictive_by_output(inputs)
        return replace(
            by_output,
            mean=self._squeeze_outputs(by_output.mean),
            epistemic_variance=self._squeeze_outputs(by_output.epistemic_variance),
            aleatoric_variance=self._squeeze_outputs(by_output.aleatoric_variance),
        )

    def _predictive_by_output(self, inputs: np.ndarray) -> Predictive:
        """Return the predictive distribution with arrays of shape (rows, outputs), even if y was one-dimensional."""
        to_y = self.y_standardisation_
        standardised = self.posterior_.predict_regression(inputs)
        return Predictive(
            standardised.mean * to_y.scale + to_y.mean,
            standardised.epistemic_variance * to_y.scale**2,
            self._noise_variance_at(inputs, standardised),
            standardised.n_members,
            self.noise_shape_,
        )

    def _noise_variance_at(self, inputs: np.ndarray, standardised: Predictive) -> np.ndarray:
        """Return the variance of the observation noise at each row, (rows, outputs), in squared units of y.

        `standardised` is the predictive distribution of the standardised `inputs`.
        """
        scale = self.y_standardisation_.scale
        if self.noise_model_ is not None:
            return self.noise_model_.predict_regression(inputs).aleatoric_variance * scale**2
        if isinstance(self.posterior_.model.likelihood, Gaussian):  # its noise variance is that of the loss
            return np.broadcast_to(self.noise_variance_, (len(inputs), len(scale)))
        return standardised.aleatoric_variance * scale**2

    def _covariance(self, inputs: np.ndarray) -> np.ndarray:
        """Return the covariance between observations at standardised `inputs`, in squared units of y.

        It has the shape (rows, rows) or (rows, rows, outputs).
        """
        scale = self.y_standardisation_.scale
        covariance = self.posterior_.covariance(inputs)[..., : len(scale)] * scale**2
        covariance[np.diag_indices(len(inputs))] += self._predictive_by_output(inputs).aleatoric_variance
        return self._squeeze_outputs(covariance)

    def _squeeze_outputs(self, array: np.ndarray) -> np.ndarray:
        """Return `array` without its last axis, outputs, if y was one-dimensional."""
        return array[..., 0] if self.y_is_vector_ else array

    def _scalar_or_array(self, variance: np.ndarray) -> float | np.ndarray:
        """Return `variance`, (outputs,), as one float if y was one-dimensional, else as an array."""
        return float(variance[0]) if self.y_is_vector_ else np.array(variance, np.float64)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _as_columns(y: np.ndarray) -> np.ndarray:
    """Return y as (rows, outputs)."""
    return y[:, None] if y.ndim == 1 else y


def _standardised(likelihood: Likelihood, scale: np.ndarray, dtype: np.dtype) -> Likelihood:
    """Return `likelihood`, in units of y, for targets divided by `scale`, in `dtype`.

    Raises a ValueError if its variance differs from that of y by more than MAX_DECADES powers of ten.
    """
    standardised = likelihood.rescaled(scale)
    for name in likelihood.field_names():
        if np.any(np.abs(np.log10(getattr(standardised, name))) > MAX_DECADES):
            raise ValueError(
                f"{name}={np.squeeze(getattr(likelihood, name))} differs from the scale of y by a factor of more than "
                f"1e{MAX_DECADES}; check its units"
            )
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), standardised)
