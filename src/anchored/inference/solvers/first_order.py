"""Minimise a stack of independent losses by any optax optimiser, all lanes in one compiled program.

A lane is one problem. Lanes share the rows' inputs and the order of batches; each has its own parameters,
targets, weights and learning rate. Learning rates follow half a cosine down to zero.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from anchored import checks
from anchored.inference.compilation import jit
from anchored.inference.schedule import half_cosine
from anchored.model.bayesian_model import BayesianModel
from anchored.trees import Tree
from anchored.types import Array, Data, Key, Number, Params

AnchorAndModel = tuple[Params, BayesianModel]  # what a lane is pulled to, and under which model
OptimizerFactory = Callable[[Number], optax.GradientTransformation]  # learning rate -> transformation
# Those of optax that need a learning rate and gradients alone, by name: a name may come from a file, so no other is
# looked up. Early versions of optax lack some.
OPTIMIZERS: dict[str, OptimizerFactory] = {
    name: getattr(optax, name)
    for name in (
        "adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad",
        "fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_adam_v2",
        "optimistic_gradient_descent", "radam", "rmsprop", "rprop", "sgd", "sign_sgd", "sm3", "yogi",
    )
    if hasattr(optax, name)
}  # fmt: skip
MOST_EPOCHS_A_CALL = 32
ORDER_STREAM = 2**31  # the order of batches comes from the upper half of a key's numbers, members' draws from the lower
SECONDS_A_CALL = 0.2  # between reports of progress


@dataclass(frozen=True)
class FirstOrder:
    """How to train: the optimiser and how long it runs."""

    optimizer: str | OptimizerFactory = "adam"
    learning_rate: float = 0.03
    max_iter: int = 800  # epochs
    batch_size: int | None = None  # None: all rows at once
    decay: bool = True  # half a cosine down to zero; False keeps the rate
    early_stopping: bool = False
    patience: int = 10  # epochs without a better held-out misfit

    def factory(self) -> OptimizerFactory:
        return OPTIMIZERS[self.optimizer] if isinstance(self.optimizer, str) else self.optimizer

    def check(self) -> None:
        """Raise where a setting cannot be used."""
        check_optimizer(self.optimizer)
        checks.positive("learning_rate", self.learning_rate)
        for name in ("max_iter", "patience"):
            checks.whole(name, getattr(self, name))
        if self.batch_size is not None:
            checks.whole("batch_size", self.batch_size, alternative="or None")


class Objective(Protocol):
    """What a lane minimises; hashable, since each objective is compiled for itself."""

    def loss(self, params: Params, problem: AnchorAndModel, batch: Data, size: Array) -> Array:
        """The loss on a batch that stands for data of total weight `size`."""

    def held_out_misfit(self, params: Params, problem: AnchorAndModel, batch: Data) -> Array:
        """What early stopping watches."""


class StackedProblems(NamedTuple):
    """Problems side by side: every leaf but `inputs` and `n_rows` has a leading lane axis."""

    problem: AnchorAndModel
    inputs: Array  # (rows, ...), shared
    targets: Array  # (lanes, rows, ...)
    weights: Array  # (lanes, rows, terms); rows of weight zero pad the table
    held_out_weights: Array | None  # likewise, of the rows kept for early stopping
    n_rows: int | Array  # rows before padding
    size: Array  # (lanes,) total weight of the rows trained on


class Best(NamedTuple):
    """Early stopping: a lane's best parameters on its held-out rows so far."""

    params: Params
    misfit: Array
    epochs_since: Array
    n_epochs: Array  # how many epochs the lane has run


class State(NamedTuple):
    """What the next epoch needs."""

    params: Params
    optimizer_state: optax.OptState | None  # None where the solver has no state
    best: Best | None


class Solution(NamedTuple):
    """Where each lane ended. Not having converged is data, not an exception."""

    params: Params
    state: State
    loss_curve: np.ndarray  # (epochs, lanes)
    n_epochs: np.ndarray  # (lanes,) how many it ran before it stopped
    first_loss: np.ndarray  # (lanes,) of the first batch, before any step


def check_optimizer(value: object) -> None:
    """Raise unless `value` names, or is, what makes an optimiser of a learning rate."""
    remedy = 'Pass a name ("adam") or a factory that takes a learning rate (optax.adam).'
    if value is None:
        raise ValueError(f"optimizer: there is none; a saved model does not keep a function of your own. {remedy}")
    if isinstance(value, optax.GradientTransformation):
        raise ValueError(f"optimizer: got an optax transformation, which has its learning rate fixed. {remedy}")
    if isinstance(value, str):
        if value not in OPTIMIZERS:
            raise ValueError(
                f"optimizer: {value!r} is none of those known by name, {sorted(OPTIMIZERS)}. Pass any other as a "
                "factory that takes a learning rate (optax.noisy_sgd)."
            )
        return
    if not callable(value):
        raise ValueError(f"optimizer: {value!r} cannot be called with a learning rate. {remedy}")
    try:
        made = value(0.1)
    except Exception as error:
        raise ValueError(f"optimizer: {value!r} failed when called with a learning rate: {error}. {remedy}") from error
    if not isinstance(made, optax.GradientTransformation):
        raise ValueError(f"optimizer: {value!r} does not give an optax transformation. {remedy}")
    try:
        jax.eval_shape(lambda params: made.update(params, made.init(params), params), np.zeros(1, np.float32))
    except TypeError as error:
        raise ValueError(f"optimizer: {value!r} needs more than gradients: {error}") from error


def bucket(n_rows: int) -> int:
    """Round up to three significant bits, so that folds of nearly equal size share a program."""
    grain = 2 ** max(3, n_rows.bit_length() - 3)
    return math.ceil(n_rows / grain) * grain


def initial_state(optimizer: OptimizerFactory, params: Params, early_stopping: bool) -> State:
    """A fresh optimiser for each lane of `params`. Pure, to be called inside a jitted function."""
    lanes = jax.tree.leaves(params)[0].shape[0]
    zero = jnp.zeros(lanes, int)
    best = Best(params, jnp.full(lanes, jnp.inf), zero, zero) if early_stopping else None
    return State(params, jax.vmap(optimizer(0.0).init)(params), best)


def minimise(
    objective: Objective,
    solver: FirstOrder,
    stack: StackedProblems,
    state: State,
    learning_rate: Array,
    key: Key,
    on_progress: Callable[[int, np.ndarray], None] | None = None,
) -> Solution:
    """Run all epochs, a few at a time, so that progress shows and a stopped or lost stack ends early."""
    curve: list[np.ndarray] = []
    first_loss = np.zeros(0)
    done, span = 0, 1
    while done < solver.max_iter:
        started = time.perf_counter()
        stop = min(done + span, solver.max_iter)
        state, losses, began = _run_epochs(
            (objective, solver.factory(), solver.batch_size),
            stack, state, learning_rate, key, done, stop, solver.max_iter, solver.decay, solver.patience,
        )  # fmt: skip
        if done == 0:
            first_loss = np.asarray(began)
        curve.append(np.asarray(losses)[: stop - done])
        if on_progress is not None:
            on_progress(stop - done, curve[-1][-1])
        if done > 0:  # the first call may have compiled
            seconds = max(time.perf_counter() - started, 1e-6)
            span = int(np.clip(span * SECONDS_A_CALL / seconds, 1, MOST_EPOCHS_A_CALL))
        done = stop
        stopped = False if state.best is None else np.asarray(state.best.epochs_since) >= solver.patience
        if np.all(stopped | ~np.isfinite(curve[-1][-1])):
            break
    params = state.params if state.best is None else state.best.params
    n_epochs = np.full(len(learning_rate), done) if state.best is None else np.asarray(state.best.n_epochs)
    return Solution(params, state, np.concatenate(curve)[: n_epochs.max()], n_epochs, first_loss)


@partial(jit, static_argnums=(0,))
def _run_epochs(
    static: tuple[Objective, OptimizerFactory, int | None],
    stack: StackedProblems,
    state: State,
    learning_rate: Array,
    key: Key,
    first: Number,
    stop: Number,
    total: Number,
    decay: Array | bool,
    patience: Number,
) -> tuple[State, jax.Array, jax.Array]:
    """Epochs `first` to `stop` of `total`; also each epoch's mean loss, (epochs, lanes)."""
    objective, optimizer, batch_size = static
    lanes, n_padded = stack.weights.shape[:2]
    rows_a_batch = n_padded if batch_size is None else batch_size
    n_batches = 1 if batch_size is None else -(-stack.n_rows // batch_size)
    share = 1 if batch_size is None else stack.n_rows / batch_size

    def lane_step(
        params: Params, optimizer_state: optax.OptState, problem: AnchorAndModel, batch: Data, size: Array, rate: Array
    ) -> tuple[Params, optax.OptState, Array]:
        batch = batch._replace(weights=share * batch.weights)
        value, gradient = jax.value_and_grad(objective.loss)(params, problem, batch, size)
        updates, optimizer_state = optimizer(rate).update(gradient, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state, value

    def epoch(index: jax.Array, carry: tuple[State, jax.Array, jax.Array]) -> tuple[State, jax.Array, jax.Array]:
        state, losses, began = carry
        table = Data(stack.inputs, stack.targets, stack.weights)
        if batch_size is not None:
            table = _shuffled(
                jax.random.fold_in(key, jnp.uint32(ORDER_STREAM) + jnp.uint32(index)), table, stack.n_rows, batch_size
            )

        def step(
            j: jax.Array, carry: tuple[Params, optax.OptState, jax.Array, jax.Array]
        ) -> tuple[Params, optax.OptState, jax.Array, jax.Array]:
            params, optimizer_state, summed, began = carry
            progress = (index * n_batches + j) / (total * n_batches)
            rate = learning_rate * jnp.where(decay, half_cosine(progress), 1.0)
            batch = _batch(table, j * rows_a_batch, rows_a_batch)
            params, optimizer_state, value = jax.vmap(lane_step)(
                params, optimizer_state, stack.problem, batch, stack.size, rate
            )
            began = jnp.where((index == first) & (j == 0), value, began)
            return params, optimizer_state, summed + value, began

        start = (state.params, state.optimizer_state, jnp.zeros(lanes, losses.dtype), began)
        params, optimizer_state, summed, began = jax.lax.fori_loop(0, n_batches, step, start)
        moved = State(params, optimizer_state, state.best)
        if state.best is not None:
            moved = _remember_best(objective, stack, patience, state, state.best, moved)
        return moved, losses.at[index - first].set(summed / n_batches), began

    losses = jnp.zeros((MOST_EPOCHS_A_CALL, lanes), learning_rate.dtype)
    return jax.lax.fori_loop(first, stop, epoch, (state, losses, losses[0]))


def _shuffled(key: Key, table: Data, n_rows: Number, batch_size: int) -> Data:
    """The rows in a random order, padding left out, wrapped around so that every batch is full."""
    n_padded = table.inputs.shape[0]
    rank = jax.random.uniform(key, (n_padded,))
    order = jnp.argsort(jnp.where(jnp.arange(n_padded) < n_rows, rank, 2.0))
    order = order[jnp.arange(-(-n_padded // batch_size) * batch_size) % n_rows]
    return Data(table.inputs[order], table.targets[:, order], table.weights[:, order])


def _batch(table: Data, start: Number, rows: int) -> Data:
    """Rows `start` onwards, the inputs once for each lane.

    A product over shared inputs would merge all lanes into one, which is slower and rounds differently as
    lanes come and go; behind the barrier each lane's arithmetic is its own.
    """
    lanes = table.weights.shape[0]
    inputs = jax.lax.dynamic_slice_in_dim(table.inputs, start, rows)
    inputs = jax.lax.optimization_barrier(jnp.broadcast_to(inputs, (lanes, *inputs.shape)))
    targets = jax.lax.dynamic_slice_in_dim(table.targets, start, rows, axis=1)
    return Data(inputs, targets, jax.lax.dynamic_slice_in_dim(table.weights, start, rows, axis=1))


def _remember_best(
    objective: Objective, stack: StackedProblems, patience: Number, old: State, so_far: Best, new: State
) -> State:
    """Keep each lane's best parameters; a lane out of patience stays where it is."""
    table = Data(stack.inputs, stack.targets, cast(Array, stack.held_out_weights))  # there, if lanes stop early
    axes = Data(None, 0, 0)  # type: ignore[arg-type]  # the lane axis of each field, not the field
    misfit = jax.vmap(objective.held_out_misfit, in_axes=(0, 0, axes))(new.params, stack.problem, table)
    running = so_far.epochs_since < patience
    better = running & (misfit < so_far.misfit)

    def pick(chosen: Array, ours: Tree, theirs: Tree) -> Tree:
        return jax.tree.map(lambda a, b: jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), ours, theirs)

    epochs_since = jnp.where(better, 0, so_far.epochs_since + running)
    best = Best(
        pick(better, new.params, so_far.params),
        jnp.where(better, misfit, so_far.misfit),
        epochs_since,
        so_far.n_epochs + running,
    )
    return State(*pick(running, (new.params, new.optimizer_state), (old.params, old.optimizer_state)), best)
