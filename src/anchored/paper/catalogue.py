"""The list of experiments, in the order in which they run, and of figures, in the order of the report.

An experiment has the name of its module in `paper.experiments`, which is imported only when it is needed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

from anchored.errors import ArgumentError

EXPERIMENTS_PACKAGE = "anchored.paper.experiments"


@dataclass(frozen=True)
class Experiment:
    """An experiment, which has one or several figures."""

    name: str  # name of its module in `paper.experiments`
    figure_names: tuple[str, ...] = ()  # empty if it has one figure with the experiment's name
    by_default: bool = True  # whether it runs if no names are given
    is_timed: bool = False  # whether its claims or pictures depend on times, so that it runs alone

    @property
    def figures(self) -> tuple[str, ...]:
        """The names of its figures."""
        return self.figure_names or (self.name,)

    @property
    def module_name(self) -> str:
        """The name of the module that defines it."""
        return f"{EXPERIMENTS_PACKAGE}.{self.name}"

    @property
    def module(self) -> ModuleType:
        """The module that defines it, with FULL, QUICK, run and figures (see `paper.findings`)."""
        return import_module(self.module_name)


CART_POLE_FIGURES = tuple(f"figure_{number}" for number in (3, 4, 5, 6, 7, 9, 10, 11, 12))
EXPERIMENTS = (  # those that take longest first, so that no core is idle at the end
    Experiment("cart_pole_figures", CART_POLE_FIGURES),
    Experiment("convergence"),
    Experiment("figure_1"),
    Experiment("figure_2"),
    Experiment("certificates"),
    Experiment("theorem"),
    Experiment("figure_8"),
    Experiment("first_look", ("first_look", "diabetes")),
    Experiment("distance_per_second", is_timed=True),
    Experiment("convergence_boston", by_default=False),  # the package does not contain its data
    Experiment("replay_by_uncertainty", by_default=False),  # an open question of the paper, without a figure there
)
ORDER = (  # of figures in the report; figures that are not listed here follow in the order of EXPERIMENTS
    *(f"figure_{number}" for number in range(1, 13)),
    "theorem",
    "convergence",
    "convergence_boston",
    "replay_by_uncertainty",
    "first_look",
    "diabetes",
)


def selected(only: str = "") -> tuple[str, ...]:
    """Return the names of the selected figures, in the order of the report.

    Parameters
    ----------
    only
        Names of figures or experiments, separated by commas, such as "fig4, figure_8, theorem"; "" selects all that
        run by default.

    Raises
    ------
    ArgumentError
        If a name is not known.

    Examples
    --------

    >>> selected("fig 8,4")
    ('figure_4', 'figure_8')
    """
    figures_of = {e.name: e.figures for e in EXPERIMENTS} | {name: (name,) for e in EXPERIMENTS for name in e.figures}
    names = tuple(dict.fromkeys((*ORDER, *figures_of)))
    if only.strip():
        wanted = {name for word in only.split(",") for name in figures_of[_full_name(word, names)]}
    else:
        wanted = {name for e in EXPERIMENTS if e.by_default for name in e.figures}
    return tuple(name for name in names if name in wanted)


def needed(wanted: Iterable[str]) -> tuple[Experiment, ...]:
    """Return the experiments that make the figures `wanted`, in the order in which they run."""
    return tuple(e for e in EXPERIMENTS if set(e.figures) & set(wanted))


def _full_name(word: str, names: tuple[str, ...]) -> str:
    """Return the name among `names` that `word` abbreviates, such as figure_4 for "fig 4"."""
    name = re.sub(r"[\s-]+", "_", word.strip().lower())
    number = re.fullmatch(r"(?:fig(?:ure)?_?)?(\d+)", name)
    name = f"figure_{number[1]}" if number else name
    if name not in names:
        raise ArgumentError("only", f"names {word.strip()!r}, which does not exist", f"choose from {', '.join(names)}")
    return name
