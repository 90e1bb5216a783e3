"""Choose the arguments of an estimator that are set to "auto", and make the model from them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from sklearn.base import BaseEstimator

from anchored import trees
from anchored.estimators.candidates import (
    FIRST_FRACTION,
    Candidate,
    Hyperparameters,
    NetworkOption,
    PriorScale,
    choose,
    summary,
)
from anchored.estimators.encoding import PiecewiseLinearEncoding
from anchored.estimators.progress import Progress
from anchored.estimators.selection import SELECTION_FOLDS, PilotTrainer, Scorer
from anchored.estimators.settings import is_auto
from anchored.inference.posterior import Method
from anchored.inference.training import TrainingConfig
from anchored.model.adapters import as_network
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import MLP, Network
from anchored.types import Data, Key, OnProgress, Params

MAX_SELECTION_ROWS = 3_000  # candidates are compared on a random subset of larger data sets
MAX_NOISE_ROWS = 50_000  # the noise is estimated from the residuals of at most this many rows
SUBSAMPLE_SEED = 2  # added to the seed sequence of the fit, so that subsets are drawn independently of other draws
MAX_COLUMNS_TO_ENCODE = 100  # "auto" does not encode more columns, because the encoding has nine features per column

MAX_ROWS_OF_SMALL_DATA = 2_000  # with so few rows, scores cannot tell many candidates apart, so fewer are compared
SMALL_DATA_SIZES, LARGE_DATA_SIZES = (50, 50), (50, 50, 50)  # of the hidden layers
SMALL_DATA_PRIOR_SCALES = (2.0, 1.0, 4.0)  # the first one is used in the first round
LARGE_DATA_PRIOR_SCALES = (*SMALL_DATA_PRIOR_SCALES, 0.5)

# The wide network: only its last layer is trained, in closed form
WIDE_SIZES = (1_000,)
WIDE_NOISE_VARIANCES = (1e-3, 1e-4, 1e-5, 1e-6)
WIDE_SCORE_PENALTY = 1.0  # added to its early scores, because pilot members of other networks are trained only briefly
MAX_ROWS_OF_WIDE = 50_000  # the wide network is not tried on larger data sets


class LikelihoodOptions(NamedTuple):
    """The likelihoods that a regressor or a classifier chooses from, and how their predictions are scored."""

    n_outputs: int  # number of outputs of the network
    noises: tuple[float, ...]  # noise variances, or temperatures of a classifier; (NaN,) if the likelihood is given
    make_likelihood: Callable[[float], Likelihood]  # makes a likelihood from one of `noises`
    make_scorer: Callable[[Data], Scorer]  # makes a scorer from the rows that are predicted
    best_constant: Callable[[Data], np.ndarray]  # the best outputs that do not depend on the inputs


class ChosenModel(NamedTuple):
    """The chosen model, and what the following steps of the fit need to train it."""

    method: Method  # the inference method for the chosen network
    model: BayesianModel
    trainer: PilotTrainer  # trains pilot members with the chosen network, on at most MAX_NOISE_ROWS rows


class ModelChoice(BaseEstimator):
    """The part of an estimator that chooses the arguments set to "auto", and makes the model from them."""

    # Arguments of the constructor
    network: object
    hidden_layer_sizes: str | tuple[int, ...]
    activation: str
    input_encoding: str
    prior_scale: str | PriorScale

    # Attributes set by `fit`
    seed_: int
    n_rows_seen_: int  # number of all training rows; choices may be made from some of them only
    prior_scale_: PriorScale
    input_encoding_: PiecewiseLinearEncoding | None  # None if inputs are only standardised
    candidates_: list[Candidate]  # models that were compared to choose arguments set to "auto", the best first

    def _choose_by_pilots(
        self, method: Method, key: Key, data: Data, likelihoods: LikelihoodOptions, progress: Progress
    ) -> ChosenModel:
        """Choose the network, the noise and the prior scale, on at most MAX_SELECTION_ROWS rows.

        The cross-validation scores of pilot members are compared: members that are trained briefly, each without one
        fold of the rows (see `selection`). Sets `input_encoding_`, `prior_scale_` and `candidates_`.

        Parameters
        ----------
        method : Method
            The inference method.
        key : Key
            Random key of the pilot members.
        data : Data
            Training rows with standardised inputs.
        likelihoods : LikelihoodOptions
            The likelihoods to choose from.
        progress : Progress
            Progress bars.

        Returns
        -------
        ChosenModel
            The method and the model of the best candidate, and the trainer of the pilot members that the noise is
            estimated with.
        """
        n_rows, rows = self.n_rows_seen_, self._subsample(data, MAX_SELECTION_ROWS)
        config = self._pilot_config(method, len(rows.weights))
        encodings, sizes = self._input_encodings(data), self._sizes(n_rows)

        def trainer_with(encoding: PiecewiseLinearEncoding | None, trainable: str) -> PilotTrainer:
            return PilotTrainer(key, replace(config, trainable=trainable), _with_encoding(rows, encoding), self.seed_)

        def network_option(encoding: PiecewiseLinearEncoding | None) -> NetworkOption:
            return self._network_option(method, trainer_with(encoding, config.trainable), likelihoods, encoding, sizes)

        def wide_option() -> NetworkOption:
            wide_likelihoods = likelihoods._replace(noises=WIDE_NOISE_VARIANCES)
            trainer = trainer_with(None, "last_layer")
            return self._network_option(method, trainer, wide_likelihoods, None, WIDE_SIZES, WIDE_SCORE_PENALTY)

        may_be_wide = len(likelihoods.noises) > 1 and self._may_solve_last_layer(method, data, encodings)
        options = [network_option(encoding) for encoding in encodings]
        noise_free_config = self._pilot_config(method, len(rows.weights), is_nearly_noise_free=True)
        noise_free_factor = noise_free_config.solver.max_iter / config.solver.max_iter
        with progress.phase("choosing the model", options[0].n_epochs(FIRST_FRACTION)) as on_progress:
            make_wide = wide_option if may_be_wide else None
            choice = choose(options, make_wide, self._prior_scales(n_rows), noise_free_factor, on_progress)
        option, self.candidates_, is_nearly_noise_free = choice
        best = self.candidates_[0]
        self.input_encoding_, self.prior_scale_ = option.encoding, best.prior_scale
        progress.note(summary(self.candidates_))
        rows = self._subsample(data, MAX_NOISE_ROWS)
        config = replace(
            self._pilot_config(method, len(rows.weights), is_nearly_noise_free), trainable=option.trainable
        )
        return ChosenModel(
            self._method_for(method, option, n_rows, is_nearly_noise_free),
            option.make_model(best.prior_scale, best.noise),
            PilotTrainer(key, config, _with_encoding(rows, option.encoding), self.seed_),
        )

    def _network_option(
        self,
        method: Method,
        trainer: PilotTrainer,
        likelihoods: LikelihoodOptions,
        encoding: PiecewiseLinearEncoding | None,
        sizes: tuple[int, ...] | None,
        score_penalty: float = 0.0,
    ) -> NetworkOption:
        """Return a network to choose from.

        Parameters
        ----------
        method : Method
            The inference method.
        trainer : PilotTrainer
            Trains pilot members; its data have encoded inputs.
        likelihoods : LikelihoodOptions
            The likelihoods to choose from.
        encoding : PiecewiseLinearEncoding or None
            The encoding of the inputs; None if they are only standardised.
        sizes : tuple of int or None
            Sizes of the hidden layers; None for the custom network.
        score_penalty : float
            Added to the scores of the first two rounds.
        """
        model_with = self._model_factory(method, np.asarray(trainer.data.inputs), likelihoods.n_outputs, sizes)
        scorer = likelihoods.make_scorer(trainer.data)

        def make_model(prior_scale: PriorScale, noise: float) -> BayesianModel:
            return model_with(prior_scale, likelihoods.make_likelihood(noise))

        def score(
            hyperparameters: list[Hyperparameters], fraction: float, on_progress: OnProgress | None
        ) -> list[float]:
            models = [make_model(*values) for values in hyperparameters]
            outputs = trainer.out_of_fold(models, SELECTION_FOLDS, fraction, on_progress=on_progress)
            return [scorer(of_model[0]) for of_model in outputs]  # there is one member per fold

        trainable, noises = trainer.config.trainable, likelihoods.noises
        score_of_constant = scorer(likelihoods.best_constant(trainer.data))
        return NetworkOption(
            sizes, trainable, encoding, make_model, score, trainer.n_epochs, noises, score_penalty, score_of_constant
        )

    def _pilot_config(self, method: Method, n_rows: int, is_nearly_noise_free: bool = False) -> TrainingConfig:
        """Return how pilot members are trained on `n_rows` rows; `PilotTrainer` takes a fraction of its epochs.

        `is_nearly_noise_free` says whether the data have hardly any noise. Such data need more epochs of training.
        """
        raise NotImplementedError

    def _method_for(self, method: Method, option: NetworkOption, n_rows: int, is_nearly_noise_free: bool) -> Method:
        """Return the inference method for the chosen network.

        Parameters
        ----------
        method : Method
            The inference method that the constructor's arguments describe, returned unless a subclass overrides this.
        option : NetworkOption
            The chosen network.
        n_rows : int
            Number of training rows.
        is_nearly_noise_free : bool
            Whether the data have hardly any noise.
        """
        return method

    def _may_solve_last_layer(
        self, method: Method, data: Data, encodings: list[PiecewiseLinearEncoding | None]
    ) -> bool:
        """Return whether a wide network whose last layer is solved in closed form may be chosen; false by default.

        `encodings` holds the encodings to choose from, for the inputs of `data`.
        """
        return False

    def _input_encodings(self, data: Data) -> list[PiecewiseLinearEncoding | None]:
        """Return the encodings to choose from; None stands for inputs that are only standardised."""
        must_choose = self.input_encoding == "auto" and self.network is None and is_auto(self.hidden_layer_sizes)
        if not must_choose and self.input_encoding != "piecewise_linear":
            return [None]
        encoding = PiecewiseLinearEncoding.fit(np.asarray(data.inputs), np.asarray(data.weights, np.float64)[:, 0])
        if not must_choose:
            return [encoding]
        is_useful = len(encoding.column) > 0 and encoding.n_columns <= MAX_COLUMNS_TO_ENCODE
        return [None, encoding] if is_useful else [None]

    def _subsample(self, data: Data, max_rows: int) -> Data:
        """Return `data`, or a random subset of `max_rows` of its rows if there are more."""
        n_rows = len(data.weights)
        if n_rows <= max_rows:
            return data
        return trees.take(data, np.random.default_rng([self.seed_, SUBSAMPLE_SEED]).permutation(n_rows)[:max_rows])

    def _model_factory(
        self, method: Method, inputs: np.ndarray, n_outputs: int, sizes: tuple[int, ...] | None
    ) -> Callable[[PriorScale, Likelihood], BayesianModel]:
        """Return a function that makes a model from a prior scale and a likelihood.

        Parameters
        ----------
        method : Method
            The inference method. The returned function raises a ValueError if the method cannot fit the model.
        inputs : (rows, features)
            Encoded inputs. The first row determines the shapes of the parameters.
        n_outputs : int
            Number of outputs of the network.
        sizes : tuple of int or None
            Sizes of the hidden layers; None for the custom network.
        """
        network = self._network(n_outputs, sizes)
        params = network.init(jax.random.key(0), inputs[:1])
        if self.network is not None:
            _check_output_shape(network, params, inputs, n_outputs)

        def make(prior_scale: PriorScale, likelihood: Likelihood) -> BayesianModel:
            model = BayesianModel(
                network, layered_prior(network, params, layer_scales(network, prior_scale)), likelihood
            )
            self._check_model(method, model)  # raises before any pilot member is trained
            return model

        return make

    def _check_model(self, method: Method, model: BayesianModel) -> None:
        """Raise a ValueError if `method` cannot fit `model`."""
        method.check(model)

    def _network(self, n_outputs: int, sizes: tuple[int, ...] | None) -> Network:
        """Return an MLP with hidden layers of these `sizes`, or the custom network if `sizes` is None."""
        return as_network(self.network) if sizes is None else MLP(sizes, n_outputs, self.activation)

    def _sizes(self, n_rows: int) -> tuple[int, ...] | None:
        """Return the sizes of the hidden layers for `n_rows` rows; None for a custom network."""
        if self.network is not None:
            return None
        if is_auto(self.hidden_layer_sizes):
            return SMALL_DATA_SIZES if n_rows <= MAX_ROWS_OF_SMALL_DATA else LARGE_DATA_SIZES
        return tuple(int(size) for size in self.hidden_layer_sizes)

    def _prior_scales(self, n_rows: int) -> tuple[PriorScale, ...]:
        """Return the prior scales to choose from for `n_rows` rows: the given one, unless it is "auto"."""
        if is_auto(self.prior_scale):
            return SMALL_DATA_PRIOR_SCALES if n_rows <= MAX_ROWS_OF_SMALL_DATA else LARGE_DATA_PRIOR_SCALES
        return (as_prior_scale(self.prior_scale),)


def _with_encoding(data: Data, encoding: PiecewiseLinearEncoding | None) -> Data:
    """Return `data` with its inputs encoded by `encoding`, unless that is None."""
    return data if encoding is None else data._replace(inputs=encoding.transform(data.inputs))


def as_prior_scale(given: str | float | Sequence[float]) -> PriorScale:
    """Return the argument `prior_scale`, unless it is "auto", as a float or as a tuple of one float per layer."""
    assert not isinstance(given, str)
    return tuple(float(scale) for scale in given) if isinstance(given, Sequence | np.ndarray) else float(given)


def layer_scales(network: Network, prior_scale: PriorScale) -> tuple[float, ...]:
    """Return one prior scale per layer of `network`.

    A tuple `prior_scale` already has one for each layer. A number is the scale of the first layer, and the other layers
    have the scales of `default_layer_scales`.
    """
    default = default_layer_scales(network, 1.0)
    given = prior_scale if isinstance(prior_scale, tuple) else (prior_scale, *default[1:])
    if len(given) != len(default):
        raise ValueError(f"prior_scale: the network has {len(default)} layers, got {len(given)} scales")
    return given


def _check_output_shape(network: Network, params: Params, inputs: np.ndarray, n_outputs: int) -> None:
    """Raise a ValueError unless a custom network returns `n_outputs` numbers per row."""
    shape = jax.eval_shape(network.apply, params, inputs[:1]).shape
    if shape != (1, n_outputs):
        raise ValueError(
            f"network: must return an array of shape {(1, n_outputs)} for one row, but returns one of shape {shape}"
        )
