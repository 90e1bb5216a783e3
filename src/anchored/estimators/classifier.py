"""AnchoredClassifier: class probabilities that know when they are guessing."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from anchored.estimators import selection, settings
from anchored.estimators.base import AnchoredEstimator
from anchored.estimators.progress import Progress
from anchored.estimators.selection import Pilots
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Categorical
from anchored.model.predictive import CategoricalPredictive


class AnchoredClassifier(ClassifierMixin, AnchoredEstimator):
    """Bayesian classification by an anchored ensemble of neural networks, two classes or more.

    Parameters are those of `AnchoredRegressor`, with `temperature` in the place of the noise.
    `anchoring="randomized"` is an error: no exact route is known for classes, and anchors from the prior give a
    spread that is close, not exact.

    Parameters
    ----------
    temperature : "auto" or float
        Of the likelihood in training. 1 is Bayes' rule; below it the data count for more against the prior,
        which often predicts better. "auto" chooses by the log loss of rows left out.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    temperature_ : float
    prior_scale_ : float or tuple
    posterior_ : Posterior
        The members.
    anchors_ : pytree
        The draws they are anchored to.
    loss_curve_ : list
        Mean loss after each epoch.
    n_iter_ : int
        Epochs.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from anchored import AnchoredClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = AnchoredClassifier(max_iter=100, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    >>> model.predict_dist(X).epistemic_entropy.shape  # disagreement between members, in nats
    (150,)
    """

    def __init__(
        self,
        n_estimators=10,
        hidden_layer_sizes=(50,),
        activation="relu",
        network=None,
        method=None,
        temperature="auto",
        prior_scale="auto",
        anchoring="prior",
        trainable="all",
        optimizer="adam",
        learning_rate_init=0.03,
        max_iter=400,
        batch_size="auto",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=20,
        warm_start=False,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_estimators = n_estimators
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.network = network
        self.method = method
        self.temperature = temperature
        self.prior_scale = prior_scale
        self.anchoring = anchoring
        self.trainable = trainable
        self.optimizer = optimizer
        self.learning_rate_init = learning_rate_init
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> "AnchoredClassifier":
        """Go on with new rows: one pass over them, from where the members are, about the anchors they have.

        The first call needs all `classes` that will ever come, and learns the standardisation and what is left
        to "auto" from its rows. The anchor term is divided by the number of rows seen in all calls.
        """
        if not hasattr(self, "posterior_"):
            if classes is None:
                raise ValueError(
                    "classes must be passed on the first call to partial_fit: all labels that will ever come"
                )
            self._declared_classes: np.ndarray | None = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} differ from those of the first call, {self.classes_.tolist()}")
        try:
            return self._partial_fit(X, y, sample_weight)
        finally:
            self._declared_classes = None

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class."""
        probabilities = self.predict_proba(X)
        return self.classes_[np.argmax(probabilities, axis=1)]

    def predict_proba(self, X: Any) -> np.ndarray:
        """Class probabilities, averaged over members, (rows, classes)."""
        return self.predict_dist(X).probabilities

    def predict_dist(self, X: Any) -> CategoricalPredictive:
        """Probabilities and their entropy: total, aleatoric (classes overlap), epistemic (members disagree)."""
        pieces = [self.posterior_.predict(inputs) for inputs in self._pieces(X)]
        names = ("probabilities", "aleatoric_entropy", "probability_variance")
        arrays = [np.concatenate([getattr(piece, name) for piece in pieces]) for name in names]
        arrays[0] /= arrays[0].sum(axis=1, keepdims=True)  # float32 leaves a rounding error
        return CategoricalPredictive(arrays[0], arrays[1], arrays[2], pieces[0].n_members)

    def sample_functions(self, n_samples: int = 1, random_state: Any = None) -> list[Callable]:
        """Whole functions from the posterior: JAX callables from raw inputs to class probabilities."""

        def finish(outputs, n_dimensions):
            probabilities = jax.nn.softmax(outputs)
            return probabilities[0] if n_dimensions == 1 else probabilities

        return self._member_functions(n_samples, random_state, finish)

    # Fitting

    def _read(self, X, y, sample_weight, reset):
        X, y = validate_data(self, X, y, dtype=np.float64, reset=reset)
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        if not reset:
            unseen = sorted(set(np.unique(y).tolist()) - set(self.classes_.tolist()), key=str)
            if unseen:
                raise ValueError(f"y has the classes {unseen}, which are not among {self.classes_.tolist()}")
        return self._counted(X, y, sample_weight)

    def _learn_targets(self, y, weights):
        found = np.unique(y)
        declared = getattr(self, "_declared_classes", None)
        self.classes_ = found if declared is None else declared
        unknown = [label for label in found.tolist() if label not in set(self.classes_.tolist())]
        if unknown:
            raise ValueError(f"y has the classes {unknown}, which are not among classes={self.classes_.tolist()}")
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class only ({self.classes_.tolist()[0]!r}); a classifier needs at least two")

    def _targets(self, y):
        return np.searchsorted(self.classes_, y).astype(np.int32)

    def _choose_model(self, pilots: Pilots, progress: Progress) -> BayesianModel:
        """Settle the prior and the temperature."""
        settings.check_positive_or_auto("temperature", self.temperature)
        make = self._model_maker(pilots.data.inputs, len(self.classes_))

        def make_model(prior_scale, temperature):
            return make(prior_scale, Categorical(np.asarray(temperature, pilots.data.inputs.dtype)))

        scales = selection.prior_scale_candidates(self.prior_scale)
        temperatures = selection.TEMPERATURES if isinstance(self.temperature, str) else (float(self.temperature),)
        if "temperature" in getattr(self.method, "ignores", ()):
            temperatures = temperatures[:1]
        with progress.phase("choosing temperature and prior", selection.n_epochs(pilots)) as on_progress:
            score = selection.categorical_score(pilots.data)
            best = selection.choose(pilots, make_model, score, scales, temperatures, on_progress)
        self.prior_scale_, self.temperature_ = best
        return make_model(*best)
