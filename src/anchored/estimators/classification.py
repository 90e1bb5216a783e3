"""The mixin for classifiers: class labels, choice of the temperature and the prior scale, and predictions."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Self

import jax
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from anchored.estimators import calibration, guarantee, selection
from anchored.estimators.base import numeric_data
from anchored.estimators.guarantee import Guarantee
from anchored.estimators.model_choice import LikelihoodOptions
from anchored.estimators.progress import Progress
from anchored.inference.posterior import Method
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Categorical, Likelihood
from anchored.model.predictive import CategoricalPredictive
from anchored.types import Array, Data, Key, RandomState


class ClassificationMixin(ClassifierMixin):
    """Mixin that turns a BayesianEstimator into a classifier."""

    guarantee_: Guarantee | None  # guaranteed coverage of sets of classes, set by `conformalize`
    pilot_epochs = 400

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the most probable class, (rows,), of each row of X, (rows, columns)."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def predict_proba(self, X: ArrayLike) -> np.ndarray:
        """Return the class probabilities of each row of X, (rows, columns), averaged over members.

        The result has the shape (rows, classes), with the classes in the order of `classes_`.
        """
        return self.predict_dist(X).probabilities

    def predict_dist(self, X: ArrayLike) -> CategoricalPredictive:
        """Return the predictive distribution of each row of X, (rows, columns).

        It holds the class probabilities, and their entropies in nats: total, aleatoric (because classes overlap) and
        epistemic (because members disagree).
        """
        inputs = self._standardised_inputs(X)
        predictive = self.posterior_.predict(inputs)
        p = predictive.probabilities  # in float32; their sum differs from 1 by a rounding error
        return replace(predictive, probabilities=p / p.sum(axis=1, keepdims=True))

    def conformalize(self, X: ArrayLike, y: ArrayLike, coverage: float = 0.95) -> Self:
        """Calibrate the sets of `predict_guaranteed_set` with rows that the model was not fitted to.

        This is split conformal prediction: if these rows and a new row are exchangeable (for example, independent and
        identically distributed), the set of the new row contains its class with a probability of at least `coverage`,
        however wrong the model is.

        Parameters
        ----------
        X : (rows, columns)
            Inputs of the calibration rows, at least coverage/(1 − coverage) of them.
        y : (rows,)
            Labels of the calibration rows, which must be among `classes_`.
        coverage : float
            The probability to guarantee, between 0 and 1.

        Returns
        -------
        self
        """
        inputs, targets, fingerprint = self._calibration_rows(X, y)
        found = guarantee.of_classification(self._transform_targets(targets), self.predict_dist(inputs), coverage)
        self.guarantee_ = replace(found, fingerprint=fingerprint)
        return self

    def predict_guaranteed_set(self, X: ArrayLike) -> np.ndarray:
        """Return a set of classes for each row of X, (rows, columns), with the coverage that `conformalize` guarantees.

        The result is a mask, (rows, classes), with the classes in the order of `classes_`. The most probable class is
        always in the set.
        """
        return self._require_guarantee().classes(self.predict_dist(X))

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
            JAX functions from inputs, (columns,) or (rows, columns), to class probabilities, (classes,) or
            (rows, classes).
        """
        check_is_fitted(self)
        temperature = getattr(self.posterior_.model.likelihood, "predictive_temperature", 1.0)

        def convert(outputs: Array, input_ndim: int) -> jax.Array:
            probabilities = jax.nn.softmax(outputs / temperature)
            return probabilities[0] if input_ndim == 1 else probabilities

        return self._member_functions(n_samples, random_state, convert)

    # Fitting

    def _validate_training_data(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return checked X, y and weights; unless `reset`, the labels `y` must be among `classes_`."""
        X, y = numeric_data(self, X, y, dtype=np.float64, reset=reset)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if not reset:
            unseen = sorted(set(np.unique(y).tolist()) - set(self.classes_.tolist()), key=str)
            if unseen:
                raise ValueError(f"y has the classes {unseen}, which are not among {self.classes_.tolist()}")
        return self._drop_zero_weights(X, y, sample_weight)

    def _fit_target_transform(self, y: np.ndarray, weights: np.ndarray, labels: np.ndarray) -> None:
        """Set `classes_` to the sorted, unique `labels`, or to the argument `classes` of `partial_fit`.

        `y` and `weights` are not used.
        """
        labels = np.unique(labels)
        declared = getattr(self, "_declared_classes", None)
        self.classes_ = labels if declared is None else declared
        unknown = [label for label in labels.tolist() if label not in set(self.classes_.tolist())]
        if unknown:
            raise ValueError(f"y has the classes {unknown}, which are not among classes={self.classes_.tolist()}")
        if len(self.classes_) < 2:
            raise ValueError(f"y has only one class ({self.classes_.tolist()[0]!r}); a classifier needs at least two")

    def _transform_targets(self, y: np.ndarray) -> np.ndarray:
        """Return the labels `y` as indices into `classes_`, (rows,)."""
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def _given_likelihood(self) -> Likelihood | None:
        """Return the likelihood given by the constructor's arguments, or None for "auto".

        Raises a ValueError if it is invalid.
        """
        raise NotImplementedError

    @property
    def temperature_(self) -> float:
        """The temperature of the likelihood in training."""
        likelihood = self.posterior_.target.likelihood
        if not isinstance(likelihood, Categorical):
            raise AttributeError(f"the likelihood {type(likelihood).__name__} has no temperature")
        return float(likelihood.temperature)

    @property
    def predictive_temperature_(self) -> float:
        """The number by which members' logits are divided in predictions; below 1, predictions are more confident."""
        likelihood = self.posterior_.model.likelihood
        return float(likelihood.predictive_temperature) if isinstance(likelihood, Categorical) else 1.0

    def _choose_model(self, method: Method, key: Key, data: Data, progress: Progress) -> tuple[Method, BayesianModel]:
        """Choose the network, the prior scale and the temperature, unless given; return the method and the model.

        Sets `input_encoding_`, `prior_scale_` and `candidates_`. The arguments are those of
        `BayesianEstimator._choose_model`.
        """
        dtype = data.inputs.dtype
        given = self._given_likelihood()

        def make_likelihood(temperature: float) -> Likelihood:
            likelihood = Categorical(np.asarray(temperature)) if given is None else given
            return jax.tree.map(lambda leaf: np.asarray(leaf, dtype), likelihood)

        temperatures = selection.TEMPERATURES if given is None else (np.nan,)  # NaN: `given` is used instead
        if "temperature" in getattr(method, "ignores", ()):
            temperatures = temperatures[:1]
        n_classes = len(self.classes_)
        frequencies = partial(selection.class_frequencies, n_classes=n_classes)
        scorer = selection.categorical_scorer
        likelihoods = LikelihoodOptions(n_classes, temperatures, make_likelihood, scorer, frequencies)
        method, model, trainer = self._choose_by_pilots(method, key, data, likelihoods, progress)
        if given is None and isinstance(method, AnchoredEnsemble):  # its members resemble pilot members
            with progress.phase("calibrating", trainer.n_epochs(calibration.EPOCH_FRACTION)) as on_progress:
                temperature = calibration.predictive_temperature(trainer, model, on_progress)
            likelihood = replace(model.likelihood, predictive_temperature=np.asarray(temperature, dtype))
            model = replace(model, likelihood=likelihood)
        return method, model
