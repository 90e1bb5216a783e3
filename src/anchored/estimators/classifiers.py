"""AnchoredClassifier and BayesianClassifier: class probabilities with epistemic uncertainty."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from anchored.estimators import settings
from anchored.estimators.anchored import AnchoredEstimator
from anchored.estimators.base import BayesianEstimator
from anchored.estimators.classification import ClassificationMixin
from anchored.estimators.persistence import Saveable
from anchored.model.likelihoods import Categorical, Likelihood
from anchored.model.predictive import CategoricalPredictive


class AnchoredClassifier(ClassificationMixin, Saveable, AnchoredEstimator):
    """Bayesian classification by an anchored ensemble of neural networks, for two or more classes.

    Inputs are standardised internally. Unless they are given, the encoding of the inputs, the temperature and the prior
    scale are chosen by cross-validation.

    Parameters
    ----------
    n_estimators : int
        Number of members. The Monte-Carlo standard error of a class probability is its standard deviation between
        members, divided by √n_estimators.
    hidden_layer_sizes : "auto" or tuple
        Number of units of each hidden layer, as in `MLPClassifier`. "auto" is two layers of 50 units, or three for more
        than 2,000 rows.
    activation : str
        Activation of the hidden units: a name in `anchored.model.networks.ACTIVATIONS`.
    network : None, a Flax or Equinox module, or a pair `(init, apply)`
        A custom network, which replaces the MLP described by the two arguments above. It must have one output, the
        logit, for each class.
    input_encoding : "auto", "standard" or "piecewise_linear"
        How standardised inputs are passed to the network: unchanged ("standard"), or with further features, so that
        the network can change its slope at quantiles of each column ("piecewise_linear"). "auto" chooses by
        cross-validation if `hidden_layer_sizes` is "auto" too, and is "standard" otherwise.
    temperature : "auto" or float
        Temperature of the likelihood in training. 1 is Bayes' rule. A smaller value gives the data more weight relative
        to the prior, which often predicts better. "auto" chooses it by the cross-validated log loss.
    prior_scale : "auto", float, or one float for each layer
        Prior scale of the first layer, or of each layer: a layer of scale c has weights N(0, c²/fan-in) and biases
        N(0, c²). The larger the scale of the first layer, the more quickly functions vary. "auto" chooses it by
        the cross-validated log loss.
    anchoring : "prior", float κ, or one κ for each layer
        How anchors are drawn. "prior" draws them from the prior. A number κ draws them from a normal with the mean of
        the prior and κ times its variance. "randomized" raises an error, because noise cannot be added to classes.
    trainable : "all" or "last_layer"
        "last_layer" fixes the other layers at their anchors and trains only the last layer.
    optimizer : str or function
        The name of an optax optimiser that needs only a learning rate and gradients, such as "adam", or a function from
        a learning rate to an optax gradient transformation.
    learning_rate_init : float
        The initial learning rate. It decays to zero along half a cosine.
    max_iter : "auto" or int
        Number of epochs, or the largest number with early stopping. "auto" depends on the number of rows: it gives
        about 4,800 gradient steps, in 8 to 300 epochs.
    batch_size : "auto" or int
        Rows per gradient step. "auto" gives about 16 batches per epoch, of 16 to 1,024 rows.
    early_stopping : bool
        Whether to stop a member when its loss on held-out rows no longer improves.
    validation_fraction : float
        Fraction of the rows held out for early stopping.
    n_iter_no_change : int
        Number of epochs without improvement after which early stopping stops a member.
    warm_start : bool
        Whether `fit` with a larger `n_estimators` trains only the new members and keeps the others as they are.
    n_jobs : int or None
        Number of joblib processes that train members. One process already uses all cores.
    random_state : int, RandomState or None
        Random seed for everything that is drawn.
    verbose : int
        Above 0, progress bars are shown.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    temperature_ : float
        The temperature, given or chosen.
    predictive_temperature_ : float
        The number by which logits are divided in predictions, chosen on held-out rows; 1 if the temperature is given.
    prior_scale_ : float or tuple
        The prior scale, given or chosen.
    input_encoding_ : PiecewiseLinearEncoding or None
        The encoding of the inputs; None if they are only standardised.
    candidates_ : list of Candidate
        The models that were compared to choose the arguments set to "auto". The chosen model is first, followed by the
        other models of the last round, and then by the models of earlier rounds, each round sorted by score.
    posterior_ : MemberPosterior
        The members.
    anchors_ : pytree
        The anchor of each member.
    loss_curve_ : list
        The loss after each epoch, averaged over members.
    n_iter_ : int
        The largest number of epochs that a member was trained for.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from anchored import AnchoredClassifier
    >>> X, y = make_moons(200, noise=0.25, random_state=0)
    >>> model = AnchoredClassifier(max_iter=100, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    >>> model.predict_dist(X).epistemic_entropy.shape  # disagreement between members, in nats
    (200,)
    """

    def __init__(
        self,
        n_estimators=10,
        hidden_layer_sizes="auto",
        activation="gelu",
        network=None,
        input_encoding="auto",
        temperature="auto",
        prior_scale="auto",
        anchoring="prior",
        trainable="all",
        optimizer="adam",
        learning_rate_init=0.01,
        max_iter="auto",
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
        self.input_encoding = input_encoding
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
        """Train the members for one epoch on new rows; their anchors stay the same.

        The first call learns the standardisation and chooses the arguments set to "auto" from its rows, which should
        therefore be representative. The anchor term of the loss is divided by the number of rows in all calls so far,
        so that a stream of batches is regularised like one data set. The learning rate is always `learning_rate_init`.
        After `fit`, or after loading, the optimiser starts from its initial state.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        y : (rows,)
            Labels.
        classes : (classes,) or None
            All labels that this and later calls may contain. Required in the first call only.
        sample_weight : (rows,) or None
            Weights of the rows; None means 1 for every row.

        Returns
        -------
        self
        """
        if not hasattr(self, "posterior_"):
            if classes is None:
                raise ValueError(
                    "classes must be passed on the first call to partial_fit: all labels that any call may contain"
                )
            self._declared_classes: np.ndarray | None = np.unique(classes)
        elif classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes={classes!r} differ from those of the first call, {self.classes_.tolist()}")
        try:
            return self._partial_fit(X, y, sample_weight)
        finally:
            self._declared_classes = None

    def _given_likelihood(self) -> Likelihood | None:
        """Return the likelihood with the given temperature, or None for "auto"."""
        settings.check_positive_or_auto("temperature", self.temperature)
        return None if isinstance(self.temperature, str) else Categorical(np.float64(self.temperature))


class BayesianClassifier(ClassificationMixin, Saveable, BayesianEstimator):
    """Bayesian classification with a neural network, by any inference method except `GaussianProcess`.

    Inputs are standardised internally. Arguments set to "auto" are chosen by cross-validation.

    Parameters
    ----------
    method : instance of a class in `anchored.methods`, such as `HMC(n_chains=4)`
        The inference method. `GaussianProcess` raises an error, because it needs the Gaussian likelihood.
    likelihood : "auto", or a likelihood for classes such as `Categorical(1.0)`
        Distribution of a label given the network's outputs. "auto" is Categorical, with the temperature chosen by the
        cross-validated log loss if the method uses it.
    hidden_layer_sizes : tuple
        Number of units of each hidden layer, as in `MLPClassifier`.
    activation : str
        Activation of the hidden units: a name in `anchored.model.networks.ACTIVATIONS`.
    network : None, a Flax or Equinox module, or a pair `(init, apply)`
        A custom network, which replaces the MLP described by the two arguments above. It must have one output, the
        logit, for each class.
    input_encoding : "standard" or "piecewise_linear"
        How standardised inputs are passed to the network: unchanged ("standard"), or with further features, so that
        the network can change its slope at quantiles of each column ("piecewise_linear").
    prior_scale : "auto", float, or one float for each layer
        Prior scale of the first layer, or of each layer: a layer of scale c has weights N(0, c²/fan-in) and biases
        N(0, c²). The larger the scale of the first layer, the more quickly functions vary. "auto" chooses it by
        the cross-validated log loss.
    random_state : int, RandomState or None
        Random seed for everything that is drawn.
    verbose : int
        Above 0, progress bars are shown.

    Attributes
    ----------
    classes_ : array
        The labels, sorted.
    temperature_ : float
        The temperature of the likelihood, given or chosen. Reading it raises an AttributeError if there is none.
    prior_scale_ : float or tuple
        The prior scale, given or chosen.
    input_encoding_ : PiecewiseLinearEncoding or None
        The encoding of the inputs; None if they are only standardised.
    candidates_ : list of Candidate
        The models that were compared to choose the arguments set to "auto". The chosen model is first, followed by the
        other models of the last round, and then by the models of earlier rounds, each round sorted by score.
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
        input_encoding="standard",
        prior_scale="auto",
        random_state=None,
        verbose=0,
    ):
        self.method = method
        self.likelihood = likelihood
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.network = network
        self.input_encoding = input_encoding
        self.prior_scale = prior_scale
        self.random_state = random_state
        self.verbose = verbose

    def _given_likelihood(self) -> Likelihood | None:
        """Return the argument `likelihood`, checked, or None for "auto"."""
        if isinstance(self.likelihood, str) and self.likelihood == "auto":
            return None
        return settings.checked_likelihood(self.likelihood, self.method, CategoricalPredictive, len(self.classes_))
