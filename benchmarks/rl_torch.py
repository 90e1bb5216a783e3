"""The agent of figure 4 in torch, in the usual way and in a fast way; `rl.py` compares our agent with both."""

import math
from typing import Any

import numpy as np

N_MEMBERS, WIDTH, BATCH = 10, 1000, 300  # BATCH in transitions
DISCOUNT, LEARNING_RATE = 0.98, 0.0015
# BATCH × strengths of the penalty: weights and bias of the first layer, then of the second
STRENGTHS = (1e-6, 1e-6, 0.1, 0.0)
REWARD_SCALE = 1 / 20  # factor of rewards when they are learnt from


class Memory:
    """A replay buffer of arrays of fixed size, with the content of our agent's buffer.

    Parameters
    ----------
    train_state
        The train state of our agent.
    seed
        Random seed of the batches.
    """

    def __init__(self, train_state: Any, seed: int):
        stored = train_state.buffer.transitions
        self.fields = (
            np.array(stored.observation),
            np.array(stored.action, np.int64),  # the index type of torch
            np.array(stored.reward) * np.float32(REWARD_SCALE),
            np.array(stored.next_observation),
            np.array(stored.terminated, np.float32),
        )
        self.size, self.capacity = int(train_state.buffer.n_added), train_state.buffer.buffer_size
        self.random = np.random.default_rng(seed)

    def add(self, *transition: Any) -> None:
        """Store the fields of one `transition`; it replaces the oldest if the buffer is full."""
        index = self.size % self.capacity
        for field, value in zip(self.fields, transition, strict=True):
            field[index] = value
        self.size += 1

    def draw(self) -> tuple:
        """Draw a batch with replacement: observations, actions, rewards, next observations, terminated."""
        return self.rows(self.random.integers(min(self.size, self.capacity), size=BATCH))

    def rows(self, indices: np.ndarray) -> tuple:
        """Return the transitions at these `indices` as tensors."""
        import torch

        return tuple(torch.from_numpy(field[indices]) for field in self.fields)


def leaves(params: Any) -> list[np.ndarray]:
    """Return weights and bias of both layers in `params`, with a leading axis of members, in the order of STRENGTHS."""
    return [np.array(params[layer][part]) for layer in ("layer_0", "layer_1") for part in ("weights", "bias")]


def penalty(parameters: Any, anchors: Any) -> Any:
    """Return the penalty of eq. 2: squared distances from `anchors`, weighted by STRENGTHS."""
    triples = zip(parameters, anchors, STRENGTHS, strict=True)
    return sum(strength * ((p - anchor) ** 2).sum() for p, anchor, strength in triples if strength) / BATCH


class TorchModules:
    """The usual way: a module and an optimiser for each member, one after the other.

    Parameters
    ----------
    params, anchors
        Parameters and anchors of our members.
    """

    def __init__(self, params: Any, anchors: Any):
        import torch
        from torch import nn

        self.members = []
        for i in range(N_MEMBERS):
            module = nn.Sequential(nn.Linear(4, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 2))
            starts, member_anchors = ([torch.tensor(leaf[i].T) for leaf in leaves(tree)] for tree in (params, anchors))
            with torch.no_grad():
                for parameter, start in zip(module.parameters(), starts, strict=True):
                    parameter.copy_(start)
            optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE)
            self.members.append((module, member_anchors, optimizer))

    def q_values(self, observation: np.ndarray) -> Any:
        """Return the Q-values, (members, actions), for one `observation`."""
        import torch

        with torch.no_grad():
            inputs = torch.from_numpy(observation)
            return torch.stack([module(inputs) for module, _, _ in self.members])

    def update(self, observation: Any, action: Any, reward: Any, next_observation: Any, terminated: Any) -> None:
        """Take a step of SGD for each member, with its own targets, on a batch of transitions that all share."""
        import torch

        for module, anchors, optimizer in self.members:
            with torch.no_grad():
                target = reward + DISCOUNT * (1 - terminated) * module(next_observation).max(1).values
            q = module(observation).gather(1, action[:, None])[:, 0]
            loss = ((q - target) ** 2).mean() + penalty(module.parameters(), anchors)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def stacked_leaves(self) -> list[np.ndarray]:
        """Return the members' parameters in our layout (see `leaves`)."""
        by_member = [
            [parameter.detach().numpy().T for parameter in module.parameters()] for module, _, _ in self.members
        ]
        return [np.stack(parts) for parts in zip(*by_member, strict=True)]


class TorchStacked:
    """A fast way: all members in batched products, one backward pass and a fused optimiser.

    Parameters
    ----------
    params, anchors
        Parameters and anchors of our members.
    """

    def __init__(self, params: Any, anchors: Any):
        import torch

        # Biases get an axis of rows, along which they are broadcast.
        starts, self.anchors = (
            [torch.tensor(leaf if leaf.ndim == 3 else leaf[:, None]) for leaf in leaves(tree)]
            for tree in (params, anchors)
        )
        self.parameters = [start.requires_grad_() for start in starts]
        self.optimizer = torch.optim.SGD(self.parameters, lr=LEARNING_RATE, fused=True)

    def forward(self, inputs: Any) -> Any:
        """Return the Q-values, (members, rows, actions), for `inputs`, (rows, features)."""
        import torch

        first, first_bias, last, last_bias = self.parameters
        hidden = torch.tanh(torch.baddbmm(first_bias, inputs.expand(N_MEMBERS, *inputs.shape), first))
        return torch.baddbmm(last_bias, hidden, last)

    def q_values(self, observation: np.ndarray) -> Any:
        """Return the Q-values, (members, actions), for one `observation`."""
        import torch

        with torch.inference_mode():
            return self.forward(torch.from_numpy(observation)[None])[:, 0]

    def update(self, observation: Any, action: Any, reward: Any, next_observation: Any, terminated: Any) -> None:
        """Take a step of SGD for all members, on a batch of transitions that all share."""
        import torch

        with torch.no_grad():
            target = reward + DISCOUNT * (1 - terminated) * self.forward(next_observation).amax(2)
        q = self.forward(observation).gather(2, action[:, None].expand(N_MEMBERS, BATCH, 1))[..., 0]
        loss = ((q - target) ** 2).mean(1).sum() + penalty(self.parameters, self.anchors)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def stacked_leaves(self) -> list[np.ndarray]:
        """Return the members' parameters in our layout (see `leaves`)."""
        arrays = [parameter.detach().numpy() for parameter in self.parameters]
        return [arrays[0], arrays[1][:, 0], arrays[2], arrays[3][:, 0]]


def thompson(q: Any, random: np.random.Generator) -> int:
    """Choose one of two actions by Algorithm 1, given Q-values `q`, (members, actions)."""
    import torch

    variance, mean = (part.tolist() for part in torch.var_mean(q, 0))
    probability_of_first = 0.5 * (1 + math.erf((mean[0] - mean[1]) / math.sqrt(2 * sum(variance))))
    return 0 if random.random() < probability_of_first else 1
