"""A progress bar for a learning agent."""

from typing import Any, Self


class Progress:
    """Steps or episodes done, the mean return of late, time left. Silent unless asked."""

    def __init__(self, shown: bool, n_steps: int | None, n_episodes: int | None):
        self.by_steps = n_steps is not None
        self.total = n_steps if self.by_steps else n_episodes
        self.shown = shown
        self.bars: Any = None

    def __enter__(self) -> Self:
        if self.shown:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as Bars

            unit = "steps" if self.by_steps else "episodes"
            columns = (
                TextColumn("learning"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn(unit + "  {task.fields[late]}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
            )
            self.bars = Bars(*columns, refresh_per_second=4).__enter__()
            self.task = self.bars.add_task("", total=self.total, late="")
        return self

    def __exit__(self, *error: Any) -> None:
        if self.bars is not None:
            self.bars.__exit__(*error)

    def advance(self, n_steps: int, n_episodes: int, returns: list[float]) -> None:
        """Show so many more."""
        if self.bars is None:
            return
        late = returns[-20:]
        told = f"return {sum(late) / len(late):.1f} over {len(late)} episodes" if late else ""
        self.bars.update(self.task, advance=n_steps if self.by_steps else n_episodes, late=told)
