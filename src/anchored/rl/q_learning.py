"""Q-learning by an anchored ensemble: every member has its own targets, and is pulled to its own anchor."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from anchored import checks, trees
from anchored.inference.anchoring import anchored_loss
from anchored.inference.solvers.first_order import FirstOrder
from anchored.model.bayesian_model import BayesianModel
from anchored.model.layered_prior import layered_prior
from anchored.model.likelihoods import Gaussian
from anchored.model.networks import Network
from anchored.model.priors import Prior
from anchored.rl import replay
from anchored.rl.q_network import QNetwork
from anchored.rl.replay import Batch, Buffer
from anchored.types import Array, Data, Key, Params

REPLAYS = ("uniform", "uncertainty")
CANDIDATES = 4  # times the batch, among which replay by uncertainty chooses


@trees.register
@dataclass(frozen=True)
class QLearning:
    """What is learnt, and how. Structure is static, numbers are traced."""

    network: Network = field(metadata={"static": True})
    prior: Prior  # what members are drawn from, and start at
    strength: Params  # of the pull back there, one for each leaf: σ²/s² for targets with noise σ²
    n_estimators: int = field(default=10, metadata={"static": True})
    discount: float = 0.99
    learning_rate: float = 1e-3
    optimizer: str | Callable = field(default="adam", metadata={"static": True})
    batch_size: int = field(default=128, metadata={"static": True})
    n_updates: int = field(default=1, metadata={"static": True})  # steps of the optimiser each time it learns
    target_update: int | None = field(default=None, metadata={"static": True})  # updates a copy; None: no copy
    double: bool = field(default=False, metadata={"static": True})
    n_steps: int = field(default=1, metadata={"static": True})
    replay: str = field(default="uniform", metadata={"static": True})  # or "uncertainty"
    most_latest: int = field(default=0, metadata={"static": True})  # newest transitions that join every batch
    latest_weight: float = 1.0  # traced; of each of them, where any other has 1
    anchor_size: float | None = None  # what the pull is divided by; None: the number of transitions remembered
    anchored: bool = True  # traced; False: pulled to the prior's mean, not back to where they start

    def __post_init__(self) -> None:
        checks.one_of("replay", self.replay, REPLAYS)


class Members(NamedTuple):
    """What is learnt: leaves have a leading axis of members."""

    params: Params
    anchors: Params
    targets: Params | None  # the copy that targets are made from
    optimizer_state: Any
    n_updates: Array


def q_prior(network: Network, params: Params, layer_scales: Sequence[float]) -> Prior:
    """`layered_prior`, but an action's bias starts at zero, and an integer has one input rather than many."""
    if not isinstance(network, QNetwork):
        return layered_prior(network, params, layer_scales)
    number = jnp.result_type(float).type

    def scales(i: int, layer: dict[str, Array]) -> dict[str, Any]:
        one_hot = i == 0 and network.n_observations is not None
        fan_in = 1 if one_hot else layer["weights"].shape[0]
        is_last = i == len(network.hidden_layer_sizes)
        return {"weights": number(layer_scales[i] / fan_in**0.5), "bias": number(0.0 if is_last else layer_scales[i])}

    scale = {f"layer_{i}": scales(i, params[f"layer_{i}"]) for i in range(len(params))}
    return Prior(jax.tree.map(lambda _: number(0), scale), scale)


def strength_of(prior: Prior, noise_variance: float) -> Params:
    """σ²/s² for each leaf; what has no spread in the prior only starts there, and is free."""

    def ratio(scale: Array) -> Array:
        known = np.asarray(scale) > 0
        return np.where(known, noise_variance / np.where(known, scale, 1) ** 2, 0).astype(np.result_type(scale))

    return jax.tree.map(ratio, prior.scale)


def initial_members(key: Key, learning: QLearning, like: Params) -> Members:
    """Member i is drawn from `fold_in(key, i)`, whatever their number."""
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(learning.n_estimators))
    starts = jax.vmap(lambda k: learning.prior.sample(k, like))(keys)
    anchors = jax.tree.map(lambda start, mean: jnp.where(learning.anchored, start, mean), starts, learning.prior.mean)
    targets = starts if learning.target_update is not None else None
    state = jax.vmap(_optimizer(learning).init)(starts)
    return Members(starts, anchors, targets, state, jnp.zeros((), jnp.int32))


def q_values(network: Network, params: Params, observation: Array) -> Array:
    """Every member's values of all actions for one observation, (members, actions)."""
    q = jax.vmap(network.apply, in_axes=(0, None))(params, observation[None])[:, 0]
    return jax.lax.optimization_barrier(q)  # lest the networks be run again for each use of their values


def learn(key: Key, learning: QLearning, members: Members, buffer: Buffer, n_latest: Array) -> Members:
    """A few steps of the optimiser, each on a batch that all members share.

    `n_latest` transitions are new since the last time; see `most_latest`.
    """

    def update(i: int, members: Members) -> Members:
        places, weight = _choose(jax.random.fold_in(key, i), learning, members, buffer, n_latest)
        batch = replay.look_up(buffer, places, learning.discount, learning.n_steps)
        return _update(learning, members, batch._replace(weight=weight), buffer.size)

    if learning.n_updates == 1:
        return update(0, members)
    return jax.lax.fori_loop(0, learning.n_updates, update, members)


def _choose(key, learning, members, buffer, n_latest):
    """Places in the buffer to learn from, and their weights."""
    n_rows = learning.batch_size
    if learning.replay == "uncertainty":
        # Where members disagree, they have most to learn: resample candidates by the spread of their values.
        choice_key, key = jax.random.split(key)
        candidates = replay.draw(key, buffer, CANDIDATES * n_rows)
        spread = _spread(learning, members, buffer, candidates)
        places = candidates[jax.random.categorical(choice_key, jnp.log(spread + 1e-12), shape=(n_rows,))]
    else:
        places = replay.draw(key, buffer, n_rows)
    weight = jnp.ones(n_rows)
    if learning.most_latest:
        places = jnp.concatenate([places, replay.newest(buffer, learning.most_latest)])
        is_new = jnp.arange(learning.most_latest) < n_latest
        weight = jnp.concatenate([weight, jnp.where(is_new, learning.latest_weight, 0.0)])
    return places, weight


def _spread(learning, members, buffer, places):
    """Standard deviation over members of the value of the action taken."""
    observation, action = buffer.transitions.observation[places], buffer.transitions.action[places]
    q = jax.vmap(learning.network.apply, in_axes=(0, None))(members.params, observation)
    return jnp.std(jnp.take_along_axis(q, action[None, :, None], 2)[..., 0], 0)


def _update(learning: QLearning, members: Members, batch: Batch, n_remembered: Array) -> Members:
    optimizer = _optimizer(learning)
    size = n_remembered.astype(batch.reward.dtype) if learning.anchor_size is None else learning.anchor_size
    pull = jax.tree.map(jax.lax.rsqrt, learning.strength)  # s/σ, infinite where there is no pull
    model = BayesianModel(learning.network, Prior(learning.prior.mean, pull), Gaussian(1.0))
    taken = jax.nn.one_hot(batch.action, _n_actions(learning, members, batch), dtype=batch.reward.dtype)
    weights = taken * (batch.weight / batch.weight.sum() * size)[:, None]

    def member_step(member):
        params, anchor, targets, state = member
        following = _value(learning, params, targets, batch.next_observation)
        target = batch.reward + batch.discount * following
        data = Data(batch.observation, jnp.broadcast_to(target[:, None], weights.shape), weights)
        gradient = jax.grad(anchored_loss)(params, anchor, model, data, size)
        updates, state = optimizer.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    lanes = (members.params, members.anchors, members.targets, members.optimizer_state)
    # Members one after the other stay within a core's cache; a GPU wants them side by side.
    one_by_one = jax.default_backend() == "cpu"
    params, state = jax.lax.map(member_step, lanes) if one_by_one else jax.vmap(member_step)(lanes)
    n_updates = members.n_updates + 1
    targets = members.targets
    if learning.target_update is not None:
        due = n_updates % learning.target_update == 0
        targets = jax.tree.map(lambda new, old: jnp.where(due, new, old), params, targets)
    return Members(params, members.anchors, targets, state, n_updates)


def _value(learning, params, targets, observation):
    """What a member thinks the next state is worth, by its own network or by its copy."""
    judge = params if targets is None else targets
    q = learning.network.apply(judge, observation)
    if not learning.double:
        return jnp.max(q, 1)
    chosen = jnp.argmax(learning.network.apply(params, observation), 1)
    return jnp.take_along_axis(q, chosen[:, None], 1)[:, 0]


def _n_actions(learning, members, batch):
    shape = jax.eval_shape(learning.network.apply, trees.take(members.params, 0), batch.observation)
    return shape.shape[1]


def _optimizer(learning: QLearning) -> optax.GradientTransformation:
    return FirstOrder(optimizer=learning.optimizer).factory()(learning.learning_rate)
