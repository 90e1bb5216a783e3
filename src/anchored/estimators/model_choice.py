"""Choose the model: the network, the encoding of its inputs, the noise and the prior scale.

Networks with all layers trained are compared first. If they predict nearly all of the variance, a wide network whose
last layer is solved in closed form is compared too: gradient descent is too slow to follow a function without noise
that closely. Such tables are also trained for longer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
from sklearn.base import BaseEstimator

from anchored import trees
from anchored.estimators import selection
from anchored.estimators.encoding import PiecewiseLinearEncoding
from anchored.estimators.progress import Progress
from anchored.estimators.selection import SELECTION_FOLDS, SELECTION_SHARE, Pilots, Scorer
from anchored.inference.posterior import Method
from anchored.inference.training import TrainingConfig
from anchored.model.adapters import as_network
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import MLP, Network
from anchored.types import Data, Key, OnProgress, Params

MAX_SELECTION_ROWS = 3_000  # candidates are compared on a random subset of longer data
MAX_PILOT_ROWS = 10_000  # the same for residuals
SUBSAMPLE_STREAM = 2  # with the seed, gives subsets of rows random numbers that nothing else uses
MAX_COLUMNS_TO_ENCODE = 100  # more are not encoded by default: the encoding multiplies them by nine

MAX_ROWS_OF_SMALL = 2_000  # small tables cannot tell many candidates apart
SIZES_OF_SMALL, SIZES_OF_LARGE = (50, 50), (50, 50, 50)  # of hidden layers
PRIOR_SCALES_OF_SMALL = (2.0, 1.0, 4.0)  # the first is used while the noise is chosen
PRIOR_SCALES_OF_LARGE = (*PRIOR_SCALES_OF_SMALL, 0.5)

NOISE_FREE_SCORE = -1.25  # a better score means that residuals have less than a fifth of the standard deviation of y
WIDE_SIZES = (1_000,)  # of the network that is solved in closed form
WIDE_NOISE_VARIANCES = (1e-3, 1e-4, 1e-5, 1e-6)
MAX_ROWS_TO_SOLVE = 50_000
HEAD_START = 1.0  # nats by which the wide network must be better: pilot members of the others are not trained fully


@dataclass(frozen=True)
class NetworkCandidate:
    """A network, which of its layers are trained, and an encoding of its inputs, to be compared with others."""

    hidden_layer_sizes: tuple[int, ...] | None  # None for a custom network
    trainable: str  # "all" or "last_layer"
    encoding: PiecewiseLinearEncoding | None  # of the inputs
    pilots: Pilots  # with the inputs of this network
    make_model: Callable[[float | tuple[float, ...], float], BayesianModel]  # from a prior scale, and a noise
    noises: tuple[float, ...]  # noise variances or temperatures to choose from
    handicap: float = 0.0  # added to its scores


class Candidate(NamedTuple):
    """A candidate, and its score on rows left out."""

    hidden_layer_sizes: tuple[int, ...] | None  # None for a custom network
    trainable: str  # "all" or "last_layer"
    input_encoding: str  # "standard" or "piecewise_linear"
    prior_scale: float | tuple[float, ...]
    noise: float  # noise variance of standardised targets in training; for classes, the temperature
    score: float  # in nats per row, up to a constant; lower is better, and NaN for a single candidate

    @property
    def network(self) -> str:
        """The network in words."""
        sizes = "custom network" if self.hidden_layer_sizes is None else " × ".join(map(str, self.hidden_layer_sizes))
        last_layer = ", last layer in closed form" if self.trainable == "last_layer" else ""
        return f"{sizes}{last_layer}, {self.input_encoding.replace('_', ' ')} inputs"


def choose(
    networks: list[NetworkCandidate],
    make_noise_free: Callable[[], NetworkCandidate] | None,
    score: Scorer,
    prior_scales: tuple[float | tuple[float, ...], ...],
    on_progress: OnProgress | None = None,
) -> tuple[NetworkCandidate, list[Candidate]]:
    """Choose a network and a noise variance at the first prior scale, then the prior scale of that pair.

    Parameters
    ----------
    networks : list of NetworkCandidate
        Networks to choose from.
    make_noise_free : function or None
        Makes a network that is compared only if another reaches NOISE_FREE_SCORE.
    score : Scorer
        Function that scores the out-of-fold outputs of a candidate; lower is better.
    prior_scales : tuple of float
        Prior scales to choose from.
    on_progress : function or None
        Called with the fraction of the work just done, and the loss.

    Returns
    -------
    network : NetworkCandidate
        The network of the best candidate.
    candidates : list of Candidate
        All candidates, best first; a single one is not trained.
    """
    n_first = sum(len(network.noises) for network in networks)
    if n_first * len(prior_scales) == 1:
        return networks[0], [_candidate(networks[0], prior_scales[0], networks[0].noises[0], np.nan)]
    n_stages = len(networks) * (n_first > 1) + (len(prior_scales) > 1)

    def on_stage_progress(share: float, loss: float) -> None:
        if on_progress is not None:
            on_progress(share / n_stages, loss)

    def scored(network: NetworkCandidate, settings: list[tuple[float | tuple[float, ...], float]]) -> list[Candidate]:
        """Candidates with this network, and all pairs of a prior scale and a noise variance in `settings`."""
        if not settings:
            return []
        models = [network.make_model(*pair) for pair in settings]
        outputs = network.pilots.out_of_fold(models, SELECTION_FOLDS, SELECTION_SHARE, on_progress=on_stage_progress)
        return [
            _candidate(network, *pair, score(output[0]) + network.handicap)
            for pair, output in zip(settings, outputs, strict=True)
        ]

    def compared(network: NetworkCandidate) -> list[tuple[Candidate, NetworkCandidate]]:
        pairs = [(prior_scales[0], noise) for noise in network.noises]
        return [(candidate, network) for candidate in scored(network, pairs)]

    found = [pair for network in networks for pair in compared(network)]
    if make_noise_free is not None and min(candidate.score for candidate, _ in found) < NOISE_FREE_SCORE:
        found += compared(make_noise_free())
    best, network = min(found, key=lambda pair: pair[0].score)
    candidates = [candidate for candidate, _ in found]
    candidates += scored(network, [(scale, best.noise) for scale in prior_scales[1:]])
    return network, sorted(candidates, key=lambda candidate: candidate.score)


def _candidate(
    network: NetworkCandidate, prior_scale: float | tuple[float, ...], noise: float, score: float
) -> Candidate:
    """The candidate with this network, prior scale and noise."""
    encoding = "standard" if network.encoding is None else "piecewise_linear"
    return Candidate(network.hidden_layer_sizes, network.trainable, encoding, prior_scale, noise, score)


def summary(candidates: list[Candidate]) -> str:
    """Return a sentence that says which of `candidates`, best first, was chosen, and by how much."""
    best = candidates[0]
    chosen = f"chosen: {best.network}; prior scale {best.prior_scale}, noise {best.noise:g}"
    others = [candidate for candidate in candidates if candidate.network != best.network]
    if not others:
        return chosen
    gain = others[0].score - best.score
    return f"{chosen}; next: {others[0].network}, {gain:.3f} nats a row worse on rows left out"


class Chosen(NamedTuple):
    """What `ModelChoice` returns."""

    method: Method  # the inference method for the chosen network
    model: BayesianModel
    pilots: Pilots  # pilot members with the inputs of the chosen network, on at most MAX_PILOT_ROWS rows


class ModelChoice(BaseEstimator):
    """The part of an estimator that chooses the arguments set to "auto", and makes the model from them."""

    seed_: int
    prior_scale_: float | tuple[float, ...]
    input_encoding_: PiecewiseLinearEncoding | None  # None if standardised inputs are not encoded
    candidates_: list[Candidate]  # what arguments set to "auto" were chosen from, best first

    def _choose_by_pilots(
        self,
        method: Method,
        key: Key,
        data: Data,
        n_outputs: int,
        likelihood_with: Callable[[float], Likelihood],
        noises: tuple[float, ...],
        scorer: Callable[[Data], Scorer],
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
        scorer : function
            Makes the scorer of out-of-fold outputs from the rows of the pilot members.
        progress : Progress
            Progress bars.
        """
        rows = self._subsample(data, MAX_SELECTION_ROWS)
        config = self._pilot_config(method, len(rows.weights))
        encodings = self._input_encodings(data)

        def candidate(
            encoding: PiecewiseLinearEncoding | None,
            sizes: tuple[int, ...] | None,
            trainable: str = config.trainable,
            noises: tuple[float, ...] = noises,
            handicap: float = 0.0,
        ) -> NetworkCandidate:
            pilots = Pilots(key, replace(config, trainable=trainable), _with_encoding(rows, encoding), self.seed_)
            model_with = self._model_factory(method, np.asarray(pilots.data.inputs), n_outputs, sizes)

            def make_model(prior_scale: float | tuple[float, ...], noise: float) -> BayesianModel:
                return model_with(prior_scale, likelihood_with(noise))

            return NetworkCandidate(sizes, trainable, encoding, pilots, make_model, noises, handicap)

        def wide_candidate() -> NetworkCandidate:
            return candidate(None, WIDE_SIZES, "last_layer", WIDE_NOISE_VARIANCES, HEAD_START)

        may_be_wide = len(noises) > 1 and self._may_solve_last_layer(method, data, encodings)
        sizes, scales = self._sizes(len(data.weights)), self._prior_scales(len(data.weights))
        networks = [candidate(encoding, sizes) for encoding in encodings]
        with progress.phase("choosing the model", selection.n_epochs(networks[0].pilots)) as on_progress:
            make_noise_free = wide_candidate if may_be_wide else None
            network, self.candidates_ = choose(networks, make_noise_free, scorer(rows), scales, on_progress)
        best = self.candidates_[0]
        self.input_encoding_, self.prior_scale_ = network.encoding, best.prior_scale
        progress.note(summary(self.candidates_))
        is_noise_free = best.score < NOISE_FREE_SCORE
        rows = self._subsample(data, MAX_PILOT_ROWS)
        config = replace(self._pilot_config(method, len(rows.weights), is_noise_free), trainable=network.trainable)
        return Chosen(
            self._method_for(method, network, len(data.weights), is_noise_free),
            network.make_model(best.prior_scale, best.noise),
            Pilots(key, config, _with_encoding(rows, network.encoding), self.seed_),
        )

    def _pilot_config(self, method: Method, n_rows: int, is_noise_free: bool = False) -> TrainingConfig:
        """Return how pilot members of a fit by `method` are trained on `n_rows` rows, if for all their epochs."""
        raise NotImplementedError

    def _method_for(self, method: Method, network: NetworkCandidate, n_rows: int, is_noise_free: bool) -> Method:
        """Return the inference method for the chosen `network` and `n_rows` rows; `method` is the one asked for."""
        return method

    def _may_solve_last_layer(
        self, method: Method, data: Data, encodings: list[PiecewiseLinearEncoding | None]
    ) -> bool:
        """Return whether a wide network with a last layer in closed form may be chosen."""
        return False

    def _input_encodings(self, data: Data) -> list[PiecewiseLinearEncoding | None]:
        """Return the encodings of standardised inputs to choose from; None leaves them as they are."""
        is_chosen = self.input_encoding == "auto" and self.network is None and is_auto(self.hidden_layer_sizes)
        if not is_chosen and self.input_encoding != "piecewise_linear":
            return [None]
        encoding = PiecewiseLinearEncoding.fit(np.asarray(data.inputs), np.asarray(data.weights, np.float64)[:, 0])
        if not is_chosen:
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
    ) -> Callable[[float | tuple[float, ...], Likelihood], BayesianModel]:
        """Return a function that makes a model from a prior scale and a likelihood.

        The function raises a ValueError if `method` cannot fit the model. `inputs` are standardised rows, of which the
        first is used to find the shapes of the parameters, and `sizes` those of the hidden layers; None if custom.
        """
        network = self._network(n_outputs, sizes)
        params = network.init(jax.random.key(0), inputs[:1])
        if self.network is not None:
            _check_output_shape(network, params, inputs, n_outputs)

        def make(prior_scale: float | tuple[float, ...], likelihood: Likelihood) -> BayesianModel:
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
            return SIZES_OF_SMALL if n_rows <= MAX_ROWS_OF_SMALL else SIZES_OF_LARGE
        return tuple(int(size) for size in self.hidden_layer_sizes)

    def _prior_scales(self, n_rows: int) -> tuple[float | tuple[float, ...], ...]:
        """Return the prior scales to choose from for `n_rows` rows; a given one is the only one."""
        if is_auto(self.prior_scale):
            return PRIOR_SCALES_OF_SMALL if n_rows <= MAX_ROWS_OF_SMALL else PRIOR_SCALES_OF_LARGE
        return (as_prior_scale(self.prior_scale),)


def _with_encoding(data: Data, encoding: PiecewiseLinearEncoding | None) -> Data:
    """Return `data` with encoded inputs."""
    return data if encoding is None else data._replace(inputs=encoding.transform(data.inputs))


def is_auto(value: object) -> bool:
    """Return whether the argument `value` is "auto"."""
    return isinstance(value, str) and value == "auto"


def as_prior_scale(given: float | Sequence[float]) -> float | tuple[float, ...]:
    """Return the argument `prior_scale` as a number, or as a tuple of numbers, one for each layer."""
    return tuple(float(scale) for scale in given) if isinstance(given, Sequence | np.ndarray) else float(given)


def layer_scales(network: Network, prior_scale: float | tuple[float, ...]) -> tuple[float, ...]:
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
