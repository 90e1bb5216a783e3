"""AnchoredRegressor and BayesianRegressor: regression with a predictive distribution."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from anchored.estimators import settings
from anchored.estimators.anchored import AnchoredEstimator
from anchored.estimators.base import BayesianEstimator
from anchored.estimators.persistence import Saveable
from anchored.estimators.regression import RegressionMixin
from anchored.model.likelihoods import Gaussian, Likelihood
from anchored.model.predictive import Predictive


class AnchoredRegressor(RegressionMixin, Saveable, AnchoredEstimator):
    """Bayesian regression by an anchored ensemble of neural networks.

    Inputs and targets are standardised internally. Unless they are given, the network, the encoding of its inputs, the
    noise variance and the prior scale are chosen by cross-validation. So is the shape of the predictive distribution,
    unless the noise variance is given.

    Parameters
    ----------
    n_estimators : int
        Number of members. A predicted standard deviation has a relative Monte-Carlo error of about
        1/√(2(n_estimators − 1)).
    hidden_layer_sizes : "auto" or tuple
        Number of units of each hidden layer, as in `MLPRegressor`. "auto" is two layers of 50 units, or three for more
        than 2,000 rows. For data with hardly any noise, it may also choose one layer of 1,000 units, with
        `trainable="last_layer"`.
    activation : str
        Activation of the hidden units: a name in `anchored.model.networks.ACTIVATIONS`.
    network : None, a Flax or Equinox module, or a pair `(init, apply)`
        A custom network, which replaces the MLP described by the two arguments above.
    input_encoding : "auto", "standard" or "piecewise_linear"
        How standardised inputs are passed to the network: unchanged ("standard"), or with further features, so that
        the network can change its slope at quantiles of each column ("piecewise_linear"). "auto" chooses by
        cross-validation if `hidden_layer_sizes` is "auto" too, and is "standard" otherwise.
    noise_variance : "auto", "heteroscedastic", float, or one float for each output
        Variance of the observation noise, in squared units of y. "auto" estimates it from out-of-fold residuals, and
        lets it vary with x if that predicts better. "heteroscedastic" always lets it vary with x. If numbers are given,
        the predictive distribution is normal.
    prior_scale : "auto", float, or one float for each layer
        Prior scale of the first layer, or of each layer: a layer of scale c has weights N(0, c²/fan-in) and biases
        N(0, c²). The larger the scale of the first layer, the more quickly functions vary. "auto" chooses it by
        cross-validation.
    anchoring : "prior", "randomized", float κ, or one κ for each layer
        How anchors are drawn. "prior" draws them from the prior. "randomized" also adds noise to the targets, so that
        members of a linear model, or of a network with `trainable="last_layer"`, are exact draws from the posterior. A
        number κ draws anchors from a normal with the mean of the prior and κ times its variance.
    trainable : "all" or "last_layer"
        "last_layer" fixes the other layers at their anchors and solves for the last layer in closed form.
    optimizer : str or function
        The name of an optax optimiser that needs only a learning rate and gradients, such as "adam", or a function from
        a learning rate to an optax gradient transformation.
    learning_rate_init : float
        The initial learning rate. It decays to zero along half a cosine.
    max_iter : "auto" or int
        Number of epochs, or the largest number with early stopping. "auto" depends on the number of rows: it gives
        about 4,800 gradient steps, in 8 to 300 epochs, and twice as many for data with hardly any noise.
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
    noise_variance_ : float or (n_outputs,)
        Variance of the observation noise, in squared units of y; its average if it varies with x.
    training_noise_variance_ : float or (n_outputs,)
        The noise variance of the training loss, in squared units of y. Unless the argument
        `noise_variance` is a number, it is chosen by cross-validation. It may differ from `noise_variance_`, since a
        smaller one often predicts better.
    noise_model_ : MemberPosterior or None
        An ensemble that predicts how the noise varies with x; None if the noise is constant.
    prior_scale_ : float or tuple
        The prior scale, given or chosen.
    noise_shape_ : Shape
        Shape of the predictive distribution: normal, Student-t, skewed, or a mixture of two normals.
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
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.model_selection import train_test_split
    >>> from anchored import AnchoredRegressor
    >>> X_train, X_test, y_train, y_test = train_test_split(*load_diabetes(return_X_y=True), random_state=0)
    >>> model = AnchoredRegressor(random_state=0).fit(X_train, y_train)
    >>> lower, upper = model.predict_interval(X_test, coverage=0.95)
    >>> bool(0.9 < ((lower < y_test) & (y_test < upper)).mean() < 1)
    True
    """

    def __init__(
        self,
        n_estimators=10,
        hidden_layer_sizes="auto",
        activation="gelu",
        network=None,
        input_encoding="auto",
        noise_variance="auto",
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
        self.noise_variance = noise_variance
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

    def partial_fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the members for one epoch on new rows; their anchors stay the same.

        The first call learns the standardisation and chooses the arguments set to "auto" from its rows, which should
        therefore be representative. The anchor term of the loss is divided by the number of rows in all calls so far,
        so that a stream of batches is regularised like one data set. The learning rate is always `learning_rate_init`.
        After `fit`, or after loading, the optimiser starts from its initial state.

        Parameters
        ----------
        X : (rows, columns)
            Inputs, numbers.
        y : (rows,) or (rows, outputs)
            Targets.
        sample_weight : (rows,) or None
            Weights of the rows; None means 1 for every row.

        Returns
        -------
        self
        """
        return self._partial_fit(X, y, sample_weight)

    def _given_likelihood(self, n_outputs: int) -> Likelihood | None:
        """Return a Gaussian likelihood with the given noise variance, or None if that is to be estimated."""
        value = self.noise_variance
        if isinstance(value, str):
            if value not in ("auto", "heteroscedastic"):
                raise ValueError(f'noise_variance must be "auto", "heteroscedastic" or a number, got {value!r}')
            return None
        try:
            noise = np.broadcast_to(np.asarray(value, np.float64), (n_outputs,))
        except (ValueError, TypeError):
            required = f"one number or one for each of {n_outputs} outputs"
            raise ValueError(f"noise_variance must be {required}, got {value!r}") from None
        if not np.all(np.isfinite(noise) & (noise > 0)):
            raise ValueError(f"noise_variance must be positive, got {value!r}")
        return Gaussian(noise)

    def _is_heteroscedastic(self) -> bool:
        """Return whether the noise must vary with x, even if constant noise predicts better."""
        return isinstance(self.noise_variance, str) and self.noise_variance == "heteroscedastic"


class BayesianRegressor(RegressionMixin, Saveable, BayesianEstimator):
    """Bayesian regression with a neural network, by any inference method and any likelihood.

    Inputs and targets are standardised internally. Arguments set to "auto" are chosen by cross-validation, or by the
    log marginal likelihood if the method is `GaussianProcess`.

    Parameters
    ----------
    method : instance of a class in `anchored.methods`, such as `HMC(n_chains=4)` or `GaussianProcess()`
        The inference method.
    likelihood : "auto", "heteroscedastic", or a likelihood such as `Gaussian(0.01)`
        Distribution of an observation given the network's output. Its fields are in units of y, and variances in
        squared units. "auto" is Gaussian noise with an estimated variance, which varies with x if that predicts better.
        "heteroscedastic" always lets it vary with x.
    hidden_layer_sizes : tuple
        Number of units of each hidden layer, as in `MLPRegressor`.
    activation : str
        Activation of the hidden units: a name in `anchored.model.networks.ACTIVATIONS`.
    network : None, a Flax or Equinox module, or a pair `(init, apply)`
        A custom network, which replaces the MLP described by the two arguments above.
    input_encoding : "standard" or "piecewise_linear"
        How standardised inputs are passed to the network: unchanged ("standard"), or with further features, so that
        the network can change its slope at quantiles of each column ("piecewise_linear").
    prior_scale : "auto", float, or one float for each layer
        Prior scale of the first layer, or of each layer: a layer of scale c has weights N(0, c²/fan-in) and biases
        N(0, c²). The larger the scale of the first layer, the more quickly functions vary.
    random_state : int, RandomState or None
        Random seed for everything that is drawn.
    verbose : int
        Above 0, progress bars are shown.

    Attributes
    ----------
    noise_variance_ : float or (n_outputs,)
        Variance of the observation noise, in squared units of y; its average if it varies with x.
    training_noise_variance_ : float or (n_outputs,)
        The noise variance of the likelihood in training, in squared units of y. Reading it raises an AttributeError if
        the likelihood is not Gaussian.
    noise_model_ : MemberPosterior or None
        An ensemble that predicts how the noise varies with x; None if the noise is constant.
    prior_scale_ : float or tuple
        The prior scale, given or chosen.
    noise_shape_ : Shape
        Shape of the predictive distribution: normal, Student-t, skewed, or a mixture of two normals.
    input_encoding_ : PiecewiseLinearEncoding or None
        The encoding of the inputs; None if they are only standardised.
    candidates_ : list of Candidate
        The models that were compared to choose the arguments set to "auto". The chosen model is first, followed by the
        other models of the last round, and then by the models of earlier rounds, each round sorted by score.
    posterior_ : Posterior
        The members, or the exact Gaussian process.

    Examples
    --------
    >>> import numpy as np
    >>> from anchored import BayesianRegressor
    >>> from anchored.methods import GaussianProcess
    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=30)
    >>> model = BayesianRegressor(GaussianProcess(), activation="erf").fit(x, np.sin(3 * x[:, 0]) + noise)
    >>> mean, std = model.predict([[0.0], [3.0]], return_std=True)
    >>> bool(std[1] > 3 * std[0])  # more uncertain far from the data
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

    def _given_likelihood(self, n_outputs: int) -> Likelihood | None:
        """Return the argument `likelihood`, checked, or None if the noise is to be estimated."""
        if isinstance(self.likelihood, str):
            if self.likelihood not in ("auto", "heteroscedastic"):
                raise ValueError(
                    f'likelihood must be "auto", "heteroscedastic" or a Likelihood, got {self.likelihood!r}'
                )
            return None
        return settings.checked_likelihood(self.likelihood, self.method, Predictive, n_outputs)

    def _is_heteroscedastic(self) -> bool:
        """Return whether the noise must vary with x, even if constant noise predicts better."""
        return isinstance(self.likelihood, str) and self.likelihood == "heteroscedastic"
