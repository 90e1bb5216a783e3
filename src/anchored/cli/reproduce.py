"""The commands `reproduce`, which repeats the paper's experiments, and `bench`, which measures this machine."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from anchored.cli.console import AsJson, Output, command_output
from anchored.storage.text import printable

if TYPE_CHECKING:
    from anchored.paper.catalogue import Experiment
    from anchored.paper.reproduction import Result


def reproduce(
    only: Annotated[
        str,
        Option(
            help="Figures or experiments to make, separated by commas, such as fig4,fig8,theorem. Default: all except "
            "convergence_boston and replay_by_uncertainty."
        ),
    ] = "",
    quick: Annotated[
        bool,
        Option(
            "--quick",
            help="Run small versions of the experiments, in about a minute; their results are not conclusive.",
        ),
    ] = False,
    seed: Annotated[int, Option(min=0, help="Random seed of all experiments.")] = 0,
    out: Annotated[Path, Option("--out", "-o", help="Folder to write the report to.")] = Path("report"),
) -> None:
    """Reproduce every figure of the paper, and test its claims.

    The report is one HTML file, index.html. Results are stored. After an
    interruption, repeat the same command to continue. An experiment is run again
    only if its seed, its settings, a library or the code that it imports has
    changed.

    [bold]Examples[/bold]
    anchored reproduce
    anchored reproduce --only fig4,theorem --seed 1
    anchored reproduce --quick --out quick-report
    """
    with command_output(False) as output:
        from anchored.paper import catalogue, report, reproduction
        from anchored.storage import atomic

        figures = catalogue.selected(only)
        experiments = catalogue.needed(figures)
        out.mkdir(parents=True, exist_ok=True)
        atomic.check_writable(out / "index.html")
        for experiment in experiments:
            if set(experiment.figures) - set(figures):
                output.info(
                    f"{experiment.name} computes its {len(experiment.figures)} figures together; the report shows "
                    "only those selected"
                )
        failed = []
        with _progress_display(experiments, output) as (on_start, print_line):

            def on_result(result: reproduction.Result, is_stored: bool) -> None:
                report.write(figures, out, quick, seed)
                failed.extend([result.experiment] * bool(result.error))
                print_line(_summary(result, is_stored))

            try:
                reproduction.reproduce(experiments, out, quick, seed, on_start, on_result)
            except KeyboardInterrupt:
                print_line("interrupted; the same command resumes from here")
                raise typer.Exit(130) from None
        output.info(f"report: {report.write(figures, out, quick, seed)}")
        if failed:
            raise typer.Exit(1)


def _summary(result: "Result", is_stored: bool) -> str:
    """Return one line about `result`: its error, or how many claims have each verdict, and the experiment's time.

    `is_stored` says whether an earlier run has stored the result.
    """
    if result.error:
        return f"{result.experiment}: FAILED, {result.error.strip().splitlines()[-1]}"
    from anchored.paper.findings import WORDS

    verdicts = [claim.verdict for figure in result.figures for claim in figure.claims]
    counts = ", ".join(f"{verdicts.count(verdict)} {WORDS[verdict]}" for verdict in dict.fromkeys(verdicts))
    return f"{result.experiment}: {counts} ({'as stored' if is_stored else f'{result.seconds:.1f} s'})"


@contextmanager
def _progress_display(
    experiments: "tuple[Experiment, ...]", output: Output
) -> Iterator[tuple["Callable[[Experiment], Callable[[float], None]]", Callable[[str], None]]]:
    """Context manager that shows progress bars while the block runs, if standard output is a terminal.

    Yields `on_start` and `print_line`. Call `on_start` when an experiment starts; it returns a function to call with
    each fraction of the experiment's work, once this fraction is done. Call `print_line` with the line to print when
    an experiment has ended.
    """
    if not sys.stdout.isatty():
        yield lambda experiment: lambda share: None, output.info
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.text import Text

    columns = (TextColumn("{task.description:24}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns) as bars:
        overall = bars.add_task("all", total=len(experiments))
        n_ended = 0

        def on_start(experiment: "Experiment") -> Callable[[float], None]:
            task = bars.add_task(experiment.name, total=1)

            def advance(share: float) -> None:
                bars.advance(task, share)
                bars.advance(overall, share)
                if bars.tasks[task].completed > 0.999:  # sums of shares are rounded
                    bars.update(task, visible=False)

            return advance

        def print_line(line: str) -> None:
            nonlocal n_ended
            n_ended += 1
            bars.console.print(Text(printable(line)))
            bars.update(overall, completed=max(n_ended, bars.tasks[overall].completed))

        yield on_start, print_line


def bench(as_json: AsJson = False) -> None:
    """Measure how fast this machine fits and predicts, in under a minute.

    [bold]Examples[/bold]
    anchored bench
    anchored bench --json > speed.json
    """
    with command_output(as_json) as output:
        from anchored.cli.bench import measure
        from anchored.paper.machine import describe
        from anchored.paper.machine import machine as this_machine

        machine = describe(this_machine())
        output.info(machine)
        measurements = measure()
        rows = [(measured.name, _format(measured.value), measured.unit) for measured in measurements]
        output.table(("measurement", "value", ""), rows)
        output.result({"machine": machine, "measured": [measured._asdict() for measured in measurements]})


def _format(value: float) -> str:
    """Return `value` as text with about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
