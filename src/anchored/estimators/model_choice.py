"""Choose the arguments of an estimator that are set to "auto", and make the model from them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from sklearn.base import BaseEstimator

from anchored import trees
from anchored.estimators.candidates import FIRST_SHARE, Candidate, NetworkOption, PriorScale, Setting, choose, summary
from anchored.estimators.encoding import PiecewiseLinearEncoding
from anchored.estimators.progress import Progress
from anchored.estimators.selection import SELECTION_FOLDS, Pilots, Scorer
from anchored.inference.posterior import Method
from anchored.inference.training import TrainingConfig
from anchored.model.adapters import as_network
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import MLP, Network
from anchored.types import Data, Key, OnProgress, Params

MAX_SELECTION_ROWS = 3_000  # candidates are compared on a random subset of longer data
MAX_NOISE_ROWS = 50_000  # the noise is estimated from the residuals of at most this many rows
SUBSAMPLE_STREAM = 2  # with the seed, gives subsets of rows random numbers that nothing else uses
MAX_COLUMNS_TO_ENCODE = 100  # more are not encoded by default: the encoding multiplies them by nine

MAX_ROWS_OF_SMALL_TABLE = 2_000  # small tables cannot tell many candidates apart
SMALL_TABLE_SIZES, LARGE_TABLE_SIZES = (50, 50), (50, 50, 50)  # of hidden layers
SMALL_TABLE_PRIOR_SCALES = (2.0, 1.0, 4.0)  # the first is used while the noise is chosen
LARGE_TABLE_PRIOR_SCALES = (*SMALL_TABLE_PRIOR_SCALES, 0.5)

WIDE_SIZES = (1_000,)  # of the network that is solved in closed form
WIDE_NOISE_VARIANCES = (1e-3, 1e-4, 1e-5, 1e-6)
MAX_ROWS_TO_SOLVE = 50_000
WIDE_HANDICAP = 1.0  # added to the wide network's scores: pilot members of the others would improve if trained fully


class Chosen(NamedTuple):
    """What `ModelChoice._choose_by_pilots` returns."""

    method: Method  # the inference method for the chosen network
    model: BayesianModel
    pilots: Pilots  # pilot members with the inputs of the chosen network, on at most MAX_NOISE_ROWS rows


class ModelChoice(BaseEstimator):
    """The part of an estimator that chooses the arguments set to "auto", and makes the model from them."""

    network: object  # arguments of the constructor
    hidden_layer_sizes: str | tuple[int, ...]
    activation: str
    input_encoding: str
    prior_scale: str | PriorScale

    seed_: int  # set by `fit`
    prior_scale_: PriorScale
    input_encoding_: PiecewiseLinearEncoding | None  # None if standardised inputs are not encoded
    candidates_: list[Candidate]  # what arguments set to "auto" were chosen from, the chosen one first

    def _choose_by_pilots(
        self,
        method: Method,
        key: Key,
        data: Data,
        n_outputs: int,
        likelihood_with: Callable[[float], Likelihood],
        noises: tuple[float, ...],
        make_scorer: Callable[[Data], Scorer],
        progress: Progress,
    ) -> Chosen:
        """Choose the network, the noise and the prior scale by pilot members, on at most MAX_SELECTION_ROWS rows.

        Sets `input_encoding_`, `prior_scale_` and `candidates_`.

        Parameters
        ----------
        method : Method
            The inference method.
        key : Key
            Random key of the pilot members.
        data : Data
            Training rows with standardised inputs.
        n_outputs : int
            Number of outputs of the network.
        likelihood_with : function
            Makes a likelihood from one of `noises`.
        noises : tuple of float
            Noise variances, or temperatures, to choose from.
        make_scorer : function
            Makes the scorer of out-of-fold outputs from the rows of the pilot members.
        progress : Progress
            Progress bars.

        Returns
        -------
        Chosen
            The method and the model of the best candidate, and pilot members for the estimate of the noise.
        """
        rows = self._subsample(data, MAX_SELECTION_ROWS)
        scorer = make_scorer(rows)
        config = self._pilot_config(method, len(rows.weights))
        encodings = self._input_encodings(data)

        def option(
            encoding: PiecewiseLinearEncoding | None,
            sizes: tuple[int, ...] | None,
            trainable: str = config.trainable,
            noises: tuple[float, ...] = noises,
            handicap: float = 0.0,
        ) -> NetworkOption:
            pilots = Pilots(key, replace(config, trainable=trainable), _with_encoding(rows, encoding), self.seed_)
            model_with = self._model_factory(method, np.asarray(pilots.data.inputs), n_outputs, sizes)

            def make_model(prior_scale: PriorScale, noise: float) -> BayesianModel:
                return model_with(prior_scale, likelihood_with(noise))

            def score(settings: list[Setting], share: float, on_progress: OnProgress | None) -> list[float]:
                models = [make_model(*setting) for setting in settings]
                outputs = pilots.out_of_fold(models, SELECTION_FOLDS, share, on_progress=on_progress)
                return [scorer(of_model[0]) for of_model in outputs]

            return NetworkOption(sizes, trainable, encoding, make_model, score, pilots.n_epochs, noises, handicap)

        def wide_option() -> NetworkOption:
            return option(None, WIDE_SIZES, "last_layer", WIDE_NOISE_VARIANCES, WIDE_HANDICAP)

        may_be_wide = len(noises) > 1 and self._may_solve_last_layer(method, data, encodings)
        sizes, scales = self._sizes(len(data.weights)), self._prior_scales(len(data.weights))
        options = [option(encoding, sizes) for encoding in encodings]
        longer = self._pilot_config(method, len(rows.weights), is_noise_free=True)
        factor = longer.solver.max_iter / config.solver.max_iter
        with progress.phase("choosing the model", options[0].n_epochs(FIRST_SHARE)) as on_progress:
            make_wide = wide_option if may_be_wide else None
            choice = choose(options, make_wide, scales, factor, on_progress)
        chosen, self.candidates_, is_noise_free = choice
        best = self.candidates_[0]
        self.input_encoding_, self.prior_scale_ = chosen.encoding, best.prior_scale
        progress.note(summary(self.candidates_))
        rows = self._subsample(data, MAX_NOISE_ROWS)
        config = replace(self._pilot_config(method, len(rows.weights), is_noise_free), trainable=chosen.trainable)
        return Chosen(
            self._method_for(method, chosen, len(data.weights), is_noise_free),
            chosen.make_model(best.prior_scale, best.noise),
            Pilots(key, config, _with_encoding(rows, chosen.encoding), self.seed_),
        )

    def _pilot_config(self, method: Method, n_rows: int, is_noise_free: bool = False) -> TrainingConfig:
        """Return how members of a fit by `method` are trained on `n_rows` rows; `Pilots` shortens it.

        `is_noise_free` is whether the data have hardly any noise, which takes more epochs.
        """
        raise NotImplementedError

    def _method_for(self, method: Method, option: NetworkOption, n_rows: int, is_noise_free: bool) -> Method:
        """Return the inference method for the chosen `option` and `n_rows` rows; by default the given `method`.

        `is_noise_free` is whether the data have hardly any noise.
        """
        return method

    def _may_solve_last_layer(
        self, method: Method, data: Data, encodings: list[PiecewiseLinearEncoding | None]
    ) -> bool:
        """Return whether a wide network with a last layer in closed form may be chosen for `data`; by default not.

        `encodings` are the encodings of its inputs that are compared.
        """
        return False

    def _input_encodings(self, data: Data) -> list[PiecewiseLinearEncoding | None]:
        """Return the encodings of standardised inputs to choose from; None leaves them as they are."""
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
        return trees.take(data, np.random.default_rng([self.seed_, SUBSAMPLE_STREAM]).permutation(n_rows)[:max_rows])

    def _model_factory(
        self, method: Method, inputs: np.ndarray, n_outputs: int, sizes: tuple[int, ...] | None
    ) -> Callable[[PriorScale, Likelihood], BayesianModel]:
        """Return a function that makes a model from a prior scale and a likelihood.

        The function raises a ValueError if `method` cannot fit the model. `inputs` are standardised rows, of which the
        first is used to find the shapes of the parameters, and `sizes` those of the hidden layers; None if custom.
        """
        network = self._network(n_outputs, sizes)
        params = network.init(jax.random.key(0), inputs[:1])
        if self.network is not None:
            _check_output_shape(network, params, inputs, n_outputs)

        def make(prior_scale: PriorScale, likelihood: Likelihood) -> BayesianModel:
            model = BayesianModel(
                network, layered_prior(network, params, layer_scales(network, prior_scale)), likelihood
            )
            self._check_model(method, model)  # before any pilot member trains
            return model

        return make

    def _check_model(self, method: Method, model: BayesianModel) -> None:
        """Raise a ValueError if `method` cannot fit `model`."""
        method.check(model)

    def _network(self, n_outputs: int, sizes: tuple[int, ...] | None) -> Network:
        """Return the custom network, or an MLP with hidden layers of these `sizes` and `n_outputs` outputs."""
        return as_network(self.network) if sizes is None else MLP(sizes, n_outputs, self.activation)

    def _sizes(self, n_rows: int) -> tuple[int, ...] | None:
        """Return the sizes of the hidden layers for `n_rows` rows; None for a custom network."""
        if self.network is not None:
            return None
        if is_auto(self.hidden_layer_sizes):
            return SMALL_TABLE_SIZES if n_rows <= MAX_ROWS_OF_SMALL_TABLE else LARGE_TABLE_SIZES
        return tuple(int(size) for size in self.hidden_layer_sizes)

    def _prior_scales(self, n_rows: int) -> tuple[PriorScale, ...]:
        """Return the prior scales to choose from for `n_rows` rows; a given one is the only one."""
        if is_auto(self.prior_scale):
            return SMALL_TABLE_PRIOR_SCALES if n_rows <= MAX_ROWS_OF_SMALL_TABLE else LARGE_TABLE_PRIOR_SCALES
        return (as_prior_scale(self.prior_scale),)


def _with_encoding(data: Data, encoding: PiecewiseLinearEncoding | None) -> Data:
    """Return `data` with encoded inputs."""
    return data if encoding is None else data._replace(inputs=encoding.transform(data.inputs))


def is_auto(value: object) -> bool:
    """Return whether the argument `value` is "auto"."""
    return isinstance(value, str) and value == "auto"


def as_prior_scale(given: str | float | Sequence[float]) -> PriorScale:
    """Return the argument `prior_scale`, if not "auto", as a number or as a tuple of numbers, one for each layer."""
    assert not isinstance(given, str)
    return tuple(float(scale) for scale in given) if isinstance(given, Sequence | np.ndarray) else float(given)


def layer_scales(network: Network, prior_scale: PriorScale) -> tuple[float, ...]:
    """Return one prior scale per layer of `network`.

    A tuple `prior_scale` is returned as it is. A number is the scale of the first layer; the other layers have the
    scales of `default_layer_scales`.
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
