"""Minimise many independent losses by any optax optimiser, all in one compiled program.

A lane is one problem. Lanes share the inputs and the order of batches; each has its own parameters, targets, weights
and learning rate. By default, learning rates fall to zero along half a cosine.
"""

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
from anchored.inference.solvers.optimizers import OPTIMIZERS, OptimizerFactory, check_optimizer
from anchored.model.bayesian_model import BayesianModel
from anchored.trees import Tree
from anchored.types import Array, Data, Key, Number, Params

AnchorAndModel = tuple[Params, BayesianModel]
MAX_EPOCHS_PER_CALL = 32  # of the compiled program
ORDER_STREAM = 2**31  # numbers folded into the key for the order of batches start here; those of members are below
SECONDS_PER_CALL = 0.2  # how long a call should take: the time between reports of progress


@dataclass(frozen=True)
class FirstOrder:
    """Settings of a first-order optimiser.

    Attributes
    ----------
    optimizer : str or callable
        A name in `OPTIMIZERS`, or a function that takes a learning rate and returns an optax transformation.
    learning_rate : float
        Initial learning rate.
    max_iter : int
        Number of epochs.
    batch_size : int or None
        Rows in each step; None for all rows.
    decay : bool
        Whether the learning rate falls to zero along half a cosine; otherwise it is constant.
    early_stopping : bool
        Whether a member stops when its loss on held-out rows no longer falls.
    patience : int
        Epochs without a better loss on the held-out rows before a member stops.
    """

    optimizer: str | OptimizerFactory = "adam"
    learning_rate: float = 0.03
    max_iter: int = 800
    batch_size: int | None = None
    decay: bool = True
    early_stopping: bool = False
    patience: int = 10

    def factory(self) -> OptimizerFactory:
        """Return the function that takes a learning rate and returns the optax transformation."""
        return OPTIMIZERS[self.optimizer] if isinstance(self.optimizer, str) else self.optimizer

    def check(self) -> None:
        """Raise a ValueError if a setting is invalid."""
        check_optimizer(self.optimizer)
        checks.positive("learning_rate", self.learning_rate)
        for name in ("max_iter", "patience"):
            checks.whole(name, getattr(self, name))
        if self.batch_size is not None:
            checks.whole("batch_size", self.batch_size, alternative="or None")


class Objective(Protocol):
    """The function that a lane minimises; hashable, since it is a static argument of the compiled program."""

    def loss(self, params: object, problem: AnchorAndModel, batch: Data, size: Array) -> Array:
        """Return the loss at `params` on a `batch` of data of total weight `size`; `problem` is (anchor, model)."""

    def held_out_loss(self, params: object, problem: AnchorAndModel, batch: Data) -> Array:
        """Return the loss at `params` on the held-out rows in `batch`; `problem` is (anchor, model)."""


class StackedProblems(NamedTuple):
    """Problems of several lanes: every leaf but `inputs` and `n_rows` has a leading lane axis."""

    problem: AnchorAndModel  # (anchor, model)
    inputs: Array  # (rows, ...), shared by all lanes
    targets: Array  # (lanes, rows, ...)
    weights: Array  # (lanes, rows, terms); zero for padding
    held_out_weights: Array | None  # (lanes, rows, terms); zero but for rows held out for early stopping
    n_rows: int | Array  # rows before padding
    size: Array  # (lanes,) total weight of the rows trained on


class Best(NamedTuple):
    """For early stopping, the parameters of each lane with the lowest loss on its held-out rows so far."""

    params: Params  # every leaf has a leading lane axis
    loss: Array  # (lanes,) on the held-out rows
    epochs_since: Array  # (lanes,) epochs since the loss was lowest
    n_epochs: Array  # (lanes,) epochs that the lane has run


class State(NamedTuple):
    """The state of all lanes between two epochs."""

    params: Params  # every leaf has a leading lane axis
    optimizer_state: optax.OptState | None  # None if the solver has no state
    best: Best | None  # None without early stopping


class Solution(NamedTuple):
    """The result of all lanes, converged or not."""

    params: Params  # the last, or with early stopping the best; every leaf has a leading lane axis
    state: State  # after the last epoch
    loss_curve: np.ndarray  # (epochs, lanes)
    n_epochs: np.ndarray  # (lanes,) epochs run before the lane stopped
    first_loss: np.ndarray  # (lanes,) of the first batch, before any step


def initial_state(optimizer: OptimizerFactory, params: Tree, early_stopping: bool) -> State:
    """Return the state before the first epoch; call this inside a jitted function.

    Parameters
    ----------
    optimizer : callable
        Takes a learning rate, and returns an optax transformation.
    params : pytree
        Initial parameters; every leaf has a leading lane axis.
    early_stopping : bool
        Whether the state must keep the best parameters.

    Returns
    -------
    State
        The state of all lanes.
    """
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
    """Minimise the losses of all lanes.

    Epochs are run in several calls of the compiled program, to report progress in between, and to end when all lanes
    have stopped or diverged.

    Parameters
    ----------
    objective : Objective
        The loss.
    solver : FirstOrder
        Settings of the optimiser.
    stack : StackedProblems
        The problems of all lanes.
    state : State
        State to start from.
    learning_rate : (lanes,) array
        Initial learning rates, which take the place of `solver.learning_rate`.
    key : Key
        Random key for the order of batches.
    on_progress : callable, optional
        Called with the number of epochs just run, and the losses (lanes,) of the last one.

    Returns
    -------
    Solution
        The result.
    """
    curve: list[np.ndarray] = []
    first_loss = np.zeros(0)
    n_done, n_per_call = 0, 1  # epochs
    while n_done < solver.max_iter:
        started = time.perf_counter()
        stop = min(n_done + n_per_call, solver.max_iter)
        state, losses, first_loss_of_call = _run_epochs(
            (objective, solver.factory(), solver.batch_size),
            stack, state, learning_rate, key, n_done, stop, solver.max_iter, solver.decay, solver.patience,
        )  # fmt: skip
        if n_done == 0:
            first_loss = np.asarray(first_loss_of_call)
        curve.append(np.asarray(losses)[: stop - n_done])
        if on_progress is not None:
            on_progress(stop - n_done, curve[-1][-1])
        if n_done > 0:  # the first call may include compilation
            seconds = max(time.perf_counter() - started, 1e-6)
            n_per_call = int(np.clip(n_per_call * SECONDS_PER_CALL / seconds, 1, MAX_EPOCHS_PER_CALL))
        n_done = stop
        has_stopped = False if state.best is None else np.asarray(state.best.epochs_since) >= solver.patience
        if np.all(has_stopped | ~np.isfinite(curve[-1][-1])):
            break
    params = state.params if state.best is None else state.best.params
    n_epochs = np.full(len(learning_rate), n_done) if state.best is None else np.asarray(state.best.n_epochs)
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
    """Run epochs `first` to `stop` − 1 of `total`.

    Return the state, the mean loss of each epoch (MAX_EPOCHS_PER_CALL, lanes) and the loss of the first batch (lanes,).
    """
    objective, optimizer, batch_size = static
    lanes, n_padded = stack.weights.shape[:2]
    rows_per_batch = n_padded if batch_size is None else batch_size
    n_batches = 1 if batch_size is None else -(-stack.n_rows // batch_size)
    weight_factor = 1 if batch_size is None else stack.n_rows / batch_size  # gives a batch the weight of all rows

    def lane_step(
        params: Params, optimizer_state: optax.OptState, problem: AnchorAndModel, batch: Data, size: Array, rate: Array
    ) -> tuple[Params, optax.OptState, Array]:
        batch = batch._replace(weights=weight_factor * batch.weights)
        value, gradient = jax.value_and_grad(objective.loss)(params, problem, batch, size)
        updates, optimizer_state = optimizer(rate).update(gradient, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state, value

    def epoch(index: jax.Array, carry: tuple[State, jax.Array, jax.Array]) -> tuple[State, jax.Array, jax.Array]:
        state, losses, first_loss = carry
        data = Data(stack.inputs, stack.targets, stack.weights)
        if batch_size is not None:
            order_key = jax.random.fold_in(key, jnp.uint32(ORDER_STREAM) + jnp.uint32(index))
            data = _shuffled(order_key, data, stack.n_rows, batch_size)

        def step(
            j: jax.Array, carry: tuple[Params, optax.OptState, jax.Array, jax.Array]
        ) -> tuple[Params, optax.OptState, jax.Array, jax.Array]:
            params, optimizer_state, summed_loss, first_loss = carry
            progress = (index * n_batches + j) / (total * n_batches)
            rate = learning_rate * jnp.where(decay, half_cosine(progress), 1.0)
            batch = _batch(data, j * rows_per_batch, rows_per_batch)
            params, optimizer_state, value = jax.vmap(lane_step)(
                params, optimizer_state, stack.problem, batch, stack.size, rate
            )
            first_loss = jnp.where((index == first) & (j == 0), value, first_loss)
            return params, optimizer_state, summed_loss + value, first_loss

        start = (state.params, state.optimizer_state, jnp.zeros(lanes, losses.dtype), first_loss)
        params, optimizer_state, summed_loss, first_loss = jax.lax.fori_loop(0, n_batches, step, start)
        new_state = State(params, optimizer_state, state.best)
        if state.best is not None:
            new_state = _update_best(objective, stack, patience, state, state.best, new_state)
        return new_state, losses.at[index - first].set(summed_loss / n_batches), first_loss

    losses = jnp.zeros((MAX_EPOCHS_PER_CALL, lanes), learning_rate.dtype)
    return jax.lax.fori_loop(first, stop, epoch, (state, losses, losses[0]))


def _shuffled(key: Key, data: Data, n_rows: Number, batch_size: int) -> Data:
    """Shuffle the first `n_rows` rows; the others are padding. The last batch is filled up with the first rows."""
    n_padded = data.inputs.shape[0]
    rank = jax.random.uniform(key, (n_padded,))
    order = jnp.argsort(jnp.where(jnp.arange(n_padded) < n_rows, rank, 2.0))
    order = order[jnp.arange(-(-n_padded // batch_size) * batch_size) % n_rows]
    return Data(data.inputs[order], data.targets[:, order], data.weights[:, order])


def _batch(data: Data, start: Number, n_rows: int) -> Data:
    """Take `n_rows` rows of `data` from `start` on, with a copy of the inputs for each lane.

    With shared inputs, XLA would merge the matrix products of all lanes into one, which is slower and rounds
    differently for different numbers of lanes. The optimisation barrier keeps the copies apart.
    """
    lanes = data.weights.shape[0]
    inputs = jax.lax.dynamic_slice_in_dim(data.inputs, start, n_rows)
    inputs = jax.lax.optimization_barrier(jnp.broadcast_to(inputs, (lanes, *inputs.shape)))
    targets = jax.lax.dynamic_slice_in_dim(data.targets, start, n_rows, axis=1)
    return Data(inputs, targets, jax.lax.dynamic_slice_in_dim(data.weights, start, n_rows, axis=1))


def _update_best(
    objective: Objective, stack: StackedProblems, patience: Number, old: State, so_far: Best, new: State
) -> State:
    """Update each lane's best parameters; lanes without a better loss for `patience` epochs no longer change."""
    data = Data(stack.inputs, stack.targets, cast(Array, stack.held_out_weights))  # not None with early stopping
    axes = Data(None, 0, 0)  # type: ignore[arg-type]  # the lane axis of each field
    loss = jax.vmap(objective.held_out_loss, in_axes=(0, 0, axes))(new.params, stack.problem, data)
    is_running = so_far.epochs_since < patience
    is_better = is_running & (loss < so_far.loss)

    def where(condition: Array, a: Tree, b: Tree) -> Tree:
        """Lanes of `a` where `condition` (lanes,) is true, and of `b` elsewhere."""
        return jax.tree.map(lambda x, y: jnp.where(condition.reshape(-1, *[1] * (x.ndim - 1)), x, y), a, b)

    epochs_since = jnp.where(is_better, 0, so_far.epochs_since + is_running)
    best = Best(
        where(is_better, new.params, so_far.params),
        jnp.where(is_better, loss, so_far.loss),
        epochs_since,
        so_far.n_epochs + is_running,
    )
    return State(*where(is_running, (new.params, new.optimizer_state), (old.params, old.optimizer_state)), best)
