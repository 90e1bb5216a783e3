"""Logs of training: rows of a CSV file, and TensorBoard's event files."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from anchored import checks
from anchored.inference.compilation import jit
from anchored.rl import q_learning, training
from anchored.rl.ensemble_policy import EnsemblePolicy

if TYPE_CHECKING:
    from os import PathLike

FORMATS = ("csv", "tensorboard")
N_RECENT = 100  # episodes that the log averages


class Logger(Protocol):
    """Interface of a logger, which the loggers of Stable-Baselines3 have too."""

    def record(self, key: str, value: float) -> None:
        """Keep one number until the next `dump`."""

    def dump(self, step: int = 0) -> None:
        """Write all numbers that were recorded, for the environment step `step`."""


class NoLogger:
    """A logger that writes nothing."""

    def record(self, key: str, value: float, exclude: object = None) -> None:
        """Ignore a number, whatever `key`, `value` and `exclude` are."""

    def dump(self, step: int = 0) -> None:
        """Write nothing for the environment step `step`."""


class FileLogger:
    """Writes numbers to `progress.csv` and to TensorBoard's event files in a folder.

    Parameters
    ----------
    folder
        Folder of the files, created if it does not exist. Rows are appended to an existing `progress.csv`.
    formats
        Some of "csv" and "tensorboard"; the latter needs the package tensorboard.
    """

    def __init__(self, folder: "str | PathLike[str]", formats: Sequence[str] = ("csv",)):
        for each in formats:
            checks.one_of("formats", each, FORMATS)
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._row: dict[str, float] = {}
        self._formats = tuple(formats)
        self._csv = self.folder / "progress.csv"
        self._columns: dict[str, None] = {}  # of the CSV file, in order
        self._tensorboard = _event_writer(self.folder) if "tensorboard" in formats else None

    def record(self, key: str, value: float, exclude: object = None) -> None:
        """Keep the number `value` under the name `key` until the next `dump`; `exclude` is not used."""
        self._row[key] = value

    def dump(self, step: int = 0) -> None:
        """Write all numbers that were recorded since the last call, for the environment step `step`."""
        row, self._row = {"time/total_timesteps": step, **self._row}, {}
        if "csv" in self._formats:
            self._write_csv(row)
        if self._tensorboard is not None:
            for key, value in row.items():
                self._tensorboard.add_scalar(key, value, step)
            self._tensorboard.flush()

    def _write_csv(self, row: dict[str, float]) -> None:
        """Append a row to the file; write the file again if the row has columns that it does not have yet."""
        has_new_columns = not set(row) <= set(self._columns)
        rows: list[dict[str, Any]] = _read_csv(self._csv) if has_new_columns else []
        self._columns = dict.fromkeys([*self._columns, *(rows[0] if rows else ()), *row])
        with self._csv.open("w" if has_new_columns else "a", newline="") as file:
            writer = csv.DictWriter(file, list(self._columns))
            if has_new_columns:
                writer.writeheader()
            writer.writerows([*rows, row])


def _read_csv(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a CSV file; none if it does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _event_writer(folder: Path) -> Any:
    """Return TensorBoard's writer of event files in `folder`."""
    try:
        from tensorboard.summary import Writer
    except ImportError as error:
        raise ImportError("formats: 'tensorboard' needs that package: pip install tensorboard") from error
    return Writer(str(folder))


def log(logger: Logger, agent: EnsemblePolicy, n_timesteps: int) -> None:
    """Log the recent episodes of the `agent` after `n_timesteps`, and its errors on a batch from the replay buffer."""
    history, state, config = agent.history, agent.train_state, agent.config
    n_recent_steps = max(1, sum(history.lengths[-N_RECENT:]))
    scale = training.reward_scale(config, state.mean_reward)
    key = training.counted_key(state.key, training.DIAGNOSTICS, state.n_rollouts)
    rate = config.learning.learning_rate
    diagnostics = _diagnose(key, config.learning, state.members, state.buffer, scale)
    row: dict[str, Any] = {
        "rollout/ep_rew_mean": np.mean(history.returns[-N_RECENT:]),
        "rollout/ep_len_mean": np.mean(history.lengths[-N_RECENT:]),
        "rollout/exploration_share": sum(history.explored[-N_RECENT:]) / n_recent_steps,
        "time/episodes": agent.n_episodes,
        "train/n_updates": int(state.members.n_gradient_steps),
        "train/learning_rate": rate(state.n_steps) if callable(rate) else rate,
        "train/loss": diagnostics.loss,
        "train/td_error": diagnostics.td_error,
        "train/q_std": diagnostics.spread,
        "train/reward_scale": scale,
    }
    for name, value in row.items():
        logger.record(name, float(value))
    logger.dump(n_timesteps)


_diagnose = jit(q_learning.diagnose)
