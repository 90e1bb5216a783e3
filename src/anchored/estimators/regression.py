"""The mixin that fits regressors: standardisation of y, and choice of the noise and the prior scale."""

from typing import Protocol, Self, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags

from anchored.estimators import noise, selection
from anchored.estimators.base import numeric_data
from anchored.estimators.candidates import Candidate, PriorScale
from anchored.estimators.model_choice import LikelihoodOptions, as_prior_scale, layer_scales
from anchored.estimators.progress import Progress
from anchored.estimators.regression_predictions import RegressionPredictions
from anchored.estimators.settings import is_auto
from anchored.estimators.standardisation import TARGET_SCALE_RANGE, Standardisation
from anchored.inference.posterior import Method, Posterior
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian, Likelihood
from anchored.model.networks import Network
from anchored.model.predictive import Shape
from anchored.types import Data, Key, Units

MAX_DECADES = 20  # largest |log₁₀(noise variance / variance of y)|, so that float32 can hold both


@runtime_checkable
class ChoosesByEvidence(Method, Protocol):
    """A method that chooses hyperparameters by the marginal likelihood, such as GaussianProcess."""

    max_rows_to_choose: int  # largest number of rows that `choose` may be given

    def choose(
        self,
        network: Network,
        layer_scales: tuple[float, ...],
        noise: np.ndarray | None,
        free_scale: bool,
        data: Data,
    ) -> tuple[float, np.ndarray]:
        """Return the prior scale of the first layer and the noise variances; see `GaussianProcess.choose`."""


class RegressionMixin(RegressionPredictions):
    """Mixin that turns a BayesianEstimator into a regressor."""

    pilot_epochs = 800
    candidates_: list[Candidate]  # models that were compared to choose arguments set to "auto", the best first

    def _validate_training_data(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    def _fit_target_transform(self, y: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> None:
        """Set `y_is_vector_`, and set `y_standardisation_` from the targets `y` and the `weights` of their rows.

        `labels` is not used.
        """
        self.y_is_vector_ = y.ndim == 1
        is_part = len(weights) < self.n_rows_seen_
        self.y_standardisation_ = Standardisation.fit(_as_columns(y), weights, "y", TARGET_SCALE_RANGE, is_part)

    def _transform_targets(self, y: np.ndarray) -> np.ndarray:
        """Return the targets `y` standardised, (rows, outputs)."""
        return self.y_standardisation_.transform_targets(_as_columns(y), "y").astype(jnp.result_type(float))

    def _outlier_weights(self, y: np.ndarray) -> np.ndarray:
        """Return factors of the rows' weights, (rows, 1), which are below 1 for outliers among the targets `y`."""
        return self.y_standardisation_.outlier_weights(self.y_standardisation_.transform_targets(_as_columns(y), "y"))

    def _target_units(self) -> Units:
        """Return the mean and the scale by which each output of y is standardised."""
        return Units(self.y_standardisation_.scale, self.y_standardisation_.mean)

    def _given_likelihood(self, n_outputs: int) -> Likelihood | None:
        """Return the likelihood given by the constructor's arguments, in units of y; None if the noise is estimated.

        Raises a ValueError if it is invalid for `n_outputs` outputs.
        """
        raise NotImplementedError

    def _is_heteroscedastic(self) -> bool:
        """Return whether the noise must vary with x, even if constant noise predicts better."""
        raise NotImplementedError

    def _choose_model(self, method: Method, key: Key, data: Data, progress: Progress) -> tuple[Method, BayesianModel]:
        """Choose the network, the prior scale and the noise, unless they are given; return the method and the model.

        Sets `input_encoding_`, `prior_scale_` and `candidates_`, and the attributes that describe the noise. The
        arguments are those of `BayesianEstimator._choose_model`.
        """
        n_outputs, dtype = data.targets.shape[1], data.inputs.dtype
        y_variance = self.y_standardisation_.scale**2
        given_in_units_of_y = self._given_likelihood(n_outputs)
        given = given_in_units_of_y and _standardised(given_in_units_of_y, self.y_standardisation_.scale, dtype)

        def make_likelihood(noise_variance: float) -> Likelihood:
            return given or Gaussian(np.full(n_outputs, noise_variance).astype(dtype))

        self.noise_model_, self.noise_shape_ = None, Shape()
        noise_variance = np.full(n_outputs, np.nan)  # NaN if it is not known before the fit
        if isinstance(method, ChoosesByEvidence):
            (self.input_encoding_,) = self._input_encodings(data)
            data = data._replace(inputs=self._encoded(data.inputs))
            self.prior_scale_, likelihood = self._choose_by_evidence(method, given, data)
            model = self._model_factory(method, data.inputs, n_outputs, self._sizes(len(data.weights)))(
                self.prior_scale_, likelihood
            )
            noise_variance = np.asarray(likelihood.noise_variance) * y_variance
            self.candidates_ = []
        else:
            variances = selection.NOISE_VARIANCES if given is None else (np.nan,)  # NaN: `given` is used instead
            likelihoods = LikelihoodOptions(
                n_outputs, variances, make_likelihood, selection.residual_scorer, selection.mean_target
            )
            method, model, trainer = self._choose_by_pilots(method, key, data, likelihoods, progress)
            if given is None and "noise_variance" not in getattr(method, "ignores", ()):
                with progress.phase("estimating the noise", trainer.n_epochs(noise.RESIDUAL_FRACTION)) as on_progress:
                    estimated = noise.estimate(trainer, model, self._is_heteroscedastic(), on_progress)
                noise_variance = estimated.variance * y_variance
                self.noise_model_, self.noise_shape_ = estimated.model, estimated.shape
        if isinstance(given_in_units_of_y, Gaussian):
            noise_variance = np.broadcast_to(given_in_units_of_y.noise_variance, n_outputs)
        self.noise_variance_ = self._scalar_or_array(noise_variance)
        return method, model

    def _choose_by_evidence(
        self, method: ChoosesByEvidence, given: Likelihood | None, data: Data
    ) -> tuple[PriorScale, Gaussian]:
        """Return the prior scale and the likelihood; if not given, they are chosen by the marginal likelihood.

        Parameters
        ----------
        method : ChoosesByEvidence
            The inference method.
        given : Likelihood or None
            The likelihood of standardised targets, if it is given.
        data : Data
            Training rows with encoded inputs.
        """
        n_outputs = data.targets.shape[1]
        sizes = self._sizes(len(data.weights))
        network = self._network(n_outputs, sizes)
        chooses_scale = is_auto(self.prior_scale)
        scale = 1.0 if chooses_scale else as_prior_scale(self.prior_scale)
        make_model = self._model_factory(method, data.inputs, n_outputs, sizes)
        make_model(scale, given or Gaussian(np.ones(n_outputs)))  # raises an error if an argument is invalid
        assert given is None or isinstance(given, Gaussian)
        if given is not None and not chooses_scale:
            return scale, given
        variance = None if given is None else np.broadcast_to(given.noise_variance, n_outputs)
        rows = self._subsample(data, method.max_rows_to_choose)
        chosen_scale, variance = method.choose(network, layer_scales(network, scale), variance, chooses_scale, rows)
        return chosen_scale if chooses_scale else scale, Gaussian(variance) if given is None else given

    def _store_posterior(self, posterior: Posterior, data: Data) -> Self:
        """Store the posterior and, if it was not known before the fit, the average noise variance over `data`."""
        super()._store_posterior(posterior, data)
        if np.isnan(self.noise_variance_).any():
            inputs = data.inputs.astype(posterior.dtype)
            variance = posterior.predict_regression(inputs).aleatoric_variance * self.y_standardisation_.scale**2
            weights = np.broadcast_to(data.weights, variance.shape)
            self.noise_variance_ = self._scalar_or_array(np.average(variance, axis=0, weights=weights))
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _as_columns(y: np.ndarray) -> np.ndarray:
    """Return y with the shape (rows, outputs)."""
    return y[:, None] if y.ndim == 1 else y


def _standardised(likelihood: Likelihood, scale: np.ndarray, dtype: np.dtype) -> Likelihood:
    """Return the likelihood of standardised targets.

    Parameters
    ----------
    likelihood : Likelihood
        The likelihood in units of y.
    scale : (outputs,)
        The scale by which the targets are divided.
    dtype : numpy.dtype
        Data type of the fields of the result.

    Raises
    ------
    ValueError
        If a field differs from the scale of y by more than MAX_DECADES powers of ten.
    """
    standardised = likelihood.rescaled(scale)
    for name in likelihood.field_names():
        if np.any(np.abs(np.log10(getattr(standardised, name))) > MAX_DECADES):
            raise ValueError(
                f"{name}={np.squeeze(getattr(likelihood, name))} differs from the scale of y by a factor of more than "
                f"1e{MAX_DECADES}; check its units"
            )
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), standardised)
