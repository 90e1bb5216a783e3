"""The predictions of regressors: means, intervals, samples and covariances, in units of y."""

from collections.abc import Callable
from dataclasses import replace
from typing import Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from anchored import checks
from anchored.estimators import guarantee
from anchored.estimators.guarantee import Guarantee
from anchored.inference.posterior import MemberPosterior
from anchored.model.likelihoods import Gaussian
from anchored.model.predictive import Predictive, Shape
from anchored.types import Array, RandomState


class RegressionPredictions(RegressorMixin):
    """Mixin with the prediction methods of regressors."""

    guarantee_: Guarantee | None  # guaranteed coverage of intervals, set by `conformalize`
    noise_model_: MemberPosterior | None  # how the noise varies with x, fitted to residuals; None if it was not fitted
    noise_shape_: Shape  # shape of the predictive distribution; normal if the noise is given
    y_is_vector_: bool  # whether y is one-dimensional

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_cov: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Predict the mean of each row and, optionally, the standard deviation or the covariance between rows.

        The standard deviation and the covariance include the observation noise. `predict_dist` returns the epistemic
        and the aleatoric variance separately.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        return_std : bool
            Whether to also return the standard deviations of observations, in units of y and in the shape of the mean.
        return_cov : bool
            Whether to also return the covariances of observations, in squared units of y, (rows, rows) or
            (rows, rows, outputs).

        Returns
        -------
        array, or pair of arrays
            The mean in units of y, (rows,) or (rows, outputs). If `return_std` or `return_cov` is true, a pair of the
            mean and the standard deviations or covariances.
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

        It has methods of SciPy's frozen distributions, such as `ppf` and `interval`. It holds the mean in units of y,
        and the epistemic and the aleatoric variance in squared units of y.
        """
        return self._predictive(self._standardised_inputs(X))

    def predict_interval(self, X: ArrayLike, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return a central predictive interval for each row.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        coverage : float
            The probability that an interval contains its observation, between 0 and 1.

        Returns
        -------
        lower, upper : (rows,) or (rows, outputs)
            The ends of the intervals, in units of y.
        """
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        return self.predict_dist(X).interval(coverage)

    def conformalize(self, X: ArrayLike, y: ArrayLike, coverage: float = 0.95) -> Self:
        """Calibrate the intervals of `predict_guaranteed_interval` with rows that the model was not fitted to.

        This is split conformal prediction: if these rows and a new row are exchangeable (for example, independent and
        identically distributed), the interval of the new row contains its observation with a probability of at least
        `coverage`, however wrong the model is. With several outputs, this holds for each output separately.

        Parameters
        ----------
        X : (rows, columns)
            Inputs of the calibration rows, at least coverage/(1 − coverage) of them.
        y : (rows,) or (rows, outputs)
            Targets of the calibration rows.
        coverage : float
            The probability to guarantee, between 0 and 1.

        Returns
        -------
        self
        """
        inputs, targets, fingerprint = self._calibration_rows(X, y)
        found = guarantee.of_regression(targets, self.predict_dist(inputs), coverage)
        self.guarantee_ = replace(found, fingerprint=fingerprint)
        return self

    def predict_guaranteed_interval(self, X: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        """Return the interval of each row of X, (rows, columns), with the coverage that `conformalize` guarantees.

        The result is a pair of the lower and the upper ends, (rows,) or (rows, outputs), in units of y.
        """
        return self._require_guarantee().interval(self.predict_dist(X))

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: RandomState = 0) -> np.ndarray:
        """Draw observations: a sample is the outputs of one member for all rows, plus observation noise.

        The samples of a row have the distribution that `predict_dist` returns.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        n_samples : int
            Number of samples. Their members are drawn with replacement.
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
        if not self.noise_shape_.is_normal:  # transform normal observations to the predictive distribution
            normal = (observations - predictive.mean) / predictive.std
            observations = predictive.ppf(special.ndtr(normal))
        return np.moveaxis(self._squeeze_outputs(observations), 0, -1)

    def sample_functions(self, n_samples: int = 1, random_state: RandomState = None) -> list[Callable]:
        """Draw functions from the posterior, without replacement.

        Parameters
        ----------
        n_samples : int
            Number of functions, at most the number of members.
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

        def convert(outputs: Array, input_ndim: int) -> jax.Array:
            values = outputs[..., : len(mean)] * scale + mean
            values = values[..., 0] if self.y_is_vector_ else values
            return values[0] if input_ndim == 1 else values

        return self._member_functions(n_samples, random_state, convert)

    @property
    def training_noise_variance_(self) -> float | np.ndarray:
        """The noise variance σ² of the training loss, in squared units of y: a number, or (outputs,).

        The loss is `inference.anchoring.anchored_loss`.
        """
        likelihood = self.posterior_.target.likelihood
        if not isinstance(likelihood, Gaussian):
            raise AttributeError(f"the likelihood {type(likelihood).__name__} has no training noise variance")
        variance = np.broadcast_to(np.asarray(likelihood.noise_variance), len(self.y_standardisation_.scale))
        return self._scalar_or_array(variance * self.y_standardisation_.scale**2)

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
        """Return the predictive distribution in units of y at standardised `inputs`, (rows, columns).

        Its arrays have the shape (rows, outputs), even if y is one-dimensional.
        """
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

        `standardised` is the predictive distribution at `inputs`, for standardised targets.
        """
        scale = self.y_standardisation_.scale
        if self.noise_model_ is not None:
            return self.noise_model_.predict_regression(inputs).aleatoric_variance * scale**2
        if isinstance(self.posterior_.model.likelihood, Gaussian):  # it holds the noise variance of the training loss
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
        """Return `array` without its last axis, the outputs, if y is one-dimensional."""
        return array[..., 0] if self.y_is_vector_ else array

    def _scalar_or_array(self, variance: np.ndarray) -> float | np.ndarray:
        """Return `variance`, (outputs,), as a float if y is one-dimensional, otherwise as an array."""
        return float(variance[0]) if self.y_is_vector_ else np.array(variance, np.float64)
