"""A progress bar of training."""

from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressBar:
    """A context that shows steps or episodes done, the mean of recent returns, and the remaining time.

    Parameters
    ----------
    shown
        Whether to show the bar.
    n_steps, n_episodes
        Number of steps or episodes to come. Episodes are counted if `n_steps` is None.
    """

    def __init__(self, shown: bool, n_steps: int | None, n_episodes: int | None):
        self.by_steps = n_steps is not None
        self.total = n_steps if self.by_steps else n_episodes
        self.shown = shown
        self._bar: Progress | None = None
        self._task: TaskID

    def __enter__(self) -> Self:
        if self.shown:
            from rich.progress import (
                BarColumn,
                MofNCompleteColumn,
                Progress,
                TextColumn,
                TimeElapsedColumn,
                TimeRemainingColumn,
            )

            columns = (
                TextColumn("learning"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(("steps" if self.by_steps else "episodes") + "  {task.fields[recent]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, refresh_per_second=4).__enter__()
            self._task = self._bar.add_task("", total=self.total, recent="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.__exit__(kind, error, traceback)

    def advance(self, n_steps: int, n_episodes: int, returns: list[float]) -> None:
        """Advance the bar by `n_steps` steps or `n_episodes` episodes, and show the mean of the last 20 `returns`."""
        if self._bar is None:
            return
        recent = returns[-20:]
        text = f"return {sum(recent) / len(recent):.1f} over {len(recent)} episodes" if recent else ""
        self._bar.update(self._task, advance=n_steps if self.by_steps else n_episodes, recent=text)
