"""Train members: draw each its anchor, minimise its loss, notice and retry what diverges.

A lane is a member under one set of numbers, perhaps with a fold of the rows left out. Lanes with the same
member number share their randomness, so candidates for a noise or a prior are compared like with like.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.exceptions import ConvergenceWarning

from anchored import trees
from anchored.inference import anchoring
from anchored.inference.anchoring import AnchoredProblems
from anchored.inference.compilation import jit
from anchored.inference.failures import DivergenceError
from anchored.inference.solvers import blocks, first_order, gauss_newton, ridge
from anchored.inference.solvers.first_order import (
    AnchorAndModel,
    FirstOrder,
    OptimizerFactory,
    Solution,
    StackedProblems,
    State,
)
from anchored.inference.solvers.gauss_newton import GaussNewton
from anchored.model.bayesian_model import BayesianModel, ProblemSampler
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import Network, last_layer_mask
from anchored.types import Array, Data, Key, OnProgress, Params

RETRIES = 3
SMALLER_STEP = 0.1
NO_FOLD = -1

Carried = tuple[Params, Params, optax.OptState | None]  # parameters, anchors and the optimiser's state to go on from
Report = Callable[[int, np.ndarray], None]  # (epochs just run, losses)


class Lanes(NamedTuple):
    """What to train side by side; every leaf has a leading lane axis."""

    member: np.ndarray  # whose randomness
    model: BayesianModel
    fold: np.ndarray  # the fold left out, or NO_FOLD


@dataclass(frozen=True)
class TrainingConfig:
    """How lanes become members: everything that is not a number to tune."""

    sampler: ProblemSampler = AnchoredProblems()
    trainable: str = "all"  # or "last_layer", or the name of the branch of the parameters that is
    solver: FirstOrder | GaussNewton = FirstOrder()

    @property
    def batch_size(self) -> int | None:
        """Rows a step; None for all of them."""
        return self.solver.batch_size if isinstance(self.solver, FirstOrder) else None


class TrainingRows(NamedTuple):
    """Data with what is left out of it. Padded to a bucket for the first-order solver."""

    data: Data
    fold: Array  # (rows,) which fold a row belongs to
    held_out: Array  # (rows,) true for the rows early stopping watches
    n_rows: int
    stands_for: float = 1.0  # how many times larger the data set is that these rows are a part of


class Trained(NamedTuple):
    """Members as NumPy arrays, each leaf with a leading lane axis, and how their training went."""

    params: Params
    anchors: Params
    loss_curve: np.ndarray  # (epochs, lanes); NaN after an early stop
    n_epochs: np.ndarray  # (lanes,)
    optimizer_state: optax.OptState | None

    def lanes(self, kept: slice) -> "Trained":
        """Some of the lanes."""
        curve = self.loss_curve[: self.n_epochs[kept].max(), kept]  # a solver's own steps leave one loss, the last
        return jax.tree.map(lambda leaf: leaf[kept], _without_curve(self))._replace(loss_curve=curve)


@dataclass(frozen=True)
class AnchoredObjective:
    """Eq. 2, of all parameters or of a part of them."""

    trainable: str

    def loss(self, params: Params, problem: AnchorAndModel, batch: Data, size: Array) -> Array:
        anchor, model = problem
        return anchoring.anchored_loss(self.merged(params, anchor, model), anchor, model, batch, size)

    def held_out_misfit(self, params: Params, problem: AnchorAndModel, batch: Data) -> Array:
        anchor, model = problem
        outputs = model.network.apply(self.merged(params, anchor, model), batch.inputs)
        total = jnp.sum(batch.weights * model.likelihood.misfit(outputs, batch.targets))
        return total / jnp.maximum(jnp.sum(batch.weights), 1e-12)

    def merged(self, params: Params, anchor: Params, model: BayesianModel) -> Params:
        """The parameters in use: frozen ones are the anchor's."""
        if self.trainable == "all":
            return params
        is_last = self.trainable == "last_layer"
        mask = last_layer_mask(model.network, params) if is_last else trees.branch(self.trainable, params)
        return ridge.freeze(mask, params, anchor)


def as_rows(data: Data, fold: np.ndarray | None = None, held_out: np.ndarray | None = None) -> TrainingRows:
    """Pad to a bucket of rows; padding has weight zero."""
    n = len(data.weights)
    size = first_order.bucket(n)

    def padded(array: np.ndarray) -> np.ndarray:
        array = np.asarray(array)
        whole = np.zeros((size, *array.shape[1:]), array.dtype)
        whole[:n] = array
        return whole

    fold = np.full(n, NO_FOLD - 1) if fold is None else fold
    held_out = np.zeros(n, bool) if held_out is None else held_out
    return TrainingRows(jax.tree.map(padded, data), padded(fold), padded(held_out), n)


def train(
    key: Key,
    config: TrainingConfig,
    lanes: Lanes,
    rows: TrainingRows,
    start: Trained | None = None,
    on_progress: OnProgress | None = None,
    n_wanted: int | None = None,
) -> Trained:
    """Train all lanes, in blocks. `start` goes on from there: its anchors kept, its parameters moved.

    Members from `n_wanted` on only fill up their block: it is nobody's concern if they diverge.
    """
    width = block_width(config, lanes.model.network, rows)
    n_lanes = len(lanes.member)

    def task(block: int) -> Trained:
        places = np.arange(block * width, (block + 1) * width) % n_lanes
        own, begin = jax.tree.map(lambda leaf: np.asarray(leaf)[places], (lanes, _carried(start)))
        if start is None and closed_form(config, own.model):
            return _solve_block(key, config, own, rows, None, report)
        if isinstance(config.solver, GaussNewton):
            return _solve_block(key, config, own, rows, begin, report)
        return _descend_block(key, config, own, rows, begin, report, n_wanted)

    n_blocks = -(-n_lanes // width)

    def report(n_epochs: int, losses: np.ndarray) -> None:
        if on_progress is not None:
            on_progress(n_epochs / (config.solver.max_iter * n_blocks), float(np.mean(losses)))

    return joined(blocks.run(task, range(n_blocks))).lanes(slice(n_lanes))


def closed_form(config: TrainingConfig, model: BayesianModel) -> bool:
    """Whether a member is solved for rather than trained."""
    return config.trainable == "last_layer" and isinstance(model.likelihood, Gaussian)


def block_width(config: TrainingConfig, network: Network, rows: TrainingRows) -> int:
    """How many lanes one program trains: fixed by the network and the data, not by how many members are wanted."""
    if isinstance(config.solver, GaussNewton):
        return 1  # a lane is a program of its own
    params = jax.eval_shape(network.init, jax.random.key(0), rows.data.inputs[:1])
    n_params = sum(leaf.size for leaf in jax.tree.leaves(params))
    return blocks.width(n_params, config.batch_size or rows.n_rows)


def joined(parts: list[Trained]) -> Trained:
    """Lanes end to end; a curve that ended early is filled up with NaN."""
    longest = max(len(part.loss_curve) for part in parts)
    curves = [np.pad(p.loss_curve, ((0, longest - len(p.loss_curve)), (0, 0)), constant_values=np.nan) for p in parts]
    rest = [_without_curve(part) for part in parts]
    whole = jax.tree.map(lambda *leaves: np.concatenate([np.asarray(leaf) for leaf in leaves]), *rest)
    return whole._replace(loss_curve=np.concatenate(curves, axis=1))


def _without_curve(trained: Trained) -> Trained:
    """The rest, whose leaves all have the lane axis first."""
    return trained._replace(loss_curve=None)  # type: ignore[arg-type]  # None is no leaf


def _carried(start: Trained | None) -> Carried | None:
    return None if start is None else (start.params, start.anchors, start.optimizer_state)


def member_problems(
    key: Key, config: TrainingConfig, model: BayesianModel, data: Data, members: np.ndarray
) -> StackedProblems:
    """The problems that members solved: their anchors and their own targets, drawn again from the key."""
    stack, _ = _prepare(key, replace(config, solver=GaussNewton()), same_model(model, members), as_rows(data), None)
    return stack


def same_model(model: BayesianModel, members: np.ndarray) -> Lanes:
    """One lane for each member, all of the same model."""
    n = len(members)
    stacked = jax.tree.map(lambda leaf: np.broadcast_to(leaf, (n, *np.shape(leaf))), model)
    return Lanes(members, stacked, np.full(n, NO_FOLD))


def _prepare(
    key: Key, config: TrainingConfig, lanes: Lanes, rows: TrainingRows, begin: Carried | None
) -> tuple[StackedProblems, State]:
    """The problems of a block of lanes, and where their training starts."""
    solver = config.solver if isinstance(config.solver, FirstOrder) else None
    descent = None if solver is None else (solver.factory(), solver.early_stopping)
    return _prepared((config.sampler, descent), key, lanes, rows, begin)


@partial(jit, static_argnums=(0,))
def _prepared(
    static: tuple[ProblemSampler, tuple[OptimizerFactory, bool] | None],
    key: Key,
    lanes: Lanes,
    rows: TrainingRows,
    begin: Carried | None,
) -> tuple[StackedProblems, State]:
    sampler, descent = static

    def lane(member: Array, model: BayesianModel, fold: Array) -> tuple[Params, Params, BayesianModel, Array, Array]:
        anchor_key, noise_key = _member_keys(key, member)
        like = model.network.init(anchor_key, rows.data.inputs[:1])
        problem = sampler(anchor_key, noise_key, model, like, rows.data)
        left_out = ((rows.fold == fold) | rows.held_out)[:, None]
        weights = jnp.where(left_out, 0, rows.stands_for * problem.data.weights)
        return problem.start, problem.anchor, problem.model, problem.data.targets, weights

    params, anchor, model, targets, weights = jax.vmap(lane)(*lanes)
    if begin is not None:
        params, anchor, _ = begin
    watched = rows.held_out[:, None] & (rows.fold != lanes.fold[:, None])[..., None]
    held_out = jnp.where(watched, rows.data.weights, 0) if descent and descent[1] else None
    total = weights.sum((1, 2)) / weights.shape[2]
    size = jnp.where(total > 0, total, 1)
    stack = StackedProblems((anchor, model), rows.data.inputs, targets, weights, held_out, rows.n_rows, size)
    state = State(params, None, None) if descent is None else first_order.initial_state(descent[0], params, descent[1])
    if begin is not None and begin[2] is not None:
        state = state._replace(optimizer_state=begin[2])
    return stack, state


def _member_keys(key: Key, member: Array) -> tuple[Key, Key]:
    """A member's own randomness: for its anchor, and for noise in its data."""
    return jax.random.fold_in(key, 2 * member), jax.random.fold_in(key, 2 * member + 1)


def _descend_block(
    key: Key,
    config: TrainingConfig,
    lanes: Lanes,
    rows: TrainingRows,
    begin: Carried | None,
    report: Report,
    n_wanted: int | None,
) -> Trained:
    """Train a block by the first-order solver; lanes that diverge start again at a smaller step."""
    solver = config.solver
    assert isinstance(solver, FirstOrder)
    stack, state = _prepare(key, config, lanes, rows, begin)
    objective = AnchoredObjective(config.trainable)
    rate = np.full(len(lanes.member), solver.learning_rate)

    def attempt(report: Report | None = None) -> Solution:
        rates = jnp.asarray(rate, dtype=jnp.result_type(float))
        return first_order.minimise(objective, solver, stack, state, rates, key, report)

    wanted = np.full(len(lanes.member), True) if n_wanted is None else lanes.member < n_wanted
    solution = attempt(report)
    for _ in range(RETRIES):
        lost = _diverged(solution) & wanted
        if not lost.any():
            break
        rate = np.where(lost, rate * SMALLER_STEP, rate)
        names = ", ".join(str(i) for i in np.unique(lanes.member[lost]))
        warnings.warn(
            f"member {names} diverged and starts again with a learning rate of {rate[lost].min():.2g}",
            ConvergenceWarning,
            stacklevel=2,
        )
        solution = attempt()
    lost = _diverged(solution) & wanted
    if lost.any():
        names = ", ".join(str(i) for i in np.unique(lanes.member[lost]))
        raise DivergenceError(
            f"member {names} diverged, even with a learning rate of {rate[lost].min():.2g}. Lower "
            "learning_rate_init, or look for extreme values in X, y or sample_weight."
        )
    anchor = stack.problem[0]
    params = jax.vmap(objective.merged, in_axes=(0, 0, None))(solution.params, anchor, lanes.model)
    ran = np.arange(len(solution.loss_curve))[:, None] < solution.n_epochs
    curve = np.where(ran, solution.loss_curve, np.nan)
    return Trained(params, anchor, curve, solution.n_epochs, solution.state.optimizer_state)


def _diverged(solution: Solution) -> np.ndarray:
    """Lost for good: not a number at the end, or far above where it began."""
    last = solution.loss_curve[-1]
    finite = [np.isfinite(leaf).reshape(len(last), -1).all(1) for leaf in jax.tree.leaves(solution.params)]
    return ~np.isfinite(last) | (last > 10 * np.abs(solution.first_loss) + 1) | ~np.all(finite, axis=0)


def _solve_block(
    key: Key, config: TrainingConfig, lanes: Lanes, rows: TrainingRows, begin: Carried | None, report: Report
) -> Trained:
    """Solve for members: the last layer in closed form, or all layers by Gauss–Newton, one after the other."""
    stack, state = _prepare(key, config, lanes, rows, begin)
    anchors, models = jax.tree.map(np.asarray, stack.problem)
    if config.trainable == "last_layer":
        solved, losses = ridge.solve(
            anchoring.anchored_loss, anchors, models, Data(stack.inputs, stack.targets, stack.weights)
        )
        n_steps = np.ones(len(losses), int)
    else:
        assert isinstance(config.solver, GaussNewton)
        found = []
        starts, targets, weights = jax.tree.map(np.asarray, (state.params, stack.targets, stack.weights))
        for i in range(len(lanes.member)):
            anchor, model, start = (trees.take(part, i) for part in (anchors, models, starts))
            data = Data(stack.inputs, targets[i], weights[i])
            found.append(gauss_newton.solve(anchor, start, model, data, config.solver))
        solved = trees.stack([params for params, _, _ in found])
        losses, n_steps = (np.array(column) for column in zip(*(rest for _, *rest in found), strict=True))
    finite = [np.isfinite(leaf).reshape(len(losses), -1).all(1) for leaf in jax.tree.leaves(solved)]
    lost = lanes.member[~np.all(finite, axis=0)]
    if len(lost):
        raise DivergenceError(
            f"member {lost[0]} has no finite solution. Look for extreme values in X, y, sample_weight or "
            "noise_variance."
        )
    report(config.solver.max_iter, losses)
    return Trained(solved, anchors, losses[None], n_steps, None)


def directions(key: Key, model: BayesianModel, members: np.ndarray, inputs: Array) -> Params:
    """θ̃ of each member, for its tangent correction."""
    return jax.tree.map(np.asarray, _directions(key, model, members, inputs[:1]))


@jit
def _directions(key: Key, model: BayesianModel, members: Array, inputs: Array) -> Params:
    like = model.network.init(key, inputs)

    def direction(member: Array) -> Params:
        return anchoring.draw_direction(_member_keys(key, member)[0], model, like)

    return jax.vmap(direction)(members)
