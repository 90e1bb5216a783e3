"""AnchoredRegressor and BayesianRegressor: a table in, a predictive distribution out."""

from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from anchored.estimators import settings
from anchored.estimators.anchored import AnchoredEstimator
from anchored.estimators.base import BayesianEstimator
from anchored.estimators.persistence import Saveable
from anchored.estimators.regression import Regression
from anchored.model.likelihoods import Gaussian, Likelihood
from anchored.model.predictive import Predictive


class AnchoredRegressor(Regression, Saveable, AnchoredEstimator):
    """Bayesian regression by an anchored ensemble of neural networks.

    Inputs and targets are standardised inside. Noise and prior are chosen by how well rows left out are
    predicted, unless given.

    Parameters
    ----------
    n_estimators : int
        Members. A standard deviation has a relative Monte-Carlo error of 1/√(2(n_estimators − 1)).
    hidden_layer_sizes : tuple
        Units of each hidden layer, as in `MLPRegressor`.
    activation : str
        Of the hidden units: one of `networks.ACTIVATIONS`.
    network : None, a Flax or Equinox module, or a pair `(init, apply)`
        In the place of the two above.
    noise_variance : "auto", "heteroscedastic", float or one for each output
        In squared units of y. "auto" learns it, and whether it varies with x, from rows left out.
    prior_scale : "auto", float, or one for each layer
        Standard deviation of first-layer pre-activations, √b in the papers: how quickly functions may bend.
    anchoring : "prior", "randomized", κ or one κ for each layer
        Where anchors come from: the prior; the prior, with noisy targets, which is exact for linear models and
        the last layer; or N(μ, κ Σ_prior).
    trainable : "all" or "last_layer"
        "last_layer" keeps the layers below at their anchors and solves the last in closed form.
    optimizer : str, or a factory from learning rate to optax transformation
        By its name in optax, such as "adam", where it needs a learning rate and gradients alone.
    learning_rate_init : float
        The first learning rate, which follows half a cosine down to zero.
    max_iter : int
        Epochs.
    batch_size : "auto" or int
        Rows a step.
    early_stopping : bool
        Stop each member when rows held out are no longer predicted better.
    validation_fraction : float
        The share of the rows held out for that.
    n_iter_no_change : int
        The epochs without a gain that end it.
    warm_start : bool
        True with a larger `n_estimators` grows the ensemble; members already there stay as they are.
    n_jobs : int or None
        Processes that share the members, through joblib. Threads use all cores already.
    random_state : int, RandomState or None
        Random seed for everything that is drawn.
    verbose : int
        Above 0, progress bars are shown.

    Attributes
    ----------
    noise_variance_ : float or (n_outputs,)
        Of an observation, in squared units of y; a typical value where it varies with x.
    training_noise_variance_ : float or (n_outputs,)
        The σ² in the members' loss (eq. 2). Differs from `noise_variance_` only where that is learnt: what
        predicts best is often trained with less noise than is seen.
    noise_model_ : MemberPosterior or None
        How the noise varies with x; None where it does not.
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
    >>> import numpy as np
    >>> from anchored import AnchoredRegressor
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> model = AnchoredRegressor(max_iter=200, random_state=0).fit(x, np.sin(3 * x[:, 0]))
    >>> mean, std = model.predict([[0.0], [3.0]], return_std=True)
    >>> bool(std[1] > 3 * std[0])  # far from the data it knows that it does not know
    True
    """

    def __init__(
        self,
        n_estimators=10,
        hidden_layer_sizes=(50,),
        activation="relu",
        network=None,
        noise_variance="auto",
        prior_scale="auto",
        anchoring="prior",
        trainable="all",
        optimizer="adam",
        learning_rate_init=0.03,
        max_iter=800,
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
        """Go on with new rows: one pass over them, from where the members are, about the anchors they have.

        The first call learns the standardisation and what is left to "auto" from its rows, which should
        therefore be typical. The anchor term is divided by the number of rows seen in all calls, so that a
        stream of batches is regularised as the one data set it is. The learning rate stays at
        `learning_rate_init`; after `fit`, or after loading, the optimiser starts afresh.

        Args:
            X: (rows, columns) numbers.
            y: (rows,) or (rows, outputs).
            sample_weight: (rows,) weights; None for 1.

        Returns:
            The estimator itself.
        """
        return self._partial_fit(X, y, sample_weight)

    def _given_likelihood(self, n_outputs: int) -> Likelihood | None:
        value = self.noise_variance
        if isinstance(value, str):
            if value not in ("auto", "heteroscedastic"):
                raise ValueError(f'noise_variance must be "auto", "heteroscedastic" or a number, got {value!r}')
            return None
        try:
            noise = np.broadcast_to(np.asarray(value, np.float64), (n_outputs,))
        except (ValueError, TypeError):
            wanted = f"one number or one for each of {n_outputs} outputs"
            raise ValueError(f"noise_variance must be {wanted}, got {value!r}") from None
        if not np.all(np.isfinite(noise) & (noise > 0)):
            raise ValueError(f"noise_variance must be positive, got {value!r}")
        return Gaussian(noise)

    def _noise_varies(self) -> bool:
        return isinstance(self.noise_variance, str) and self.noise_variance == "heteroscedastic"


class BayesianRegressor(Regression, Saveable, BayesianEstimator):
    """Bayesian regression with a neural network, by any method and any likelihood.

    Inputs and targets are standardised inside. What is left to "auto" is chosen by how well rows left out are
    predicted, or by the log marginal likelihood where the method is `GaussianProcess`.

    Parameters
    ----------
    method : object of `anchored.methods`, such as `HMC(n_chains=4)` or `GaussianProcess()`
        How to infer the posterior.
    likelihood : "auto", "heteroscedastic", or a Likelihood such as `Gaussian(0.01)`
        What an observation is given the network's output. Its numbers are in units of y (squared for variances).
        "auto" is Gaussian noise whose variance is learnt, with a model of how it varies with x where that predicts
        better; "heteroscedastic" uses that model in any case.
    hidden_layer_sizes : tuple
        Units of each hidden layer, as in `MLPRegressor`.
    activation : str
        Of the hidden units: one of `networks.ACTIVATIONS`.
    network : None, a Flax or Equinox module, or a pair `(init, apply)`
        In the place of the two above.
    prior_scale : "auto", float, or one for each layer
        Standard deviation of first-layer pre-activations, √b in the papers: how quickly functions may bend.
    random_state : int, RandomState or None
        Random seed for everything that is drawn.
    verbose : int
        Above 0, progress bars are shown.

    Attributes
    ----------
    noise_variance_ : float or (n_outputs,)
        Of an observation, in squared units of y; a typical value where it varies with x.
    training_noise_variance_ : float or (n_outputs,)
        The noise variance of the likelihood, where that is Gaussian.
    noise_model_ : MemberPosterior or None
        How the noise varies with x; None where it does not.
    prior_scale_ : float or tuple
    posterior_ : Posterior
        The members, or the exact process.

    Examples
    --------
    >>> import numpy as np
    >>> from anchored import BayesianRegressor
    >>> from anchored.methods import GaussianProcess
    >>> x = np.linspace(-1, 1, 30)[:, None]
    >>> noise = 0.1 * np.random.default_rng(0).normal(size=30)
    >>> model = BayesianRegressor(GaussianProcess(), activation="erf").fit(x, np.sin(3 * x[:, 0]) + noise)
    >>> mean, std = model.predict([[0.0], [3.0]], return_std=True)
    >>> bool(std[1] > 3 * std[0])  # far from the data it knows that it does not know
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

    def _given_likelihood(self, n_outputs: int) -> Likelihood | None:
        if isinstance(self.likelihood, str):
            if self.likelihood not in ("auto", "heteroscedastic"):
                raise ValueError(
                    f'likelihood must be "auto", "heteroscedastic" or a Likelihood, got {self.likelihood!r}'
                )
            return None
        return settings.checked_likelihood(self.likelihood, self.method, Predictive, n_outputs)

    def _noise_varies(self) -> bool:
        return isinstance(self.likelihood, str) and self.likelihood == "heteroscedastic"
