"""What the regressors share: the choice of noise and prior, and predictions in units of y."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from anchored import checks
from anchored.estimators import selection
from anchored.estimators.base import layer_scales
from anchored.estimators.progress import Progress
from anchored.estimators.standardisation import TARGET_RANGE, Standardisation
from anchored.inference.posterior import MemberPosterior, Method, Posterior
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian, Likelihood
from anchored.model.predictive import Predictive
from anchored.types import Data, Key, RandomState

MOST_DECADES = 20  # between the noise variance and the variance of y, for float32 to hold both


class Regression(RegressorMixin):
    """Regression by an estimator that infers a posterior. Not for use by itself."""

    pilot_epochs = 800
    noise_model_: MemberPosterior | None

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean; with it the standard deviation of an observation, or the covariance between rows.

        Both include the observation noise. `predict_dist` has the split.

        Args:
            X: (rows, columns) numbers.
            return_std: Whether to return the standard deviations too, in the shape of the mean.
            return_cov: Whether to return the covariances too, (rows, rows) or (rows, rows, outputs).

        Returns:
            (rows,) or (rows, outputs) in units of y; a pair where another array is wanted.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be true")
        predictive = self.predict_dist(X)
        if return_cov:
            return predictive.mean, self._covariance(X)
        return (predictive.mean, predictive.std) if return_std else predictive.mean

    def predict_dist(self, X: ArrayLike) -> Predictive:
        """The predictive distribution of each row of X, with its epistemic and aleatoric variance, in units of y."""
        inputs, to_y = self._inputs(X), self.y_standardisation_
        standardised = self.posterior_.predict_regression(inputs)
        return Predictive(
            self._shaped(standardised.mean * to_y.scale + to_y.mean),
            self._shaped(standardised.epistemic_variance * to_y.scale**2),
            self._shaped(self._noise(inputs, standardised)),
            standardised.n_members,
        )

    def predict_interval(self, X: ArrayLike, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends between which an observation falls with probability `coverage`, for each row of X."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        return self.predict_dist(X).interval(coverage)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: RandomState = 0) -> np.ndarray:
        """Draw observations. Each sample follows one member over all rows and adds the observation noise.

        Args:
            X: (rows, columns) numbers.
            n_samples: How many to draw, members with replacement.
            random_state: Random seed.

        Returns:
            (rows, n_samples), or (rows, outputs, n_samples).
        """
        checks.whole("n_samples", n_samples)
        rng = check_random_state(random_state)
        inputs, to_y = self._inputs(X), self.y_standardisation_
        drawn = self.posterior_.sample_outputs(inputs, n_samples, rng)
        members = drawn[..., : len(to_y.mean)] * to_y.scale + to_y.mean
        draws = members + np.sqrt(self._noise(inputs)) * rng.standard_normal(members.shape)
        return np.moveaxis(self._shaped(draws), 0, -1)

    def sample_functions(self, n_samples: int = 1, random_state: RandomState = None) -> list[Callable]:
        """Whole functions from the posterior, drawn without replacement.

        Args:
            n_samples: How many, at most as many as there are members.
            random_state: Random seed.

        Returns:
            JAX callables of raw inputs, differentiable, in units of y, without noise.
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
        """The σ² in the members' loss (eq. 2), in squared units of y, one number or one for each output."""
        likelihood = self.posterior_.target.likelihood
        if not isinstance(likelihood, Gaussian):
            raise AttributeError(f"a {type(likelihood).__name__} likelihood has no noise variance to train with")
        variance = np.broadcast_to(np.asarray(likelihood.noise_variance), len(self.y_standardisation_.scale))
        return self._per_output(variance * self.y_standardisation_.scale**2)

    # Fitting

    def _read(self, X, y, sample_weight, reset):
        wanted = {"dtype": np.float64, "multi_output": True, "y_numeric": True, "ensure_min_samples": 2 if reset else 1}
        X, y = validate_data(self, X, y, reset=reset, **wanted)
        y = np.asarray(y, np.float64)
        n_outputs = _columns(y).shape[1]
        if not reset and n_outputs != len(self.y_standardisation_.mean):
            raise ValueError(f"y has {n_outputs} outputs, the model {len(self.y_standardisation_.mean)}")
        return self._counted(X, y, sample_weight)

    def _learn_targets(self, y: np.ndarray, weights: np.ndarray) -> None:
        self.y_is_vector_ = y.ndim == 1
        self.y_standardisation_ = Standardisation.of(_columns(y), weights, "y", TARGET_RANGE)

    def _targets(self, y: np.ndarray) -> np.ndarray:
        return self.y_standardisation_.apply(_columns(y), jnp.result_type(float), "y")

    def _target_scale(self) -> np.ndarray:
        return self.y_standardisation_.scale

    def _given_likelihood(self, n_outputs: int) -> Likelihood | None:
        """The likelihood in units of y; None where its noise is to be learnt. Raises if it cannot be used."""
        raise NotImplementedError

    def _noise_varies(self) -> bool:
        """Whether the noise is to vary with x even where a constant predicts better."""
        raise NotImplementedError

    def _choose_model(self, method: Method, key: Key, data: Data, progress: Progress) -> BayesianModel:
        """Settle prior, training noise and observation noise."""
        n_outputs, dtype = data.targets.shape[1], data.inputs.dtype
        square = self.y_standardisation_.scale**2
        in_units_of_y = self._given_likelihood(n_outputs)
        given = in_units_of_y and _standardised(in_units_of_y, self.y_standardisation_.scale, dtype)
        make = self._model_maker(method, data.inputs, n_outputs)

        def make_model(prior_scale: float | tuple[float, ...], noise: float) -> BayesianModel:
            return make(prior_scale, given or Gaussian(np.full(n_outputs, noise).astype(dtype)))

        self.noise_model_ = None
        observed = np.full(n_outputs, np.nan)  # where only the fit can tell
        if hasattr(method, "choose"):
            scale, likelihood = self._choose_by_evidence(method, given, data)
            model, observed = make(scale, likelihood), np.asarray(likelihood.noise_variance) * square
        else:
            pilots = self._pilots(key, data)
            scales = selection.prior_scale_candidates(self.prior_scale)
            noises = selection.NOISE_VARIANCES if given is None else (np.nan,)
            with progress.phase("choosing noise and prior", selection.n_epochs(pilots)) as on_progress:
                score = selection.gaussian_score(pilots.data)
                scale, noise = selection.choose(pilots, make_model, score, scales, noises, on_progress)
            model = make_model(scale, noise)
            if given is None and "noise_variance" not in getattr(method, "ignores", ()):
                with progress.phase("learning the noise", selection.n_epochs(pilots)) as on_progress:
                    learnt, self.noise_model_ = selection.observation_noise(
                        pilots, model, self._noise_varies(), on_progress
                    )
                observed = learnt * square
        if isinstance(in_units_of_y, Gaussian):
            observed = np.broadcast_to(in_units_of_y.noise_variance, n_outputs)
        self.prior_scale_, self.noise_variance_ = scale, self._per_output(observed)
        return model

    def _choose_by_evidence(self, method: Any, given: Any, data: Data) -> tuple[float | tuple[float, ...], Gaussian]:
        """Prior scale and likelihood by the log marginal likelihood, as far as they are not given."""
        n_outputs = data.targets.shape[1]
        network = self._network(n_outputs)
        free_scale = isinstance(self.prior_scale, str)
        scale = 1.0 if free_scale else selection.prior_scale_candidates(self.prior_scale)[0]
        self._model_maker(method, data.inputs, n_outputs)(scale, given or Gaussian(np.ones(n_outputs)))  # checks both
        if given is not None and not free_scale:
            return scale, given
        noise = None if given is None else np.broadcast_to(given.noise_variance, n_outputs)
        rows = self._some_rows(data, method.max_rows_to_choose)
        first, noise = method.choose(network, layer_scales(network, scale), noise, free_scale, rows)
        return first if free_scale else scale, Gaussian(noise) if given is None else given

    def _keep(self, posterior: Posterior, data: Data):
        super()._keep(posterior, data)
        if np.isnan(self.noise_variance_).any():  # neither given nor learnt before the fit
            inputs = data.inputs.astype(posterior.dtype)
            noise = posterior.predict_regression(inputs).aleatoric_variance * self.y_standardisation_.scale**2
            weights = np.broadcast_to(data.weights, noise.shape)
            self.noise_variance_ = self._per_output(np.average(noise, axis=0, weights=weights))
        return self

    # Prediction

    def _noise(self, inputs: np.ndarray, standardised: Predictive | None = None) -> np.ndarray:
        """The observation noise at each row, (rows, outputs), in squared units of y."""
        scale = self.y_standardisation_.scale
        if self.noise_model_ is not None:
            return self.noise_model_.predict_regression(inputs).aleatoric_variance * scale**2
        if isinstance(self.posterior_.model.likelihood, Gaussian):  # whose noise is that of the training
            return np.broadcast_to(self.noise_variance_, (len(inputs), len(scale)))
        standardised = self.posterior_.predict_regression(inputs) if standardised is None else standardised
        return standardised.aleatoric_variance * scale**2

    def _covariance(self, X: ArrayLike) -> np.ndarray:
        """As `GaussianProcessRegressor`: (rows, rows), or (rows, rows, outputs)."""
        inputs, scale = self._inputs(X), self.y_standardisation_.scale
        covariance = self.posterior_.covariance(inputs)[..., : len(scale)] * scale**2
        covariance[np.diag_indices(len(inputs))] += self._noise(inputs)
        return self._shaped(covariance)

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        """Without the axis of outputs where y had none."""
        return array[..., 0] if self.y_is_vector_ else array

    def _per_output(self, variance: np.ndarray) -> float | np.ndarray:
        return float(variance[0]) if self.y_is_vector_ else np.array(variance, np.float64)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags


def _columns(y: np.ndarray) -> np.ndarray:
    return y[:, None] if y.ndim == 1 else y


def _standardised(likelihood: Likelihood, scale: np.ndarray, dtype: np.dtype) -> Likelihood:
    """The likelihood of standardised targets; raises where its numbers are out of all proportion to them."""
    standardised = likelihood.rescaled(scale)
    for value in jax.tree.leaves(standardised):
        if np.any(np.abs(np.log10(value)) > MOST_DECADES):
            raise ValueError(
                f"noise_variance={np.squeeze(jax.tree.leaves(likelihood)[0])} is out of all proportion to the "
                "variance of y; check its units"
            )
    return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), standardised)
