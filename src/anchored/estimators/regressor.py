"""AnchoredRegressor: a table in, a predictive distribution out."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from anchored import checks
from anchored.estimators import selection
from anchored.estimators.base import AnchoredEstimator
from anchored.estimators.progress import Progress
from anchored.estimators.selection import Pilots
from anchored.estimators.standardisation import TARGET_RANGE, Standardisation
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian, HeteroscedasticGaussian
from anchored.model.predictive import Predictive

MOST_DECADES = 20  # between the noise variance and the variance of y, for float32 to hold both


class AnchoredRegressor(RegressorMixin, AnchoredEstimator):
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
    method : None or an object of `anchored.methods`, such as `HMC(n_chains=4)`
        How to infer. None is an anchored ensemble, set up by the arguments below; any other method has its own, and
        an argument here that it would ignore is an error.
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

    Attributes
    ----------
    noise_variance_ : float or (n_outputs,)
        Of an observation, in squared units of y; a typical value where it varies with x.
    training_noise_variance_ : float or (n_outputs,)
        The σ² in the members' loss (eq. 2). Differs from `noise_variance_` only where that is learnt: what
        predicts best is often trained with less noise than is seen. Of a method with a noise of its own, that of the
        model it is compared with.
    noise_model_ : Posterior or None
        How the noise varies with x; None where it does not.
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
        method=None,
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
        self.method = method
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

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AnchoredRegressor":
        """Go on with new rows: one pass over them, from where the members are, about the anchors they have.

        The first call learns the standardisation and what is left to "auto" from its rows, which should
        therefore be typical. The anchor term is divided by the number of rows seen in all calls, so that a
        stream of batches is regularised as the one data set it is. The learning rate stays at
        `learning_rate_init`; after `fit`, or after loading, the optimiser starts afresh.
        """
        return self._partial_fit(X, y, sample_weight)

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Any:
        """The mean; with it the standard deviation of an observation, or the covariance between rows.

        Both include the observation noise. `predict_dist` has the split.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be true")
        predictive = self.predict_dist(X)
        if return_cov:
            return predictive.mean, self._covariance(X)
        return (predictive.mean, predictive.std) if return_std else predictive.mean

    def predict_dist(self, X: Any) -> Predictive:
        """The predictive distribution of each row, with its epistemic and aleatoric variance."""
        pieces = [self._predict_piece(inputs) for inputs in self._pieces(X)]
        names = ("mean", "epistemic_variance", "aleatoric_variance")
        arrays = {name: self._shaped(np.concatenate([getattr(piece, name) for piece in pieces])) for name in names}
        return Predictive(**arrays, n_members=pieces[0].n_members)

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Lower and upper ends between which an observation falls with probability `coverage`."""
        if not 0 < coverage < 1:
            raise ValueError(f"coverage must lie between 0 and 1, got {coverage!r}")
        return self.predict_dist(X).interval(coverage)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> np.ndarray:
        """Observations as the members would see them: (rows, n_samples), or (rows, outputs, n_samples).

        Each sample follows one member over all rows and adds the observation noise.
        """
        checks.whole("n_samples", n_samples)
        rng = check_random_state(random_state)
        outputs, noise = self._outputs_and_noise(X)
        members = outputs[rng.randint(len(outputs), size=n_samples)]
        draws = members + np.sqrt(noise) * rng.standard_normal(members.shape)
        return np.moveaxis(self._shaped(draws), 0, -1)

    def sample_functions(self, n_samples: int = 1, random_state: Any = None) -> list[Callable]:
        """Whole functions from the posterior: JAX callables of raw inputs, differentiable, without noise."""
        check_is_fitted(self)
        mean, scale = self.y_standardisation_.mean, self.y_standardisation_.scale

        def finish(outputs, n_dimensions):
            values = outputs[..., : len(mean)] * scale + mean
            values = values[..., 0] if self.y_is_vector_ else values
            return values[0] if n_dimensions == 1 else values

        return self._member_functions(n_samples, random_state, finish)

    # Fitting

    def _read(self, X, y, sample_weight, reset):
        checks = {"dtype": np.float64, "multi_output": True, "y_numeric": True, "ensure_min_samples": 2 if reset else 1}
        X, y = validate_data(self, X, y, reset=reset, **checks)
        y = np.asarray(y, np.float64)
        n_outputs = self._columns(y).shape[1]
        if not reset and n_outputs != len(self.y_standardisation_.mean):
            raise ValueError(
                f"y has {self._columns(y).shape[1]} outputs, the model {len(self.y_standardisation_.mean)}"
            )
        return self._counted(X, y, sample_weight)

    def _learn_targets(self, y, weights):
        self.y_is_vector_ = y.ndim == 1
        self.y_standardisation_ = Standardisation.of(self._columns(y), weights, "y", TARGET_RANGE)

    def _targets(self, y):
        return self.y_standardisation_.apply(self._columns(y), jnp.result_type(float), "y")

    def _target_scale(self):
        return self.y_standardisation_.scale

    @staticmethod
    def _columns(y: np.ndarray) -> np.ndarray:
        return y[:, None] if y.ndim == 1 else y

    def _choose_model(self, pilots: Pilots, progress: Progress) -> BayesianModel:
        """Settle prior, training noise and observation noise."""
        data = pilots.data
        n_outputs = data.targets.shape[1]
        square = self.y_standardisation_.scale**2
        make = self._model_maker(data.inputs, n_outputs)
        given = self._given_noise(n_outputs)
        if given is not None and np.any(np.abs(np.log10(given) - np.log10(square)) > MOST_DECADES):
            raise ValueError(
                f"noise_variance={self.noise_variance!r} is out of all proportion to the variance of y; check its units"
            )

        def make_model(prior_scale, noise):
            variance = np.full(n_outputs, noise) if given is None else given / square
            return make(prior_scale, Gaussian(variance.astype(data.inputs.dtype)))

        scales = selection.prior_scale_candidates(self.prior_scale)
        noises = selection.NOISE_VARIANCES if given is None else (np.nan,)
        with progress.phase("choosing noise and prior", selection.n_epochs(pilots)) as on_progress:
            score = selection.gaussian_score(data)
            scale, noise = selection.choose(pilots, make_model, score, scales, noises, on_progress)
        model = make_model(scale, noise)
        self.noise_model_ = None
        if given is not None or self._learns_its_noise():
            observed = np.asarray(model.likelihood.noise_variance) * square if given is None else given
        else:
            forced = self.noise_variance == "heteroscedastic"
            with progress.phase("learning the noise", selection.n_epochs(pilots)) as on_progress:
                standardised, self.noise_model_ = selection.observation_noise(pilots, model, forced, on_progress)
            observed = standardised * square
        self.prior_scale_ = scale
        self.noise_variance_ = self._per_output(observed)
        self.training_noise_variance_ = self._per_output(np.asarray(model.likelihood.noise_variance) * square)
        return model

    def _learns_its_noise(self) -> bool:
        """Whether the method does, so that the noise of the model is not that of an observation."""
        return "noise_variance" in getattr(self.method, "ignores", ())

    def _train(self, key, recipe, model, data, grow, progress):
        super()._train(key, recipe, model, data, grow, progress)
        if self._learns_its_noise():
            noise = self._noise(data.inputs)
            weights = np.broadcast_to(data.weights, noise.shape)
            self.noise_variance_ = self._per_output(np.average(noise, axis=0, weights=weights))
        return self

    def _given_noise(self, n_outputs: int) -> np.ndarray | None:
        """The noise variance of each output, or None where it is to be learnt."""
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
        return noise

    # Prediction

    def _predict_piece(self, inputs: np.ndarray) -> Predictive:
        """The predictive distribution in units of y, (rows, outputs)."""
        to_y = self.y_standardisation_
        standardised = self.posterior_.predict(inputs)
        mean, epistemic = standardised.mean * to_y.scale + to_y.mean, standardised.epistemic_variance * to_y.scale**2
        return Predictive(mean, epistemic, self._noise(inputs), standardised.n_members)

    def _noise(self, inputs: np.ndarray) -> np.ndarray:
        """The observation noise at each row, in squared units of y."""
        if isinstance(self.posterior_.model.likelihood, HeteroscedasticGaussian):  # the members have learnt it
            return self.posterior_.predict(inputs).aleatoric_variance * self.y_standardisation_.scale**2
        if self.noise_model_ is not None:
            return self.noise_model_.predict(inputs).aleatoric_variance * self.y_standardisation_.scale**2
        return np.broadcast_to(self.noise_variance_, (len(inputs), len(self.y_standardisation_.mean)))

    def _outputs_and_noise(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Each member's values (members, rows, outputs) and the noise (rows, outputs), in units of y."""
        check_is_fitted(self)
        to_y = self.y_standardisation_
        n_outputs = len(to_y.mean)  # where there are more, the rest are variances
        pieces = [(self.posterior_.outputs(inputs)[..., :n_outputs], self._noise(inputs)) for inputs in self._pieces(X)]
        outputs = np.concatenate([piece[0] for piece in pieces], axis=1) * to_y.scale + to_y.mean
        return outputs, np.concatenate([piece[1] for piece in pieces])

    def _covariance(self, X: Any) -> np.ndarray:
        """As `GaussianProcessRegressor`: (rows, rows), or (rows, rows, outputs)."""
        inputs, scale = np.concatenate(list(self._pieces(X))), self.y_standardisation_.scale
        covariance = self.posterior_.covariance(inputs)[..., : len(scale)] * scale**2
        covariance[np.diag_indices(len(inputs))] += self._noise(inputs)
        return self._shaped(covariance)

    def _shaped(self, array: np.ndarray) -> np.ndarray:
        """Without the axis of outputs where y had none."""
        return array[..., 0] if self.y_is_vector_ else array

    def _per_output(self, variance: np.ndarray) -> Any:
        return float(variance[0]) if self.y_is_vector_ else np.array(variance, np.float64)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
