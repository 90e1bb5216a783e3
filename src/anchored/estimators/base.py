"""What the regressor and the classifier share: reading data, training, growing, going on, saving."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from anchored import checks, trees
from anchored.errors import OtherDataError
from anchored.estimators import persistence, settings
from anchored.estimators.progress import Progress
from anchored.estimators.selection import Pilots
from anchored.estimators.standardisation import Standardisation
from anchored.inference import compilation, workers
from anchored.inference.anchoring import check_anchoring
from anchored.inference.training import Recipe
from anchored.methods.anchored_ensemble import AnchoredEnsemble
from anchored.methods.method import Posterior
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import MLP, Network, as_network
from anchored.model.priors import default_layer_scales, layered_prior
from anchored.types import Data, Key

ROWS_AT_ONCE = 2**16  # rows standardised and predicted at a time, so that memory stays bounded
MOST_PILOT_ROWS = 10_000
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-30, 1e30  # of the largest; float32 ends at 1e-38 and 3e38
UNSEEN_WEIGHT = "every sample_weight is zero: there is nothing to learn from"


class AnchoredEstimator(BaseEstimator):
    """An anchored ensemble behind scikit-learn's interface. Not for use by itself."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "AnchoredEstimator":
        """Train the ensemble.

        With `warm_start=True` and a larger `n_estimators`, only the new members are trained: give the same data
        again. The members already there stay as they are, bit for bit.
        """
        settings.check(self)
        growing = self.warm_start and hasattr(self, "posterior_")
        X, y, weights = self._read(X, y, sample_weight, reset=not growing)
        fingerprint = _fingerprint(X, y, weights)
        if growing:
            return self._grow(X, y, weights, fingerprint)
        for name in ("posterior_", "anchors_", "loss_curve_", "n_iter_"):
            self.__dict__.pop(name, None)  # a fit that fails must not leave half of an old model behind
        data, key = self._begin(X, y, weights)
        recipe = settings.recipe(self, len(weights))
        progress = Progress(self.verbose)
        model = self._choose_model(self._pilots(key, data), progress)
        self.fingerprint_ = fingerprint
        self.n_rows_seen_, self.weight_seen_ = len(weights), float(weights.sum())
        self._fitted_with = self._configuration()
        return self._train(key, recipe, model, data, None, progress)

    def _grow(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray, fingerprint: str) -> "AnchoredEstimator":
        n_members = self.posterior_.n_members
        if fingerprint != self.fingerprint_:
            raise ValueError(
                "warm_start=True grows the ensemble on the data it was fitted to, and these are other data. Set "
                "warm_start=False to fit anew, or use partial_fit to go on with new rows."
            )
        changed = [name for name, value in self._configuration().items() if self._fitted_with[name] != value]
        if changed:
            raise ValueError(f"warm_start=True grows the ensemble as it was fitted, but {changed} changed since then")
        if self.n_estimators < n_members:
            raise ValueError(f"n_estimators={self.n_estimators} is smaller than the {n_members} members fitted already")
        if self.n_estimators == n_members:
            return self
        data = self._data(X, y, weights)
        recipe = settings.recipe(self, len(weights))
        key = jax.random.key(self.seed_)
        return self._train(key, recipe, self.posterior_.model, data, self.posterior_, Progress(self.verbose))

    def _train(
        self, key: Key, recipe: Recipe, model: BayesianModel, data: Data, grow: Posterior | None, progress: Progress
    ) -> "AnchoredEstimator":
        if self.method is not None:
            with progress.phase(type(self.method).__name__, 100, "%") as on_progress:
                return self._keep(self.method.fit(key, model, data, on_progress))
        held_out = self._held_out(len(data.weights)) if self.early_stopping else None
        with progress.phase("training members", recipe.solver.max_iter) as on_progress:
            return self._keep(self._method(recipe).fit(key, model, data, on_progress, held_out=held_out, grow=grow))

    def _partial_fit(self, X: Any, y: Any, sample_weight: Any) -> "AnchoredEstimator":
        settings.check(self)
        if self.method is not None:
            raise ValueError("method: partial_fit goes on with anchored ensembles only; leave method out, or use fit")
        first = not hasattr(self, "posterior_")
        X, y, weights = self._read(X, y, sample_weight, reset=first)
        one_pass = replace(settings.solver(self, len(weights)), max_iter=1, decay=False, early_stopping=False)
        recipe = replace(settings.recipe(self, len(weights)), solver=one_pass)
        if first:
            data, key = self._begin(X, y, weights)
            model = self._choose_model(self._pilots(key, data), Progress(self.verbose))
            self.n_rows_seen_, self.weight_seen_ = 0, 0.0
            self._fitted_with = self._configuration()
            posterior = self._method(recipe).fit(key, model, data, one_pass=True)
        else:
            data = self._data(X, y, weights)
            key = jax.random.fold_in(jax.random.key(self.seed_), self.n_rows_seen_)
            stands_for = 1 + self.weight_seen_ / weights.sum()
            posterior = self._method(recipe).resume(key, self.posterior_, data, stands_for)
        self.n_rows_seen_ += len(weights)
        self.weight_seen_ += float(weights.sum())
        self.fingerprint_ = "a stream of batches"
        return self._keep(posterior)

    # What a fit begins with

    def _read(self, X: Any, y: Any, sample_weight: Any, reset: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Checked arrays; rows of weight zero are left out, as if they were not there."""
        raise NotImplementedError

    def _counted(self, X: np.ndarray, y: np.ndarray, sample_weight: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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

    def _begin(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> tuple[Data, Key]:
        """Learn the standardisation and fix the seed; raise here, before any pilot trains, if workers are unfit."""
        workers.check(getattr(self.method or self, "n_jobs", 1))
        self.seed_ = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        self.x_standardisation_ = Standardisation.of(X, weights, "X")
        self._learn_targets(y, weights)
        return self._data(X, y, weights), jax.random.key(self.seed_)

    def _configuration(self) -> dict[str, str]:
        """The arguments a member depends on, as text; those that are code are left out."""
        free = ("n_estimators", "n_jobs", "verbose", "warm_start", "random_state", "network")
        params = self.get_params(deep=False)
        return {n: repr(value) for n, value in params.items() if n not in free and not callable(value)}

    def _learn_targets(self, y: np.ndarray, weights: np.ndarray) -> None:
        raise NotImplementedError

    def _targets(self, y: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def _data(self, X: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Data:
        dtype = jnp.result_type(float)
        inputs = self.x_standardisation_.apply(X, dtype, "X")
        return Data(inputs, self._targets(y), weights[:, None].astype(dtype))

    def _pilots(self, key: Key, data: Data) -> Pilots:
        """Members to choose by; of a large table they see a part, which settles a few numbers well enough."""
        n_rows = len(data.weights)
        if n_rows > MOST_PILOT_ROWS:
            part = np.random.default_rng([self.seed_, 2]).permutation(n_rows)[:MOST_PILOT_ROWS]
            data = trees.take(data, part)
        return Pilots(key, settings.recipe(self, len(data.weights)), data, self.seed_)

    def _choose_model(self, pilots: Pilots, progress: Progress) -> BayesianModel:
        raise NotImplementedError

    def _held_out(self, n_rows: int) -> np.ndarray:
        """Rows kept for early stopping, the same for all members."""
        n_held_out = max(1, round(self.validation_fraction * n_rows))
        if n_held_out >= n_rows:
            raise ValueError(f"early_stopping=True: {n_rows} rows are too few to hold any out")
        order = np.random.default_rng([self.seed_, 1]).permutation(n_rows)
        return order < n_held_out

    def _method(self, recipe: Recipe) -> AnchoredEnsemble:
        anchoring = recipe.draw.how  # type: ignore[attr-defined]
        return AnchoredEnsemble(self.n_estimators, anchoring, recipe.trainable, recipe.solver, self.n_jobs)

    def _model_maker(self, inputs: np.ndarray, n_outputs: int) -> Callable[[Any, Likelihood], BayesianModel]:
        """A function from prior scale and likelihood to a model."""
        network = self._network(n_outputs)
        params = network.init(jax.random.key(0), inputs[:1])
        if self.network is not None:
            _check_outputs(network, params, inputs, n_outputs)

        def make(prior_scale: Any, likelihood: Likelihood) -> BayesianModel:
            scales = default_layer_scales(network, 1.0)
            given = (prior_scale, *scales[1:]) if np.ndim(prior_scale) == 0 else tuple(prior_scale)
            if len(given) != len(scales):
                raise ValueError(f"prior_scale: the network has {len(scales)} layers, got {len(given)} scales")
            model = BayesianModel(network, layered_prior(network, params, given), likelihood)
            check_anchoring(self.anchoring, model)  # here, before any pilot trains
            if self.method is not None:
                self.method.check(model)
            return model

        return make

    def _network(self, n_outputs: int) -> Network:
        if self.network is not None:
            return as_network(self.network)
        return MLP(tuple(int(size) for size in self.hidden_layer_sizes), n_outputs, self.activation)

    # What a fit leaves behind

    def _keep(self, posterior: Posterior) -> "AnchoredEstimator":
        self.posterior_ = posterior
        trained = posterior.diagnostics.get("trained")
        if trained is not None:
            self.anchors_ = trained.anchors
            self.loss_curve_ = np.nanmean(trained.loss_curve, axis=1).tolist()
            self.n_iter_ = int(np.max(trained.n_epochs))
        return self

    # Prediction

    def _pieces(self, X: Any) -> Iterator[np.ndarray]:
        """Standardised rows, a bounded number at a time."""
        check_is_fitted(self)
        compilation.check_process()
        X = validate_data(self, X, dtype=np.float64, reset=False)
        for start in range(0, len(X), ROWS_AT_ONCE):
            yield self.x_standardisation_.apply(X[start : start + ROWS_AT_ONCE], self.posterior_.dtype, "X")

    def _member_functions(self, n_samples: int, random_state: Any, finish: Callable) -> list[Callable]:
        """Members as functions of raw inputs, drawn without replacement."""
        check_is_fitted(self)
        checks.whole("n_samples", n_samples)
        if not isinstance(self.posterior_, Posterior):
            raise ValueError(f"method: a {type(self.method).__name__} has no members to follow; use sample_y")
        n_members = self.posterior_.n_members
        if n_samples > n_members:
            raise ValueError(
                f"n_samples={n_samples}, but the ensemble has {n_members} members, and each is one function. Grow it: "
                f"set_params(warm_start=True, n_estimators={n_samples}).fit(X, y) with the training data, or give the "
                "method more."
            )
        chosen = check_random_state(random_state).permutation(n_members)[:n_samples]
        mean, scale = self.x_standardisation_.mean, self.x_standardisation_.scale
        network = self.posterior_.model.network

        def function(index: int) -> Callable:
            member = trees.take(self.posterior_.members, index)

            def draw(inputs: Any) -> jax.Array:
                if not isinstance(inputs, jax.Array):
                    inputs = np.asarray(inputs, np.float64)  # large offsets go before the precision does
                inputs = jnp.asarray((inputs - mean) / scale)
                return finish(network.apply(member, jnp.atleast_2d(inputs)), inputs.ndim)

            return draw

        return [function(int(index)) for index in chosen]

    def _for_certificate(
        self, X: Any, y: Any, X_eval: Any, sample_weight: Any
    ) -> tuple[Posterior, Data, np.ndarray | None, np.ndarray]:
        """The posterior, the training data and the points in its units, and the scale of y."""
        check_is_fitted(self)
        X, y, weights = self._read(X, y, sample_weight, reset=False)
        if _fingerprint(X, y, weights) != self.fingerprint_:
            raise OtherDataError(
                "X, y, sample_weight",
                "are not the data of the fit",
                "give the training data again, in the same order; what partial_fit has seen in batches cannot be "
                "certified",
            )
        points = None if X_eval is None else np.concatenate(list(self._pieces(X_eval)))
        return self.posterior_, self._data(X, y, weights), points, self._target_scale()

    def _target_scale(self) -> np.ndarray:
        """What turns standardised outputs into units of y."""
        return np.ones(1)

    def save(self, path: Any) -> None:
        """Write the fitted estimator to one file; `anchored.load` reads it back."""
        check_is_fitted(self)
        persistence.save(self, path)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")


def _check_outputs(network: Network, params: Any, inputs: np.ndarray, n_outputs: int) -> None:
    """Raise unless a network of the user's own gives what is needed."""
    shape = jax.eval_shape(network.apply, params, inputs[:1]).shape
    if shape != (1, n_outputs):
        raise ValueError(
            f"network: {n_outputs} outputs a row are needed, and for one row it gives an array of shape {shape}"
        )


def _fingerprint(*arrays: np.ndarray) -> str:
    """Of the training data, to recognise them when they are given again."""
    digest = hashlib.blake2b(digest_size=16)
    for array in arrays:
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes() if array.dtype != object else repr(array.tolist()).encode())
    return digest.hexdigest()
