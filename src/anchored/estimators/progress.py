"""Progress bars of a fit, drawn by rich."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan

from anchored.types import OnProgress


class Progress:
    """Progress bars, one for each phase of a fit, with the epochs done, the loss and the remaining time.

    If `verbose` is 0, nothing is shown.
    """

    def __init__(self, verbose: int):
        self.verbose = verbose

    def note(self, text: str) -> None:
        """Print a line of text, unless `verbose` is 0."""
        if self.verbose:
            from rich import print as rich_print

            rich_print(text)

    @contextmanager
    def phase(self, title: str, length: int, unit: str = "epochs") -> Iterator[OnProgress | None]:
        """Context manager that shows a progress bar while its block runs.

        Parameters
        ----------
        title : str
            Title of the bar.
        length : int
            Length of the phase, such as its number of epochs.
        unit : str
            Unit of the length, in the plural.

        Yields
        ------
        function or None
            A function to be called with the fraction of the phase done since the last call, and the loss. None if
            `verbose` is 0.
        """
        if not self.verbose:
            yield None
            return
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[done]}/{task.total:.0f} " + unit + "  {task.fields[loss]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Bars(*columns, refresh_per_second=4) as bars:
            task = bars.add_task(title, total=length, done=0, loss="")

            def advance(fraction: float, loss: float) -> None:
                bars.update(task, advance=fraction * length, loss="" if isnan(loss) else f"loss {loss:.4g}")
                bars.update(task, done=round(bars.tasks[task].completed))

            yield advance
            bars.update(task, completed=length, done=length)
