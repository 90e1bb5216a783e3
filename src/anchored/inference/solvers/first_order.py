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
from anchored.model.bayesian_model import AnchorAndModel
from anchored.trees import Tree
from anchored.types import Array, Data, Key, Number, Params

MAX_STEPS_PER_CALL = 512  # of the compiled program
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

    def loss(self, params: Params, anchor_and_model: AnchorAndModel, batch: Data, total_weight: Array) -> Array:
        """Return the loss at `params`, estimated from a `batch` of the data.

        `total_weight` is the sum of the weights of all rows trained on, averaged over outputs.
        """

    def held_out_loss(self, params: Params, anchor_and_model: AnchorAndModel, batch: Data) -> Array:
        """Return the mean negative log-likelihood, without penalty, of the rows of `batch` with a weight above 0."""


class StackedProblems(NamedTuple):
    """Problems of several lanes: every leaf but `inputs` and `n_rows` has a leading lane axis."""

    anchor_and_model: AnchorAndModel
    inputs: Array  # (rows, ...), shared by all lanes
    targets: Array  # (lanes, rows, ...)
    weights: Array  # (lanes, rows, 1 or outputs); zero for padding
    held_out_weights: Array | None  # (lanes, rows, 1 or outputs); zero but for rows held out for early stopping
    n_rows: int | Array  # rows before padding
    total_weight: Array  # (lanes,), sum of the weights of the rows trained on, averaged over outputs


class Best(NamedTuple):
    """For early stopping: each lane's parameters at its lowest loss on held-out rows so far, and when that was."""

    params: Params  # every leaf has a leading lane axis
    loss: Array  # (lanes,) on the held-out rows
    epochs_since: Array  # (lanes,) epochs since the loss was lowest
    n_epochs: Array  # (lanes,) epochs that the lane has run


class State(NamedTuple):
    """The state of all lanes between two epochs."""

    params: Params  # every leaf has a leading lane axis
    optimizer_state: optax.OptState | None  # None for solvers other than FirstOrder
    best: Best | None  # None without early stopping


class Solution(NamedTuple):
    """The result of all lanes, converged or not."""

    params: Params  # the last, or with early stopping the best; every leaf has a leading lane axis
    state: State  # after the last epoch
    loss_curve: np.ndarray  # (epochs, lanes)
    n_epochs: np.ndarray  # (lanes,) epochs run before the lane stopped
    first_loss: np.ndarray  # (lanes,) of the first batch, before any step


def initial_state(optimizer: OptimizerFactory, params: Tree, early_stopping: bool) -> State:
    """Return the state before the first epoch; jit the caller, since otherwise JAX compiles every operation.

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
    on_progress: Callable[[float, np.ndarray], None] | None = None,
) -> Solution:
    """Minimise the losses of all lanes.

    Steps are run in several calls of the compiled program, to report progress in between, and to end when all lanes
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
        Called with the epochs run since the last call, often less than one, and the losses (lanes,) of the last step.

    Returns
    -------
    Solution
        The result.
    """
    batches = _Batches(key, int(stack.n_rows), solver.batch_size)
    n_steps = solver.max_iter * batches.per_epoch
    losses: list[np.ndarray] = []  # of each call, (steps, lanes)
    n_done, n_per_call = 0, min(batches.per_epoch, MAX_STEPS_PER_CALL)
    before_epoch = state
    while n_done < n_steps:
        started = time.perf_counter()
        end_of_epoch = (n_done // batches.per_epoch + 1) * batches.per_epoch
        stop = min(n_done + n_per_call, n_steps if state.best is None else end_of_epoch)
        share_done = np.arange(n_done, n_done + MAX_STEPS_PER_CALL) / n_steps
        factors = half_cosine(share_done) if solver.decay else np.ones(MAX_STEPS_PER_CALL)
        state, losses_of_call = _run_steps(
            (objective, solver.factory()),
            stack, state, learning_rate, factors.astype(learning_rate.dtype), batches.rows(n_done, stop), stop - n_done,
        )  # fmt: skip
        losses.append(np.asarray(losses_of_call)[: stop - n_done])
        if on_progress is not None:
            on_progress((stop - n_done) / batches.per_epoch, losses[-1][-1])
        if n_done > 0:  # the first call may include compilation
            seconds = max(time.perf_counter() - started, 1e-6)
            n_per_call = int(np.clip((stop - n_done) * SECONDS_PER_CALL / seconds, 1, MAX_STEPS_PER_CALL))
        n_done = stop
        has_stopped: Array | bool = False
        if state.best is not None:
            if n_done < end_of_epoch:  # where calls end within an epoch depends on the machine's speed
                continue
            state, has_stopped = _update_best(objective, stack, solver.patience, before_epoch, state)
            before_epoch = state
        if np.all(has_stopped | ~np.isfinite(losses[-1][-1])):
            break
    curve = _mean_per_epoch(np.concatenate(losses), batches.per_epoch)
    if state.best is None:
        return Solution(state.params, state, curve, np.full(len(learning_rate), len(curve)), losses[0][0])
    n_epochs = np.asarray(state.best.n_epochs)
    return Solution(state.best.params, state, curve[: n_epochs.max()], n_epochs, losses[0][0])


class _Batches:
    """The rows of each step: every epoch has its own random order, which depends on the key and the epoch alone."""

    def __init__(self, key: Key, n_rows: int, batch_size: int | None) -> None:
        """`batch_size` is the number of rows of a batch; None for all `n_rows` rows."""
        self.seed = np.asarray(jax.random.key_data(key))
        self.n_rows, self.batch_size = n_rows, batch_size
        self.per_epoch = 1 if batch_size is None else -(-n_rows // batch_size)

    def rows(self, first: int, stop: int) -> np.ndarray | None:
        """Return the rows of steps `first` to `stop` − 1, padded to (MAX_STEPS_PER_CALL, batch_size); None for all."""
        if self.batch_size is None:
            return None
        epochs = range(first // self.per_epoch, -(-stop // self.per_epoch))
        steps = np.concatenate([self._epoch(epoch) for epoch in epochs])[first % self.per_epoch :][: stop - first]
        result = np.zeros((MAX_STEPS_PER_CALL, self.batch_size), np.int32)
        result[: len(steps)] = steps
        return result

    def _epoch(self, epoch: int) -> np.ndarray:
        """The rows of all batches of an epoch, (batches, batch_size); the last is filled up with rows of the first."""
        order = np.random.default_rng([*self.seed, epoch]).permutation(self.n_rows)
        return np.resize(order, (self.per_epoch, self.batch_size or self.n_rows))


def _mean_per_epoch(losses: np.ndarray, n_batches: int) -> np.ndarray:
    """Return the mean of the losses (steps, lanes) over the batches of each epoch, (epochs, lanes)."""
    starts = np.arange(0, len(losses), n_batches)
    n_steps = np.diff([*starts, len(losses)])
    with np.errstate(all="ignore"):  # members that diverged
        return np.add.reduceat(losses, starts) / n_steps[:, None].astype(losses.dtype)


@partial(jit, static_argnums=(0,))
def _run_steps(
    static: tuple[Objective, OptimizerFactory],
    stack: StackedProblems,
    state: State,
    learning_rate: Array,
    factors: Array,
    order: Array | None,
    n_steps: Number,
) -> tuple[State, jax.Array]:
    """Run `n_steps` steps, and return the state and the losses before each step, (MAX_STEPS_PER_CALL, lanes).

    Losses from `n_steps` on are zero. Step i takes the rows `order[i]`, or all rows if `order` is None, and multiplies
    the learning rates by `factors[i]`.
    """
    objective, optimizer = static
    # Weights are multiplied so that a batch stands for all rows
    weight_factor = 1 if order is None else stack.n_rows / order.shape[1]

    def lane_step(
        params: Params,
        optimizer_state: optax.OptState,
        anchor_and_model: AnchorAndModel,
        batch: Data,
        total_weight: Array,
        rate: Array,
    ) -> tuple[Params, optax.OptState, Array]:
        batch = batch._replace(weights=weight_factor * batch.weights)
        value, gradient = jax.value_and_grad(objective.loss)(params, anchor_and_model, batch, total_weight)
        updates, optimizer_state = optimizer(rate).update(gradient, optimizer_state, params)
        return optax.apply_updates(params, updates), optimizer_state, value

    def step(i: jax.Array, carry: tuple[Params, optax.OptState, jax.Array]) -> tuple[Params, optax.OptState, jax.Array]:
        params, optimizer_state, losses = carry
        batch = _batch(stack, None if order is None else order[i])
        rate = learning_rate * factors[i]
        params, optimizer_state, value = jax.vmap(lane_step)(
            params, optimizer_state, stack.anchor_and_model, batch, stack.total_weight, rate
        )
        return params, optimizer_state, losses.at[i].set(value)

    losses = jnp.zeros((MAX_STEPS_PER_CALL, len(learning_rate)), learning_rate.dtype)
    start = (state.params, state.optimizer_state, losses)
    params, optimizer_state, losses = jax.lax.fori_loop(0, n_steps, step, start)
    return State(params, optimizer_state, state.best), losses


def _batch(stack: StackedProblems, rows: Array | None) -> Data:
    """Take `rows` of the data, or all if None, with a copy of the inputs for each lane.

    With shared inputs, XLA would merge the matrix products of all lanes into one, which is slower and rounds
    differently for different numbers of lanes. The optimisation barrier keeps the copies apart.
    """
    inputs, targets, weights = stack.inputs, stack.targets, stack.weights
    if rows is not None:
        inputs, targets, weights = inputs[rows], targets[:, rows], weights[:, rows]
    inputs = jnp.broadcast_to(inputs, (len(weights), *inputs.shape))
    return Data(jax.lax.optimization_barrier(inputs), targets, weights)


@partial(jit, static_argnums=(0,))
def _update_best(
    objective: Objective, stack: StackedProblems, patience: Number, old: State, new: State
) -> tuple[State, Array]:
    """Update each lane's best parameters; lanes without a better loss for `patience` epochs no longer change.

    `old` and `new` are the states before and after an epoch. Return the updated state, and which lanes have stopped.
    """
    so_far = cast(Best, old.best)
    data = Data(stack.inputs, stack.targets, cast(Array, stack.held_out_weights))  # not None with early stopping
    axes = Data(None, 0, 0)  # type: ignore[arg-type]  # the lane axis of each field
    loss = jax.vmap(objective.held_out_loss, in_axes=(0, 0, axes))(new.params, stack.anchor_and_model, data)
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
    running, stopped = (new.params, new.optimizer_state), (old.params, old.optimizer_state)
    return State(*where(is_running, running, stopped), best), epochs_since >= patience
