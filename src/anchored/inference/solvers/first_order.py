"""Minimise many independent losses with any optimiser of optax, all in one compiled program.

Each of the problems is a lane. Lanes share the inputs and the order of batches. Each has its own parameters, targets,
weights and learning rate. By default, learning rates fall to zero along half a cosine.
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

from anchored import checks, trees
from anchored.inference.compilation import jit
from anchored.inference.schedule import half_cosine
from anchored.inference.solvers import blocks
from anchored.inference.solvers.batches import Batches, LossCurve
from anchored.inference.solvers.optimizers import OPTIMIZERS, OptimizerFactory, check_optimizer
from anchored.model.bayesian_model import AnchorAndModel
from anchored.trees import Tree
from anchored.types import Array, Data, Key, Number, Params

MAX_STEPS_PER_CALL = 512  # steps in one call of the compiled program
SECONDS_PER_CALL = 0.2  # intended duration of a call; progress is reported after each call
STEPS_PER_GROUP = 32  # steps of one loop on a GPU; MAX_STEPS_PER_CALL is a multiple
UNROLLED_STEPS = 8  # steps of small networks that a GPU launches together; STEPS_PER_GROUP is a multiple
BYTES_PER_CALL = 2**25  # size of the rows that are gathered for a call
MAX_SMALL = 2**23  # parameters of all lanes of a block; steps with more take much longer than their launch

ParamsAndState = tuple[Params, optax.OptState]  # parameters and optimiser states of all lanes


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
        Number of rows in each step; None for all rows.
    decay : bool
        Whether the learning rate falls to zero along half a cosine. Otherwise it is constant.
    early_stopping : bool
        Whether a member stops when its loss on held-out rows no longer falls.
    patience : int
        Number of epochs without a lower loss on the held-out rows after which a member stops.
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
    """The function that a lane minimises. It must be hashable, since it is a static argument of compiled programs."""

    def loss(self, params: Params, anchor_and_model: AnchorAndModel, batch: Data, total_weight: Array) -> Array:
        """Return the loss at `params`, estimated from a `batch` of the data.

        `total_weight` is the sum of the weights of all training rows, averaged over outputs.
        """

    def held_out_loss(self, params: Params, anchor_and_model: AnchorAndModel, batch: Data) -> Array:
        """Return the weighted mean of the negative log-likelihood of the rows of `batch` at `params`."""


class StackedProblems(NamedTuple):
    """The problems of several lanes. Every leaf but `inputs` and `n_rows` has a leading lane axis.

    If rows are gathered for each call of the program, `inputs`, `targets` and `weights` hold only some of the rows.
    """

    anchor_and_model: AnchorAndModel  # anchor and model of each lane
    inputs: Array  # (rows, ...), shared by all lanes
    targets: Array  # (lanes, rows, ...)
    weights: Array  # (lanes, rows, 1 or outputs); zero for padding
    held_out_weights: Array | None  # like `weights`, but of the rows held out for early stopping; zero for all others
    n_rows: int | Array  # number of rows before padding
    total_weight: Array  # (lanes,) sum of the weights of the training rows, averaged over outputs


class Best(NamedTuple):
    """For early stopping: the parameters with the lowest loss on held-out rows so far, for each lane."""

    params: Params  # every leaf has a leading lane axis
    loss: Array  # (lanes,) lowest loss on the held-out rows
    epochs_since: Array  # (lanes,) number of epochs since the lowest loss
    n_epochs: Array  # (lanes,) number of epochs that the lane has run


class State(NamedTuple):
    """The state of all lanes between two epochs."""

    params: Params  # every leaf has a leading lane axis
    optimizer_state: optax.OptState | None  # None for solvers other than FirstOrder
    best: Best | None  # None without early stopping


class Stage(NamedTuple):
    """An intermediate result of a minimisation, from which it can be continued."""

    state: State
    losses: np.ndarray  # (steps, lanes) loss of each step so far
    has_ended: bool | np.ndarray


class StageStore(Protocol):
    """The place in which a minimisation keeps its stage, such as an `inference.checkpoints.ResultFile`."""

    def load(self, like: Stage) -> Stage | None:
        """Return the stage that was stored, with the structure of `like`, or None if there is none."""

    def is_due(self) -> bool:
        """Return whether the stage should be stored again."""

    def store(self, result: Stage) -> None:
        """Replace the stage that was stored by `result`."""


class Solution(NamedTuple):
    """The result for all lanes, converged or not."""

    params: Params  # the last, or with early stopping the best; every leaf has a leading lane axis
    state: State  # state after the last epoch
    loss_curve: np.ndarray  # (epochs, lanes) mean loss of each epoch
    n_epochs: np.ndarray  # (lanes,) number of epochs before the lane stopped
    first_loss: np.ndarray  # (lanes,) loss of the first batch, before any step


class RowSource(NamedTuple):
    """Training rows, from which the rows of a few steps are gathered at a time."""

    data: Data  # arrays, or stand-ins for arrays on disk that can be indexed by rows
    in_store_order: bool  # whether rows are in the order of a store, see `inference.pieces`

    def max_steps(self, batch_size: int | None) -> int:
        """Return the number of steps whose rows are gathered at a time, a multiple of UNROLLED_STEPS."""
        bytes_per_row = sum(np.asarray(array[:1]).nbytes for array in self.data)
        n_steps = BYTES_PER_CALL // (bytes_per_row * (batch_size or 1))
        return int(np.clip(n_steps // UNROLLED_STEPS * UNROLLED_STEPS, UNROLLED_STEPS, MAX_STEPS_PER_CALL))

    def gather(self, problems: StackedProblems, order: np.ndarray) -> tuple[StackedProblems, np.ndarray]:
        """Return `problems` with the rows in `order`, (steps, batch_size), and the new places of these rows."""
        n_lanes = len(problems.total_weight)
        inputs, targets, weights = (np.asarray(array[order.reshape(-1)]) for array in self.data)
        targets, weights = (np.broadcast_to(array, (n_lanes, *array.shape)) for array in (targets, weights))
        places = np.arange(order.size, dtype=np.int32).reshape(order.shape)
        return problems._replace(inputs=inputs, targets=targets, weights=weights), places


def initial_state(optimizer: OptimizerFactory, params: Tree, early_stopping: bool) -> State:
    """Return the state before the first epoch. Call it from a compiled function; otherwise it is slow.

    Parameters
    ----------
    optimizer : callable
        Function that takes a learning rate and returns an optax transformation.
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
    problems: StackedProblems,
    state: State,
    learning_rate: Array,
    key: Key,
    on_progress: Callable[[float, np.ndarray], None] | None = None,
    stage_store: StageStore | None = None,
    source: RowSource | None = None,
) -> Solution:
    """Minimise the losses of all lanes.

    Steps are run in several calls of the compiled program. After each call, progress is reported, and training ends if
    all lanes have stopped or diverged.

    Parameters
    ----------
    objective : Objective
        The loss.
    solver : FirstOrder
        Settings of the optimiser.
    problems : StackedProblems
        The problems of all lanes.
    state : State
        The state of all lanes to start from.
    learning_rate : (lanes,) array
        Initial learning rates, which are used instead of `solver.learning_rate`.
    key : Key
        Random key for the order of batches.
    on_progress : callable, optional
        Called with the number of epochs since the last call, often less than one, and the last losses (lanes,).
    stage_store : StageStore, optional
        Where the stage is stored now and then, and at the end. If it holds a stage, minimisation continues from there.
    source : RowSource, optional
        Where the rows of each call are gathered from, if they are too many to be arguments of the program.

    Returns
    -------
    Solution
        The parameters that were found, and the loss curves.
    """
    batches = Batches(key, int(problems.n_rows), solver.batch_size, source is not None and source.in_store_order)
    n_steps = solver.max_iter * batches.steps_per_epoch
    max_steps = MAX_STEPS_PER_CALL if source is None else source.max_steps(solver.batch_size)
    calls = _Calls(problems, batches, source, n_steps, max_steps, state.best is not None)
    stage = Stage(state, np.zeros((0, len(learning_rate)), learning_rate.dtype), False)
    stage = (None if stage_store is None else stage_store.load(stage)) or stage
    state, n_done, curve = stage.state, len(stage.losses), LossCurve(batches.steps_per_epoch, stage.losses)
    if n_done > 0 and on_progress is not None:
        on_progress(n_done / batches.steps_per_epoch, stage.losses[-1])
    n_per_call, has_ended = min(batches.steps_per_epoch, MAX_STEPS_PER_CALL), bool(stage.has_ended)
    stop = calls.end(n_done, n_per_call)
    rows = calls.rows(n_done, stop)
    before_epoch, seconds_of_calls = state, list[float]()
    while rows is not None and not has_ended:
        started = time.perf_counter()
        problems_of_call, order = rows
        factors = _rate_factors(solver.decay, n_done, n_steps).astype(learning_rate.dtype)
        state, losses, last_losses = _run_steps(
            (objective, solver.factory()), problems_of_call, state, learning_rate, factors, order, stop - n_done
        )
        # The program is running now. Meanwhile, the losses of the call before are fetched, and the rows of the next
        # call are drawn, and gathered or read
        curve.fetch()
        curve.add(losses, stop - n_done)
        next_stop = calls.end(stop, n_per_call)
        rows = calls.rows(stop, next_stop)
        last = np.asarray(last_losses)
        if on_progress is not None:
            on_progress((stop - n_done) / batches.steps_per_epoch, last)
        seconds_of_calls.append(max(time.perf_counter() - started, 1e-6))
        if len(seconds_of_calls) > 1:  # the first call may include compilation
            n_per_call = int(np.clip((stop - n_done) * SECONDS_PER_CALL / seconds_of_calls[-1], 1, MAX_STEPS_PER_CALL))
        n_done, stop = stop, next_stop
        has_stopped: Array | bool = False
        if state.best is not None:
            if n_done % batches.steps_per_epoch > 0:
                continue  # lanes may stop only between epochs, since the ends of calls depend on the machine's speed
            state, has_stopped = _update_best(objective, problems, solver.patience, before_epoch, state)
            before_epoch = state
        has_ended = n_done == n_steps or bool(np.all(has_stopped | ~np.isfinite(last)))
        if stage_store is not None and (has_ended or stage_store.is_due()):
            stage_store.store(Stage(state, curve.of_steps(), has_ended))
    return _solution(state, curve)


class _Calls(NamedTuple):
    """How the steps of a minimisation are divided into calls of the compiled program."""

    problems: StackedProblems
    batches: Batches
    source: RowSource | None
    n_steps: int  # number of steps of the whole minimisation
    max_steps: int  # largest number of steps in one call
    end_with_epochs: bool  # whether a call ends with its epoch at the latest, as early stopping needs

    def end(self, first: int, n_wanted: int) -> int:
        """Return the step before which a call ends that begins with step `first` and has about `n_wanted` steps."""
        # A step is always at the same position of the unrolled loop, however fast the machine is
        n_per_call = min(-(-n_wanted // UNROLLED_STEPS) * UNROLLED_STEPS, self.max_steps)
        end_of_epoch = (first // self.batches.steps_per_epoch + 1) * self.batches.steps_per_epoch
        return min(first + n_per_call, end_of_epoch if self.end_with_epochs else self.n_steps)

    def rows(self, first: int, stop: int) -> tuple[StackedProblems, np.ndarray | None] | None:
        """Return the problems with the rows of the steps `first` to `stop` − 1, and the rows of each of these steps.

        None if there is no such step.
        """
        if first >= self.n_steps:
            return None
        order = self.batches.rows(first, stop, self.max_steps)
        if self.source is None or order is None:
            return self.problems, order
        return self.source.gather(self.problems, order)


def _solution(state: State, curve: LossCurve) -> Solution:
    """Return the solution whose last state is `state`, after steps with the losses of `curve`."""
    losses, first = curve.of_epochs(), curve.of_first_step()
    if state.best is None:
        return Solution(state.params, state, losses, np.full(len(first), len(losses)), first)
    n_epochs = np.asarray(state.best.n_epochs)
    return Solution(state.best.params, state, losses[: n_epochs.max()], n_epochs, first)


def _rate_factors(decay: bool, n_done: int, n_steps: int) -> np.ndarray:
    """Return the factors of the learning rate after `n_done` of `n_steps` steps, for the next MAX_STEPS_PER_CALL."""
    if not decay:
        return np.ones(MAX_STEPS_PER_CALL)
    return np.asarray(half_cosine(np.arange(n_done, n_done + MAX_STEPS_PER_CALL) / n_steps))


def _has_short_steps(_: object, problems: StackedProblems, state: State, *others: object) -> bool:
    """Return whether the steps of `_run_steps` with these arguments are so short that launching them takes long."""
    return trees.n_entries(state.params) <= MAX_SMALL


@partial(jit, static_argnums=(0,), in_graphs=_has_short_steps)
def _run_steps(
    static: tuple[Objective, OptimizerFactory],
    problems: StackedProblems,
    state: State,
    learning_rate: Array,
    factors: Array,
    order: Array | None,
    n_steps: Number,
) -> tuple[State, jax.Array, jax.Array]:
    """Run `n_steps` steps; `static` holds the objective and the function that makes an optimiser.

    Return the state, the loss before each step, (MAX_STEPS_PER_CALL, lanes), and the loss before the last step,
    (lanes,). Losses from position `n_steps` on mean nothing. Step i uses the rows `order[i]`, or all rows if `order` is
    None, and multiplies the learning rates by `factors[i]`.
    """
    objective, optimizer = static
    # The weights of a batch are scaled so that it represents all rows
    weight_factor = 1 if order is None else problems.n_rows / order.shape[1]

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

    def step(i: jax.Array, params_and_state: ParamsAndState) -> tuple[ParamsAndState, jax.Array]:
        params, optimizer_state = params_and_state
        batch = _batch(problems, None if order is None else order[i])
        rate = learning_rate * factors[i]
        params, optimizer_state, value = jax.vmap(lane_step, in_axes=(0, 0, 0, _batch_axes(), 0, 0))(
            params, optimizer_state, problems.anchor_and_model, batch, problems.total_weight, rate
        )
        return (params, optimizer_state), cast(jax.Array, value)

    losses = jnp.zeros((MAX_STEPS_PER_CALL, len(learning_rate)), learning_rate.dtype)
    (params, optimizer_state), losses = _repeat(step, n_steps, (state.params, state.optimizer_state), losses)
    return State(params, optimizer_state, state.best), losses, losses[n_steps - 1]


def _repeat(
    step: Callable[[jax.Array, ParamsAndState], tuple[ParamsAndState, jax.Array]],
    n_steps: Number,
    start: ParamsAndState,
    losses: jax.Array,
) -> tuple[ParamsAndState, jax.Array]:
    """Apply `step` `n_steps` times, and store its second result of step i in `losses[i]`.

    Before each iteration of a loop whose length is not known when it is compiled, a GPU asks the host whether to go on,
    which takes as long as a step. On a GPU, steps are therefore grouped into loops of constant length, and steps beyond
    `n_steps` change nothing but `losses`. Launching the kernels of a small network's step takes longer than running
    them, so several unrolled steps are launched together.
    """

    def step_and_store(i: jax.Array, carry: tuple[ParamsAndState, jax.Array]) -> tuple[ParamsAndState, jax.Array]:
        result, value = step(i, carry[0])
        return result, carry[1].at[i].set(value)

    if blocks.device_kind() == "cpu":
        return jax.lax.fori_loop(0, n_steps, step_and_store, (start, losses))

    def step_if_wanted(i: jax.Array, carry: tuple[ParamsAndState, jax.Array]) -> tuple[ParamsAndState, jax.Array]:
        result, losses = step_and_store(i, carry)
        return jax.tree.map(lambda new, old: jnp.where(i < n_steps, new, old), result, carry[0]), losses

    def group(j: jax.Array, carry: tuple[ParamsAndState, jax.Array]) -> tuple[ParamsAndState, jax.Array]:
        def step_of_group(k: jax.Array, carry: tuple[ParamsAndState, jax.Array]) -> tuple[ParamsAndState, jax.Array]:
            return step_if_wanted(STEPS_PER_GROUP * j + k, carry)

        return jax.lax.fori_loop(0, STEPS_PER_GROUP, step_of_group, carry, unroll=unrolled)

    unrolled = UNROLLED_STEPS if trees.n_entries(start[0]) <= MAX_SMALL else 1
    n_groups = (n_steps + STEPS_PER_GROUP - 1) // STEPS_PER_GROUP
    return jax.lax.fori_loop(0, n_groups, group, (start, losses))


def _batch(problems: StackedProblems, rows: Array | None) -> Data:
    """Return the data of `rows`, or of all rows if None.

    On a CPU, inputs are copied for each lane. If lanes shared them, XLA would merge their matrix products into one,
    which is slower there. The optimisation barrier prevents XLA from merging the copies. On a GPU lanes share inputs.
    """
    inputs, targets, weights = problems.inputs, problems.targets, problems.weights
    if rows is not None:
        inputs, targets, weights = inputs[rows], targets[:, rows], weights[:, rows]
    if _batch_axes().inputs is not None:
        inputs = jax.lax.optimization_barrier(jnp.broadcast_to(inputs, (len(weights), *inputs.shape)))
    return Data(inputs, targets, weights)


def _batch_axes() -> Data:
    """Return the lane axis of each field of a batch; None for inputs that lanes share."""
    return Data(0 if blocks.device_kind() == "cpu" else None, 0, 0)  # type: ignore[arg-type]


@partial(jit, static_argnums=(0,))
def _update_best(
    objective: Objective, problems: StackedProblems, patience: Number, old: State, new: State
) -> tuple[State, Array]:
    """Update the best parameters of each lane, and stop lanes whose loss has not fallen for `patience` epochs.

    `old` and `new` are the states before and after an epoch. Returns the updated state, in which stopped lanes are
    unchanged, and a mask (lanes,) of the lanes that have stopped.
    """
    so_far = cast(Best, old.best)
    data = Data(
        problems.inputs, problems.targets, cast(Array, problems.held_out_weights)
    )  # not None with early stopping
    axes = Data(None, 0, 0)  # type: ignore[arg-type]  # the lane axis of each field
    loss = jax.vmap(objective.held_out_loss, in_axes=(0, 0, axes))(new.params, problems.anchor_and_model, data)
    is_running = so_far.epochs_since < patience
    is_better = is_running & (loss < so_far.loss)

    def where(condition: Array, if_true: Tree, if_false: Tree) -> Tree:
        """Return the lanes of `if_true` where `condition` (lanes,) is true, and of `if_false` elsewhere."""
        return jax.tree.map(lambda x, y: jnp.where(condition.reshape(-1, *[1] * (x.ndim - 1)), x, y), if_true, if_false)

    epochs_since = jnp.where(is_better, 0, so_far.epochs_since + is_running)
    best = Best(
        where(is_better, new.params, so_far.params),
        jnp.where(is_better, loss, so_far.loss),
        epochs_since,
        so_far.n_epochs + is_running,
    )
    running, stopped = (new.params, new.optimizer_state), (old.params, old.optimizer_state)
    return State(*where(is_running, running, stopped), best), epochs_since >= patience
