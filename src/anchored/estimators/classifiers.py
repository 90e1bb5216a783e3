"""AnchoredClassifier and BayesianClassifier: class probabilities that know when they are guessing."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from anchored.estimators import settings
from anchored.estimators.anchored import AnchoredEstimator
from anchored.estimators.base import BayesianEstimator
from anchored.estimators.classification import Classification
from anchored.estimators.persistence import Saveable
from anchored.model.likelihoods import Categorical, Likelihood
from anchored.model.predictive import CategoricalPredictive


class AnchoredClassifier(Classification, Saveable, AnchoredEstimator):
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
    posterior_ : MemberPosterior
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

    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Go on with new rows: one pass over them, from where the members are, about the anchors they have.

        The first call needs all `classes` that will ever come, and learns the standardisation and what is left
        to "auto" from its rows. The anchor term is divided by the number of rows seen in all calls.

        Args:
            X: (rows, columns) numbers.
            y: (rows,) labels.
            classes: All labels that will ever come; needed in the first call alone.
            sample_weight: (rows,) weights; None for 1.

        Returns:
            The estimator itself.
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

    def _given_likelihood(self) -> Likelihood | None:
        settings.check_positive_or_auto("temperature", self.temperature)
        return None if isinstance(self.temperature, str) else Categorical(np.float64(self.temperature))


class BayesianClassifier(Classification, Saveable, BayesianEstimator):
    """Bayesian classification with a neural network, by any method.

    Parameters are those of `BayesianRegressor`, but for the likelihood.

    Parameters
    ----------
    method : object of `anchored.methods`, such as `HMC(n_chains=4)`
        How to infer the posterior.
    likelihood : "auto", or a Likelihood of classes such as `Categorical(1.0)`
        "auto" is Categorical, with the temperature chosen by the log loss of rows left out.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    temperature_ : float
        Of the likelihood; not there where the likelihood has none.
    prior_scale_ : float or tuple
    posterior_ : Posterior
        The members.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from anchored import BayesianClassifier
    >>> from anchored.methods import MCDropout
    >>> from anchored.model.likelihoods import Categorical
    >>> X, y = load_iris(return_X_y=True)
    >>> method = MCDropout(max_iter=300, n_members=10)
    >>> model = BayesianClassifier(method, Categorical(1.0), prior_scale=2.0, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        method,
        likelihood="auto",
        hidden_layer_sizes=(50,),
        activation="relu",
        network=None,
        prior_scale="auto",
        random_state=None,
        verbose=0,
    ):
        self.method = method
        self.likelihood = likelihood
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.network = network
        self.prior_scale = prior_scale
        self.random_state = random_state
        self.verbose = verbose

    def _given_likelihood(self) -> Likelihood | None:
        if isinstance(self.likelihood, str) and self.likelihood == "auto":
            return None
        return settings.checked_likelihood(self.likelihood, self.method, CategoricalPredictive, len(self.classes_))
