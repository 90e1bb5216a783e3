"""Train ensemble members: draw their problems, minimise their losses, and retrain members that diverge."""

import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.exceptions import ConvergenceWarning

from anchored import trees
from anchored.inference import checkpoints, cluster, pieces
from anchored.inference.anchoring import AnchoredObjective, AnchoredSampler, anchored_loss, member_keys
from anchored.inference.checkpoints import ResultFile
from anchored.inference.compilation import jit
from anchored.inference.failures import DivergenceError, describe_members
from anchored.inference.lanes import (
    NO_FOLD,
    Lanes,
    Trained,
    TrainingRows,
    concatenate,
    lanes_of_members,
    pad_rows,
)
from anchored.inference.solvers import blocks, first_order, gauss_newton, ridge
from anchored.inference.solvers.first_order import FirstOrder, RowSource, Solution, StackedProblems, State
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.inference.solvers.optimizers import OptimizerFactory
from anchored.model.bayesian_model import BayesianModel, MemberKeys, ProblemSampler
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import Network
from anchored.types import Array, Data, Key, OnProgress, Params

MAX_RETRIES = 3  # times that training is repeated for lanes that diverge
RETRY_FACTOR = 0.1  # factor by which the learning rate is multiplied in each retry
CHUNK_ROWS = 2**14  # rows that are summed at once; if there are several pieces, a checkpoint compares this many rows
MAX_PADDED = 2**16  # the draws for networks with more parameters are not padded

Resumed = tuple[Params, Params, optax.OptState | None]  # parameters, anchors and optimiser state to resume from
OnEpochs = Callable[[float, np.ndarray], None]  # arguments: number of epochs since the last call, losses (lanes,)


@dataclass(frozen=True)
class TrainingConfig:
    """How members are trained, apart from the hyperparameters of the model."""

    sampler: ProblemSampler = AnchoredSampler()  # draws the start, anchor and data of each member
    trainable: str = "all"  # or "last_layer", or a key of the parameters; only leaves below this key are trained
    solver: FirstOrder | GaussNewton = FirstOrder()  # not used if there is a closed form

    @property
    def batch_size(self) -> int | None:
        """The number of rows in each step, or None for all rows."""
        return self.solver.batch_size if isinstance(self.solver, FirstOrder) else None


def train(
    key: Key,
    config: TrainingConfig,
    lanes: Lanes,
    rows: TrainingRows,
    start: Trained | None = None,
    on_progress: OnProgress | None = None,
    n_wanted: int | None = None,
    first: int = 0,
) -> Trained:
    """Train all lanes, in blocks. Within `checkpoints.using`, trained blocks are kept, and are not trained again.

    Parameters
    ----------
    key : Key
        Random key of the fit. Member i depends only on the key and i, not on the other lanes.
    config : TrainingConfig
        How to train.
    lanes : Lanes
        The problems to train.
    rows : TrainingRows
        Padded rows.
    start : Trained, optional
        Parameters, anchors and optimiser states to resume from.
    on_progress : callable, optional
        Called with the fraction of the work done since the last call, and the mean loss.
    n_wanted : int, optional
        Members whose number is `n_wanted` or higher only fill up their block. It is no error if they diverge.
    first : int
        Position of the first lane in the division into blocks. A block must begin there.

    Returns
    -------
    Trained
        The members, in the order of the lanes.

    Raises
    ------
    DivergenceError
        If a member diverges at every learning rate tried.
    """
    n_lanes = len(lanes.member)
    all_blocks = block_ranges(config, lanes.model.network, rows, first, first + n_lanes)
    result_file = checkpoints.result_file()
    if result_file is not None:
        settings = checkpoints.described((config, lanes.model.network, blocks.uses_float64()))
        is_large = rows.n_rows > pieces.PIECE_ROWS
        hashed_rows = (rows.n_rows, [array[:CHUNK_ROWS] for array in rows.data]) if is_large else rows
        result_file = result_file.depending_on(settings, jax.random.key_data(key), hashed_rows)

    def lanes_of(block: range) -> tuple[Lanes, Resumed | None]:
        indices = (np.array(block) - first) % n_lanes
        return jax.tree.map(lambda leaf: np.asarray(leaf)[indices], (lanes, _resumed(start)))

    def train_block(block: range) -> Trained:
        return _train_block(key, config, *lanes_of(block), rows, report, n_wanted, result_file)

    def report(n_epochs: float, losses: np.ndarray) -> None:
        if on_progress is not None:
            on_progress(n_epochs / (config.solver.max_iter * len(all_blocks)), float(np.mean(losses)))

    dask = cluster.current()
    if dask is None:
        parts = blocks.run(train_block, all_blocks)
    else:
        seed = np.asarray(jax.random.key_data(key)), jax.random.key_impl(key)
        train_lanes = partial(_train_on_cluster, seed, config, rows, n_wanted, blocks.uses_float64(), result_file)
        parts = dask.run(train_lanes, map(lanes_of, all_blocks), len(all_blocks), on_progress)
    return concatenate(parts).select(slice(n_lanes))


def _train_on_cluster(
    seed: tuple[np.ndarray, Hashable],  # data and implementation of the random key
    config: TrainingConfig,
    rows: TrainingRows,
    n_wanted: int | None,
    in_float64: bool,
    result_file: ResultFile | None,
    lanes_of_block: tuple[Lanes, Resumed | None],
    on_progress: OnProgress | None,
) -> Trained:
    """Train a block of lanes on a worker of a Dask cluster.

    `lanes_of_block` holds the lanes, and what their training resumes from. The other arguments are as in `train`.
    """
    with jax.enable_x64(in_float64):
        key = jax.random.wrap_key_data(jnp.asarray(seed[0]), impl=seed[1])

        def report(n_epochs: float, losses: np.ndarray) -> None:
            if on_progress is not None:
                on_progress(n_epochs / config.solver.max_iter, float(np.mean(losses)))

        def train_block(block: tuple[Lanes, Resumed | None]) -> Trained:
            return _train_block(key, config, *block, rows, report, n_wanted, result_file)

        return jax.tree.map(np.asarray, blocks.run(train_block, [lanes_of_block])[0])


def _train_block(
    key: Key,
    config: TrainingConfig,
    lanes: Lanes,
    resumed: Resumed | None,
    rows: TrainingRows,
    report: OnEpochs,
    n_wanted: int | None,
    result_file: ResultFile | None,
) -> Trained:
    """Train the `lanes` of a block, in closed form if there is one.

    `resumed` is what their training resumes from. `report` is called after some epochs. `result_file` depends on
    everything but the lanes, which are added here; None if results are not kept. The other arguments are as in `train`.
    """
    has_solution = resumed is None and has_closed_form(config, lanes.model)
    if has_solution or isinstance(config.solver, GaussNewton):
        return _solve_block(key, config, lanes, rows, resumed, report, n_wanted)
    result_file = None if result_file is None else result_file.depending_on(lanes, resumed)
    return _train_block_first_order(key, config, lanes, rows, resumed, report, n_wanted, result_file)


def has_closed_form(config: TrainingConfig, model: BayesianModel) -> bool:
    """Return whether members of `model` that are trained with `config` are computed in closed form."""
    return config.trainable == "last_layer" and isinstance(model.likelihood, Gaussian)


def block_ranges(config: TrainingConfig, network: Network, rows: TrainingRows, first: int, stop: int) -> list[range]:
    """Return the blocks that contain the lanes `first` to `stop` − 1. The lanes of a block are trained in one program.

    The division depends on `config`, the `network` and the number of `rows`, but not on the number of members.
    """
    if isinstance(config.solver, GaussNewton):
        return [range(lane, lane + 1) for lane in range(first, stop)]  # lanes are solved one by one
    return blocks.partition(first, stop, _n_params(network, rows), config.batch_size or rows.n_rows)


def _n_params(network: Network, rows: TrainingRows) -> int:
    """Return the number of parameters of the network."""
    return trees.n_entries(jax.eval_shape(network.init, jax.random.key(0), rows.data.inputs[:1]))


def _resumed(start: Trained | None) -> Resumed | None:
    """Return the parts of `start` that training resumes from."""
    return None if start is None else (start.params, start.anchors, start.optimizer_state)


def member_problems(
    key: Key, config: TrainingConfig, model: BayesianModel, data: Data, members: np.ndarray
) -> StackedProblems:
    """Draw the training problems of members again, with the same initial parameters, anchors and targets.

    Parameters
    ----------
    key : Key
        Random key of the fit.
    config : TrainingConfig
        How the members were trained.
    model : BayesianModel
        The model of all members.
    data : Data
        Training rows.
    members : (members,) array of int
        Numbers of the members.

    Returns
    -------
    StackedProblems
        The problems, with padded rows.
    """
    config = replace(config, solver=GaussNewton())  # it has no optimiser state to prepare
    problems, _ = _prepare(key, config, lanes_of_members(model, members), pad_rows(data), None)
    return problems


def _prepare(
    key: Key, config: TrainingConfig, lanes: Lanes, rows: TrainingRows, resumed: Resumed | None
) -> tuple[StackedProblems, State]:
    """Return the problems of a block of lanes, and the state from which their training starts.

    The arguments are as in `_train_block`.
    """
    solver = config.solver if isinstance(config.solver, FirstOrder) else None
    first_order_settings = None if solver is None else (solver.factory(), solver.early_stopping)
    keys = member_keys(key, lanes.member)
    n_params = _n_params(lanes.model.network, rows)
    # Random number generators take long to compile, so the number of draws is rounded up to a power of two: networks of
    # many sizes then share one program
    n_draws = 1 << (n_params - 1).bit_length() if n_params <= MAX_PADDED else n_params
    draws = _draw_normals(n_draws, keys.anchor)
    return _prepare_compiled((config.sampler, first_order_settings), draws, keys, lanes, rows, resumed)


@partial(jit, static_argnums=(0,))
def _draw_normals(n: int, keys: Key) -> Array:
    """Return `n` standard normal draws for each of the `keys`. The first ones do not depend on `n`."""
    return jax.vmap(lambda key: jax.random.normal(key, (n,), jnp.result_type(float)))(keys)


@partial(jit, static_argnums=(0,))
def _prepare_compiled(
    static: tuple[ProblemSampler, tuple[OptimizerFactory, bool] | None],
    draws: Array,
    keys: MemberKeys,
    lanes: Lanes,
    rows: TrainingRows,
    resumed: Resumed | None,
) -> tuple[StackedProblems, State]:
    """The compiled part of `_prepare`. `draws`, (lanes, draws), has at least as many draws as there are parameters."""
    sampler, first_order_settings = static

    def sample(
        normals: Array, keys: MemberKeys, model: BayesianModel, fold: Array
    ) -> tuple[Params, Params, BayesianModel, Array, Array]:
        like = jax.eval_shape(model.network.init, keys.anchor, rows.data.inputs[:1])
        problem = sampler(trees.from_flat(normals, like), keys, model, rows.data)
        is_left_out = ((rows.fold == fold) | rows.held_out)[:, None]
        weights = jnp.where(is_left_out, 0, rows.weight_scale * problem.data.weights)
        return problem.start, problem.anchor, problem.model, problem.data.targets, weights

    params, anchor, model, targets, weights = jax.vmap(sample)(draws, keys, lanes.model, lanes.fold)
    if resumed is not None:
        params, anchor, _ = resumed
    optimizer, early_stopping = (None, False) if first_order_settings is None else first_order_settings
    # Held-out rows decide when a lane stops, except those of the fold that the lane leaves out
    is_decisive = rows.held_out[:, None] & (rows.fold != lanes.fold[:, None])[..., None]
    held_out_weights = jnp.where(is_decisive, rows.data.weights, 0) if early_stopping else None
    total_weight = weights.sum((1, 2)) / weights.shape[2]
    total_weight = jnp.where(total_weight > 0, total_weight, 1)
    problems = StackedProblems(
        (anchor, model), rows.data.inputs, targets, weights, held_out_weights, rows.n_rows, total_weight
    )
    if optimizer is None:
        state = State(params, None, None)
    else:
        state = first_order.initial_state(optimizer, params, early_stopping)
    if resumed is not None and resumed[2] is not None:
        state = state._replace(optimizer_state=resumed[2])
    return problems, state


def _train_block_first_order(
    key: Key,
    config: TrainingConfig,
    lanes: Lanes,
    rows: TrainingRows,
    resumed: Resumed | None,
    report: OnEpochs,
    n_wanted: int | None,
    result_file: ResultFile | None,
) -> Trained:
    """Train a block with the first-order solver. If lanes diverge, train again with a lower learning rate for them.

    `result_file` depends on everything but the learning rates, which each attempt adds; None if results are not kept.
    The other arguments are as in `_train_block`.
    """
    solver = config.solver
    assert isinstance(solver, FirstOrder)
    source = _row_source(config, lanes, rows)
    if source is None:
        problems, state = _prepare(key, config, lanes, rows, resumed)
    else:
        problems, state = _prepare(key, config, lanes, _first_row(rows), resumed)
        total_weight = np.full(len(lanes.member), _total_weight(rows.data.weights), problems.total_weight.dtype)
        problems = problems._replace(n_rows=rows.n_rows, total_weight=total_weight)
    objective = AnchoredObjective(config.trainable)
    rates = np.full(len(lanes.member), solver.learning_rate)

    def attempt(report: OnEpochs | None = None) -> Solution:
        learning_rates = jnp.asarray(rates, dtype=jnp.result_type(float))
        file_of_attempt = None if result_file is None else result_file.depending_on(rates)
        return first_order.minimise(
            objective, solver, problems, state, learning_rates, key, report, file_of_attempt, source
        )

    is_wanted = np.full(len(lanes.member), True) if n_wanted is None else lanes.member < n_wanted
    solution = attempt(report)
    for _ in range(MAX_RETRIES):
        diverged = _diverged(solution) & is_wanted
        if not diverged.any():
            break
        rates = np.where(diverged, rates * RETRY_FACTOR, rates)
        members = describe_members(np.unique(lanes.member[diverged]))
        warnings.warn(
            f"{members} diverged; training again with a learning rate of {rates[diverged].min():.2g}",
            ConvergenceWarning,
            stacklevel=2,
        )
        solution = attempt()
    diverged = _diverged(solution) & is_wanted
    if diverged.any():
        members = describe_members(np.unique(lanes.member[diverged]))
        raise DivergenceError(
            f"{members} diverged, even with a learning rate of {rates[diverged].min():.2g}. Lower "
            "learning_rate_init, or check X, y and sample_weight for extreme values."
        )
    anchor = problems.anchor_and_model[0]
    params = jax.vmap(objective.merged, in_axes=(0, 0, None))(solution.params, anchor, lanes.model)
    was_run = np.arange(len(solution.loss_curve))[:, None] < solution.n_epochs
    curve = np.where(was_run, solution.loss_curve, np.nan)
    return Trained(params, anchor, curve, solution.n_epochs, solution.state.optimizer_state)


def _row_source(config: TrainingConfig, lanes: Lanes, rows: TrainingRows) -> RowSource | None:
    """Return where the rows of each step are gathered from, or None if all rows are arguments of the program.

    They are gathered if there are several pieces of rows, all members have the same data, and no row is held out.
    """
    has_shared_data = bool(getattr(config.sampler, "has_shared_data", False)) and rows.weight_scale == 1
    has_all_rows = not np.any(rows.held_out) and bool(np.all(lanes.fold == NO_FOLD))
    is_large = rows.n_rows > pieces.PIECE_ROWS and blocks.device_kind() == "cpu"
    if (is_large or rows.in_store_order) and has_shared_data and has_all_rows and config.batch_size is not None:
        return RowSource(rows.data, rows.in_store_order)
    if rows.in_store_order:
        raise ValueError("rows in a store need minibatches, the same data for all members, and no held-out rows")
    return None


def _first_row(rows: TrainingRows) -> TrainingRows:
    """Return only the first of the `rows`, which is enough to know their shapes."""
    return TrainingRows(Data(*(np.asarray(array[:1]) for array in rows.data)), rows.fold[:1], rows.held_out[:1], 1)


def _total_weight(weights: Array) -> float:
    """Return the sum of `weights`, (rows, outputs), averaged over outputs; the order of rows has no influence."""
    chunks = (np.asarray(weights[i : i + CHUNK_ROWS]) for i in range(0, len(weights), CHUNK_ROWS))
    total = math.fsum(chain.from_iterable(chunk.reshape(-1).tolist() for chunk in chunks)) / weights.shape[1]
    return total if total > 0 else 1.0


def _diverged(solution: Solution) -> np.ndarray:
    """Return which lanes diverged: the last loss is not finite or far above the first, or a parameter is not finite."""
    last = solution.loss_curve[-1]
    has_risen = last > 10 * np.abs(solution.first_loss) + 1
    return ~np.isfinite(last) | has_risen | ~_is_finite(solution.params)


def _is_finite(params: Params) -> np.ndarray:
    """Return for each lane whether all its parameters are finite; every leaf of `params` has a leading lane axis."""
    leaves = jax.tree.leaves(params)
    return np.all([np.isfinite(leaf).reshape(len(leaf), -1).all(1) for leaf in leaves], axis=0)


def _solve_block(
    key: Key,
    config: TrainingConfig,
    lanes: Lanes,
    rows: TrainingRows,
    resumed: Resumed | None,
    report: OnEpochs,
    n_wanted: int | None,
) -> Trained:
    """Train a block in closed form, if only the last layer is trained, or otherwise by Gauss–Newton.

    The arguments are as in `_train_block`.
    """
    problems, state = _prepare(key, config, lanes, rows, resumed)
    anchors, models = jax.tree.map(np.asarray, problems.anchor_and_model)
    if config.trainable == "last_layer":
        data = Data(problems.inputs, problems.targets, problems.weights)
        solved, losses = ridge.solve(anchored_loss, anchors, models, data)
        n_steps = np.ones(len(losses), int)
    else:
        assert isinstance(config.solver, GaussNewton)
        results = []
        starts, targets, weights = jax.tree.map(np.asarray, (state.params, problems.targets, problems.weights))
        for i in range(len(lanes.member)):
            anchor, model, start = (trees.take(part, i) for part in (anchors, models, starts))
            data = Data(problems.inputs, targets[i], weights[i])
            results.append(gauss_newton.solve(anchor, start, model, data, config.solver))
        solved = trees.stack([params for params, _, _ in results])
        losses = np.array([loss for _, loss, _ in results])
        n_steps = np.array([n for _, _, n in results])
    is_wanted = n_wanted is None or lanes.member < n_wanted
    failed = lanes.member[~_is_finite(solved) & is_wanted]
    if len(failed):
        raise DivergenceError(
            f"member {failed[0]} has no finite solution. Check X, y, sample_weight and noise_variance for extreme "
            "values."
        )
    report(config.solver.max_iter, losses)
    return Trained(solved, anchors, losses[None], n_steps, None)
