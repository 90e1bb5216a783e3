"""A progress bar for long fits, drawn by rich."""

from collections.abc import Iterator
from contextlib import contextmanager

from anchored.types import OnProgress


class Progress:
    """One bar a phase of the fit: epochs, loss, time left. Silent unless `verbose`."""

    def __init__(self, verbose: int):
        self.verbose = verbose

    @contextmanager
    def phase(self, title: str, n_epochs: int, unit: str = "epochs") -> Iterator[OnProgress | None]:
        """A bar for one phase; what it yields is told the share of the work just done, and the loss."""
        if not self.verbose:
            yield None
            return
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[epoch]}/{task.total:.0f} " + unit + "  loss {task.fields[loss]:.4g}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Bars(*columns, refresh_per_second=4) as bars:
            task = bars.add_task(title, total=n_epochs, epoch=0, loss=float("nan"))

            def advance(share: float, loss: float) -> None:
                bars.update(task, advance=share * n_epochs, loss=loss)
                bars.update(task, epoch=round(bars.tasks[task].completed))

            yield advance
            bars.update(task, completed=n_epochs, epoch=n_epochs)
