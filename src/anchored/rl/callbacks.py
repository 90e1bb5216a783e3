"""Callbacks of training, with the interface of Stable-Baselines3, which need not be installed."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from anchored.errors import ArgumentError
from anchored.rl.ensemble_policy import EnsemblePolicy
from anchored.rl.history import Steps

Locals = dict[str, Any]  # what a callback is told about a step, by the names that Stable-Baselines3 uses


class Callback(Protocol):
    """An object that training calls, such as a `BaseCallback` of Stable-Baselines3."""

    def init_callback(self, model: EnsemblePolicy) -> None:
        """Called first, with the agent."""

    def on_training_start(self, locals_: Locals, globals_: Locals) -> None:
        """Called before the first step."""

    def update_locals(self, locals_: Locals) -> None:
        """Called before `on_step`, with what happened in the step."""

    def on_step(self) -> bool:
        """Called once for each step, after the rollout that it belongs to; False ends the training.

        A step of several environments at once is one call.
        """

    def on_training_end(self) -> None:
        """Called after the last step."""


AnyCallback = Callback | Callable[[Locals, Locals], bool] | Sequence["AnyCallback"]


class Callbacks:
    """All callbacks of one call of `learn`.

    Parameters
    ----------
    callback
        One callback, a list of them, or None. A function is called with `locals` and `globals`, two dictionaries, and
        returns whether training continues.
    agent
        The agent that is trained.
    """

    def __init__(self, callback: AnyCallback | None, agent: EnsemblePolicy):
        self._functions, self._objects = _sorted(callback)
        self._agent = agent
        for each in self._objects:
            each.init_callback(agent)

    def start(self) -> None:
        """Tell the callbacks that training starts."""
        for each in self._objects:
            each.on_training_start({"self": self._agent}, {})

    def continues(self, steps: Steps) -> bool:
        """Tell the callbacks about the `steps` of one or several rollouts; return whether training continues."""
        if not self._functions and not self._objects:
            return True
        episode = self._agent.n_episodes - int(steps.done.sum())
        answers = []
        for part in _at_once(steps):
            infos: list[Locals] = [{} for _ in range(part.start, part.stop)]
            for info, done in zip(infos, steps.done[part], strict=True):
                if done:
                    history = self._agent.history
                    info["episode"] = {"r": history.returns[episode], "l": history.lengths[episode]}
                    episode += 1
            rewards, dones = steps.reward[part].tolist(), steps.done[part].tolist()
            answers.append(self._step({"self": self._agent, "rewards": rewards, "dones": dones, "infos": infos}))
        return all(answers)

    def end(self) -> None:
        """Tell the callbacks that training has ended."""
        for each in self._objects:
            each.on_training_end()

    def _step(self, step: Locals) -> bool:
        """Tell all callbacks about one step; return whether training continues."""
        answers = [function(step, {}) is not False for function in self._functions]
        for each in self._objects:
            each.update_locals(step)
            answers.append(each.on_step() is not False)
        return all(answers)


def _at_once(steps: Steps) -> list[slice]:
    """Return slices of `steps`, each for the steps that all environments took at once."""
    n_steps = len(steps.reward)
    if steps.env_index is None:
        starts = list(range(n_steps))
    else:
        starts = [0, *(np.flatnonzero(np.diff(steps.env_index) <= 0) + 1).tolist()]
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], n_steps], strict=True)]


def _sorted(callback: AnyCallback | None) -> tuple[list[Callable[[Locals, Locals], bool]], list[Callback]]:
    """Return the functions and the objects among callbacks."""
    if callback is None:
        return [], []
    if isinstance(callback, list | tuple):
        parts = [_sorted(each) for each in callback]
        return [f for functions, _ in parts for f in functions], [o for _, objects in parts for o in objects]
    if hasattr(callback, "on_step") and not isinstance(callback, type):
        return [], [callback]  # type: ignore[list-item]
    if callable(callback) and not isinstance(callback, type):
        return [callback], []
    raise ArgumentError(
        "callback",
        f"must be a function of (locals, globals), an object with on_step, or a list of these, got {callback!r}",
    )
