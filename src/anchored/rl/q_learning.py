"""Q-learning with an anchored ensemble: each member has its own Q-targets and its own anchor."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from anchored import trees
from anchored.inference.anchoring import anchored_loss
from anchored.inference.solvers.first_order import FirstOrder
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import Network
from anchored.model.priors import Prior
from anchored.rl import replay
from anchored.rl.config import QLearningConfig
from anchored.rl.replay import Batch, ReplayBuffer
from anchored.types import Array, Data, Key, Number, Params

CANDIDATES_PER_ROW = 4  # number of transitions from which replay by uncertainty chooses one row of a batch


class Members(NamedTuple):
    """The ensemble during training; all leaves except the counter have a leading axis of members."""

    params: Params  # parameters of the networks
    anchors: Params  # centres of the members' penalties, shaped like `params`
    targets: Params | None  # parameters of the target networks
    averages: Params | None  # parameters averaged over the latest gradient steps
    optimizer_state: optax.OptState  # of each member's optimiser
    n_gradient_steps: Array  # since the start of training

    @property
    def policy(self) -> Params:
        """The parameters that the greedy policy follows: the averages, or the members themselves if there are none."""
        return self.params if self.averages is None else self.averages


def init_members(key: Key, config: QLearningConfig, like: Params) -> Members:
    """Draw the members from the prior of `config`, with parameters of the shapes and dtypes of `like`.

    Member i is drawn from `fold_in(key, i)`, so that it does not depend on the number of members.
    """
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(config.n_estimators))
    params = jax.vmap(lambda k: config.prior.sample(k, like))(keys)
    anchors = jax.tree.map(lambda start, mean: jnp.where(config.anchored, start, mean), params, config.prior.mean)
    targets = params if config.target_update_interval is not None else None
    averages = params if config.averaged_share is not None else None
    optimizer_state = jax.vmap(_optimizer(config).init)(params)
    return Members(params, anchors, targets, averages, optimizer_state, jnp.zeros((), jnp.int32))


def q_values(network: Network, params: Params, observation: Array) -> Array:
    """Return every member's Q-values under `network` for one `observation`, (members, actions).

    `params` are the members' parameters, with a leading axis of members.
    """
    q = jax.vmap(network.apply, in_axes=(0, None))(params, observation[None])[:, 0]
    return jax.lax.optimization_barrier(q)  # so that the networks are not evaluated again for each use


def update(
    key: Key, config: QLearningConfig, members: Members, buffer: ReplayBuffer, n_new: Number, reward_scale: Number = 1.0
) -> Members:
    """Take `gradient_steps` steps of the optimiser, each with a batch for every member, or a batch for all members.

    Parameters
    ----------
    key
        Random key from which the batches are drawn.
    config
        Configuration of Q-learning.
    members
        The members before the update.
    buffer
        The replay buffer.
    n_new
        Number of transitions added to the buffer since the last update; see `QLearningConfig.n_newest`.
    reward_scale
        Factor of the rewards in the buffer.

    Returns
    -------
    Members
        The members after the update; their target networks are those before it.
    """

    cumulative_weights = None
    if config.replay == "rare":
        assert config.n_observations is not None  # `build_config` has checked it
        cumulative_weights = replay.cumulative_weights(
            buffer, config.n_observations, _n_actions(config, members, buffer.transitions.observation[:1])
        )

    def draw(batch_key: Key) -> Batch:
        indices, weight = _choose(batch_key, config, members, buffer, n_new, cumulative_weights)
        batch = replay.n_step_batch(buffer, indices, config.gamma, config.n_step, config.n_envs)
        return batch._replace(reward=batch.reward * reward_scale, weight=weight)

    def step(i: int, members: Members) -> Members:
        batch_key = jax.random.fold_in(key, i)
        if config.own_batches:
            batch = jax.vmap(draw)(jax.random.split(batch_key, config.n_estimators))
        else:
            batch = draw(batch_key)
        return _average(config, _gradient_step(config, members, batch, buffer.size))

    if config.gradient_steps == 1:
        return step(0, members)
    return jax.lax.fori_loop(0, config.gradient_steps, step, members)


def update_targets(config: QLearningConfig, members: Members, n_steps_before: Number, n_steps: Number) -> Members:
    """Copy the members to their target networks if a multiple of `target_update_interval` was reached.

    `n_steps_before` and `n_steps` are the numbers of environment steps of the run before and after the last rollout.
    """
    if config.target_update_interval is None:
        return members
    is_due = n_steps // config.target_update_interval > n_steps_before // config.target_update_interval
    targets = jax.tree.map(lambda new, old: jnp.where(is_due, new, old), members.params, members.targets)
    return members._replace(targets=targets)


def _choose(
    key: Key,
    config: QLearningConfig,
    members: Members,
    buffer: ReplayBuffer,
    n_new: Number,
    cumulative_weights: Array | None = None,
) -> tuple[Array, Array]:
    """Return the indices of a batch in the buffer, and the weights of its rows.

    `cumulative_weights` are those of the buffer's rows for "rare" replay; None for other kinds of replay.
    """
    n_rows = config.batch_size
    if config.replay == "uncertainty":
        # Members have most to learn where they disagree: resample candidates in proportion to their standard deviation.
        choice_key, key = jax.random.split(key)
        candidates = replay.sample(key, buffer, CANDIDATES_PER_ROW * n_rows)
        std = _std_over_members(config, members, buffer, candidates)
        indices = candidates[jax.random.categorical(choice_key, jnp.log(std + 1e-12), shape=(n_rows,))]
    elif cumulative_weights is not None:
        indices = replay.sample_weighted(key, cumulative_weights, n_rows)
    else:
        indices = replay.sample(key, buffer, n_rows)
    weight = jnp.ones(n_rows)
    if config.n_newest:
        indices = jnp.concatenate([indices, replay.newest(buffer, config.n_newest)])
        is_new = jnp.arange(config.n_newest) < n_new
        weight = jnp.concatenate([weight, jnp.where(is_new, config.newest_weight, 0.0)])
    return indices, weight


def _std_over_members(config: QLearningConfig, members: Members, buffer: ReplayBuffer, indices: Array) -> Array:
    """Return the standard deviation over members of the Q-value of the action taken, (indices,)."""
    observation, action = buffer.transitions.observation[indices], buffer.transitions.action[indices]
    q = jax.vmap(config.network.apply, in_axes=(0, None))(members.params, observation)
    return jnp.std(jnp.take_along_axis(q, action[None, :, None], 2)[..., 0], 0)


def _gradient_step(config: QLearningConfig, members: Members, batch: Batch, n_stored: Array) -> Members:
    """Return the members after one step of the optimiser on the anchored loss of `batch`.

    If members have batches of their own, all leaves of `batch` have a leading axis of members.
    """
    optimizer = _optimizer(config)
    model, n_data = _model(config, n_stored)
    shared = None if config.own_batches else _weighted(config, members, batch, n_data)

    def member_step(member: tuple) -> tuple[Params, optax.OptState]:
        params, anchor, targets, state, own = member
        batch, weights = shared if shared is not None else _weighted(config, members, own, n_data)
        data = _data(config, params, targets, batch, weights)
        gradient = jax.grad(anchored_loss)(params, anchor, model, data, n_data)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    own_batch = batch if config.own_batches else None
    by_member = (members.params, members.anchors, members.targets, members.optimizer_state, own_batch)
    # A CPU trains one member after another, since one fits into the cache; a GPU trains all in parallel.
    one_by_one = jax.default_backend() == "cpu"
    params, state = jax.lax.map(member_step, by_member) if one_by_one else jax.vmap(member_step)(by_member)
    return members._replace(params=params, optimizer_state=state, n_gradient_steps=members.n_gradient_steps + 1)


def _average(config: QLearningConfig, members: Members) -> Members:
    """Return the members with the parameters after their last gradient step added to the averages.

    The weight of gradient step n is 1 / (1 + share · (n − 1)): the averages reach back over a constant share of the
    steps so far, so the end of training need not be known.
    """
    if config.averaged_share is None:
        return members
    weight = 1 / (1 + config.averaged_share * (members.n_gradient_steps - 1))
    averages = jax.tree.map(lambda mean, new: mean + weight * (new - mean), members.averages, members.params)
    return members._replace(averages=averages)


class Diagnostics(NamedTuple):
    """What training reports about a batch, as means over its rows and over members."""

    loss: Array  # the anchored loss, of scaled rewards
    td_error: Array  # absolute difference between Q-value and target, in units of reward
    spread: Array  # standard deviation over members of the Q-value of the action taken, in units of reward


def diagnose(
    key: Key, config: QLearningConfig, members: Members, buffer: ReplayBuffer, reward_scale: Number
) -> Diagnostics:
    """Return the diagnostics of `members` for a batch drawn with `key`; other arguments are as in `update`."""
    batch = replay.n_step_batch(
        buffer, replay.sample(key, buffer, config.batch_size), config.gamma, config.n_step, config.n_envs
    )
    batch = batch._replace(reward=batch.reward * reward_scale)
    model, n_data = _model(config, buffer.size)
    batch, weights = _weighted(config, members, batch, n_data)

    def of_member(params: Params, anchor: Params, targets: Params | None) -> tuple[Array, Array, Array]:
        data = _data(config, params, targets, batch, weights)
        q = jnp.take_along_axis(config.network.apply(params, batch.observation), batch.action[:, None], 1)[:, 0]
        return anchored_loss(params, anchor, model, data, jnp.asarray(n_data)), q, data.targets[:, 0]

    loss, q, target = jax.vmap(of_member)(members.params, members.anchors, members.targets)
    td_error, spread = jnp.mean(jnp.abs(q - target)), jnp.mean(jnp.std(q, 0))
    return Diagnostics(jnp.mean(loss), td_error / reward_scale, spread / reward_scale)


def _model(config: QLearningConfig, n_stored: Array) -> tuple[BayesianModel, Number]:
    """Return the model whose anchored loss is minimised, and the number of data points in that loss."""
    n_data = n_stored.astype(jnp.result_type(float)) if config.anchor_size is None else config.anchor_size
    scale = jax.tree.map(jax.lax.rsqrt, config.anchor_strength)  # s/σ, infinite for no penalty
    return BayesianModel(config.network, Prior(config.prior.mean, scale), Gaussian(1.0)), n_data


def _data(config: QLearningConfig, params: Params, targets: Params | None, batch: Batch, weights: Array) -> Data:
    """Return the batch as data of a member with these parameters: inputs, Q-targets and weights of the outputs."""
    next_value = _next_value(config, params, targets, batch.next_observation)
    target = batch.reward + batch.discount * next_value
    return Data(batch.observation, jnp.broadcast_to(target[:, None], weights.shape), weights)


def _weighted(config: QLearningConfig, members: Members, batch: Batch, n_data: Number) -> tuple[Batch, Array]:
    """Return the batch, and the weight of each output in the loss, (rows, actions): 0 for actions not taken."""
    taken = jax.nn.one_hot(batch.action, _n_actions(config, members, batch.observation), dtype=batch.reward.dtype)
    return batch, taken * (batch.weight / batch.weight.sum() * n_data)[:, None]


def _next_value(config: QLearningConfig, params: Params, targets: Params | None, observation: Array) -> Array:
    """Return a member's value of the next state, (rows,), from its target network if it has one."""
    q = config.network.apply(params if targets is None else targets, observation)
    if not config.double_q:
        return jnp.max(q, 1)
    action = jnp.argmax(config.network.apply(params, observation), 1)
    return jnp.take_along_axis(q, action[:, None], 1)[:, 0]


def _n_actions(config: QLearningConfig, members: Members, observations: Array) -> int:
    """Return the number of actions, which is the number of outputs of the network for some `observations`."""
    shape = jax.eval_shape(config.network.apply, trees.take(members.params, 0), observations)
    return shape.shape[1]


def _optimizer(config: QLearningConfig) -> optax.GradientTransformation:
    """Return the optax optimiser of `config`."""
    rate: Number = config.learning_rate  # type: ignore[assignment]  # `training.update` has evaluated a schedule
    return FirstOrder(optimizer=config.optimizer).factory()(rate)
