"""What all estimators share: reading data, standardisation, the one fit, members as functions."""

import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from anchored import checks, trees
from anchored.errors import OtherDataError
from anchored.estimators import settings
from anchored.estimators.progress import Progress
from anchored.estimators.selection import Pilots
from anchored.estimators.standardisation import Standardisation
from anchored.inference import compilation, workers
from anchored.inference.posterior import MemberPosterior, Method, Posterior
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.model.adapters import as_network
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import default_layer_scales, layered_prior
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import MLP, Network
from anchored.types import Data, Key, OnProgress, Params, RandomState

MOST_PILOT_ROWS = 10_000
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-30, 1e30  # of the largest; float32 ends at 1e-38 and 3e38
UNSEEN_WEIGHT = "every sample_weight is zero: there is nothing to learn from"


class BayesianEstimator(BaseEstimator):
    """A Bayesian network behind scikit-learn's interface, fitted by any method. Not for use by itself."""

    pilot_epochs: int  # of the members that choose what is left to "auto", where the method has none of its own
    posterior_: Posterior

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Infer the posterior given a table.

        Args:
            X: (rows, columns) numbers.
            y: (rows,), or (rows, outputs) for a regressor.
            sample_weight: (rows,) What each row's log-likelihood is multiplied by: 2 counts a row twice, 0 leaves it
                out. None for 1.

        Returns:
            The estimator itself.
        """
        self._check_arguments()
        X, y, weights = self._read(X, y, sample_weight, reset=True)
        self.__dict__.pop("posterior_", None)  # a fit that fails must not leave half of an old model behind
        method = self._build_method(len(weights))
        with jax.enable_x64(True) if getattr(method, "needs_float64", False) else nullcontext():
            data, key = self._begin(method, X, y, weights)
            progress = Progress(self.verbose)
            model = self._choose_model(method, key, data, progress)
            self.fingerprint_ = fingerprint(X, y, weights)
            self.n_rows_seen_, self.weight_seen_ = len(weights), float(weights.sum())
            with progress.phase(*self._phase(method)) as on_progress:
                return self._keep(self._infer(method, key, model, data, on_progress), data)

    # What a fit consists of

    def _check_arguments(self) -> None:
        """Raise a ValueError for an argument of the constructor that cannot be used."""
        settings.check_network(self)
        settings.check_method(self.method)

    def _build_method(self, n_rows: int) -> Method:
        """The method that this fit uses, for so many rows."""
        return self.method

    def _phase(self, method: Method) -> tuple[str, int, str]:
        """Title, length and unit of the progress bar of the fit itself."""
        return type(method).__name__, 100, "%"

    def _infer(
        self, method: Method, key: Key, model: BayesianModel, data: Data, on_progress: OnProgress | None
    ) -> Posterior:
        return method.fit(key, model, data, on_progress)

    def _read(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Checked arrays; rows of weight zero are left out, as if they were not there."""
        raise NotImplementedError

    def _counted(
        self, X: np.ndarray, y: np.ndarray, sample_weight: ArrayLike | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        counted = weights > 0
        if not counted.any():
            raise ValueError(UNSEEN_WEIGHT)
        if counted.sum() == 1 and len(counted) > 1:
            raise ValueError("sample_weight: all but one are zero, and one row is too little to learn from")
        largest = weights.max()
        if not SMALLEST_WEIGHT <= largest <= LARGEST_WEIGHT:
            size, remedy = ("small", "multiply") if largest < SMALLEST_WEIGHT else ("large", "divide")
            raise ValueError(
                f"sample_weight: {largest:.0e} is too {size} to compute with; {remedy} all weights by a constant"
            )
        return X[counted], y[counted], weights[counted]

    def _begin(self, method: Method, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[Data, Key]:
        """Learn the standardisation and fix the seed; raise here, before any pilot trains, if workers are unfit."""
        workers.check(getattr(method, "n_jobs", 1))
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.x_standardisation_ = Standardisation.of(X, weights, "X")
        self._learn_targets(y, weights)
        return self._data(X, y, weights), jax.random.key(self.seed_)

    def _learn_targets(self, y: np.ndarray, weights: np.ndarray) -> None:
        """Learn the scale of the targets, or their classes."""
        raise NotImplementedError

    def _targets(self, y: np.ndarray) -> np.ndarray:
        """Targets as the network is trained on them."""
        raise NotImplementedError

    def _data(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Data:
        dtype = jnp.result_type(float)
        inputs = self.x_standardisation_.apply(X, dtype, "X")
        return Data(inputs, self._targets(y), weights[:, None].astype(dtype))

    def _choose_model(self, method: Method, key: Key, data: Data, progress: Progress) -> BayesianModel:
        """Settle what was left to "auto"."""
        raise NotImplementedError

    def _pilots(self, key: Key, data: Data) -> Pilots:
        """Members to choose by."""
        data = self._some_rows(data, MOST_PILOT_ROWS)
        return Pilots(key, self._pilot_method(len(data.weights)).training_config(), data, self.seed_)

    def _pilot_method(self, n_rows: int) -> AnchoredEnsemble:
        return AnchoredEnsemble(solver=settings.pilot_solver(self.pilot_epochs, n_rows))

    def _some_rows(self, data: Data, most: int) -> Data:
        """A part of a large table, which settles a few numbers well enough."""
        n_rows = len(data.weights)
        if n_rows <= most:
            return data
        return trees.take(data, np.random.default_rng([self.seed_, 2]).permutation(n_rows)[:most])

    def _model_maker(
        self, method: Method, inputs: np.ndarray, n_outputs: int
    ) -> Callable[[float | tuple[float, ...], Likelihood], BayesianModel]:
        """A function from prior scale and likelihood to a model that the method can fit."""
        network = self._network(n_outputs)
        params = network.init(jax.random.key(0), inputs[:1])
        if self.network is not None:
            _check_outputs(network, params, inputs, n_outputs)

        def make(prior_scale: float | tuple[float, ...], likelihood: Likelihood) -> BayesianModel:
            model = BayesianModel(
                network, layered_prior(network, params, layer_scales(network, prior_scale)), likelihood
            )
            self._check_model(method, model)  # here, before any pilot trains
            return model

        return make

    def _check_model(self, method: Method, model: BayesianModel) -> None:
        method.check(model)

    def _network(self, n_outputs: int) -> Network:
        if self.network is not None:
            return as_network(self.network)
        return MLP(tuple(int(size) for size in self.hidden_layer_sizes), n_outputs, self.activation)

    def _keep(self, posterior: Posterior, data: Data) -> Self:
        """Store what was found."""
        self.posterior_ = posterior
        return self

    # Prediction

    def _inputs(self, X: ArrayLike) -> np.ndarray:
        """Rows as the members take them."""
        check_is_fitted(self)
        compilation.check_process()
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return self.x_standardisation_.apply(rows, self.posterior_.dtype, "X")

    def _member_functions(self, n_samples: int, random_state: RandomState, finish: Callable) -> list[Callable]:
        """Members as functions of raw inputs, drawn without replacement."""
        check_is_fitted(self)
        checks.whole("n_samples", n_samples)
        posterior = self.posterior_
        if not isinstance(posterior, MemberPosterior):
            raise ValueError("method: an exact process has no members to follow; use sample_y")
        n_members = posterior.n_members
        if n_samples > n_members:
            raise ValueError(
                f"n_samples={n_samples}, but the ensemble has {n_members} members, and each is one function. Grow it: "
                f"set_params(warm_start=True, n_estimators={n_samples}).fit(X, y) with the training data, or give the "
                "method more."
            )
        chosen = check_random_state(random_state).permutation(n_members)[:n_samples]
        mean, scale = self.x_standardisation_.mean, self.x_standardisation_.scale
        network = posterior.model.network

        def function(index: int) -> Callable:
            member = trees.take(posterior.members, index)

            def draw(inputs: ArrayLike) -> jax.Array:
                if not isinstance(inputs, jax.Array):
                    inputs = np.asarray(inputs, np.float64)  # large offsets go before the precision does
                inputs = jnp.asarray((inputs - mean) / scale)
                return finish(network.apply(member, jnp.atleast_2d(inputs)), inputs.ndim)

            return draw

        return [function(int(index)) for index in chosen]

    def _for_certificate(
        self, X: ArrayLike, y: ArrayLike, X_eval: ArrayLike | None, sample_weight: ArrayLike | None
    ) -> tuple[Posterior, Data, np.ndarray | None, np.ndarray]:
        """The posterior, the training data and the points in its units, and the scale of y."""
        check_is_fitted(self)
        X, y, weights = self._read(X, y, sample_weight, reset=False)
        if fingerprint(X, y, weights) != self.fingerprint_:
            raise OtherDataError(
                "X, y, sample_weight",
                "are not the data of the fit",
                "give the training data again, in the same order; what partial_fit has seen in batches cannot be "
                "certified",
            )
        points = None if X_eval is None else self._inputs(X_eval)
        return self.posterior_, self._data(X, y, weights), points, self._target_scale()

    def _target_scale(self) -> np.ndarray:
        """What turns standardised outputs into units of y."""
        return np.ones(1)

    def _after_loading(self) -> None:
        """Called when all that was stored has been read back."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")


def layer_scales(network: Network, prior_scale: float | tuple[float, ...]) -> tuple[float, ...]:
    """A prior scale for each layer: as given, or the first as given and the papers' for the others."""
    default = default_layer_scales(network, 1.0)
    given = prior_scale if isinstance(prior_scale, tuple) else (prior_scale, *default[1:])
    if len(given) != len(default):
        raise ValueError(f"prior_scale: the network has {len(default)} layers, got {len(given)} scales")
    return given


def _check_outputs(network: Network, params: Params, inputs: np.ndarray, n_outputs: int) -> None:
    """Raise unless a network of the user's own gives what is needed."""
    shape = jax.eval_shape(network.apply, params, inputs[:1]).shape
    if shape != (1, n_outputs):
        raise ValueError(
            f"network: {n_outputs} outputs a row are needed, and for one row it gives an array of shape {shape}"
        )


def fingerprint(*arrays: np.ndarray) -> str:
    """Of the training data, to recognise them when they are given again."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes() if array.dtype != object else repr(array.tolist()).encode())
    return digest.hexdigest()
