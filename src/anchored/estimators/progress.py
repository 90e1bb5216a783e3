"""Progress bars of a fit, drawn by rich."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan

from anchored.types import OnProgress


class Progress:
    """Progress bars, one for each phase of a fit, with epochs, loss and remaining time; not shown if `verbose` is 0."""

    def __init__(self, verbose: int):
        self.verbose = verbose

    def note(self, text: str) -> None:
        """Print a line of text, unless `verbose` is 0."""
        if self.verbose:
            from rich import print as rich_print

            rich_print(text)

    @contextmanager
    def phase(self, title: str, n_epochs: int, unit: str = "epochs") -> Iterator[OnProgress | None]:
        """Context manager that shows a bar while the block runs.

        Parameters
        ----------
        title : str
            Title of the bar.
        n_epochs : int
            Length of the bar, in units of `unit`.
        unit : str
            What the length counts, in the plural.

        Yields
        ------
        function or None
            To be called with the fraction of the phase done since the last call, and the loss; None if `verbose` is 0.
        """
        if not self.verbose:
            yield None
            return
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[epoch]}/{task.total:.0f} " + unit + "  {task.fields[loss]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Bars(*columns, refresh_per_second=4) as bars:
            task = bars.add_task(title, total=n_epochs, epoch=0, loss="")

            def advance(share: float, loss: float) -> None:
                bars.update(task, advance=share * n_epochs, loss="" if isnan(loss) else f"loss {loss:.4g}")
                bars.update(task, epoch=round(bars.tasks[task].completed))

            yield advance
            bars.update(task, completed=n_epochs, epoch=n_epochs)
