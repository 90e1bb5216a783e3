"""Every experiment by name, in the order they run, and every figure by name, in the order of the report.

An experiment has the name of its module in `paper.experiments`, which is imported when it is needed.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType

EXPERIMENTS_PACKAGE = "anchored.paper.experiments"


@dataclass(frozen=True)
class Experiment:
    """One run, which may have several figures."""

    name: str
    own_figures: tuple[str, ...] = ()  # names of its figures; none: one, with its own name
    by_default: bool = True

    @property
    def figures(self) -> tuple[str, ...]:
        """Names of its figures."""
        return self.own_figures or (self.name,)

    @property
    def module_name(self) -> str:
        """Where it is defined."""
        return f"{EXPERIMENTS_PACKAGE}.{self.name}"

    @property
    def module(self) -> ModuleType:
        """The module with FULL, QUICK, run and figures (see `paper.findings`)."""
        return import_module(self.module_name)


CART_POLE_FIGURES = tuple(f"figure_{number}" for number in (3, 4, 5, 6, 7, 9, 10, 11, 12))
EXPERIMENTS = (
    Experiment("first_look", ("first_look", "diabetes")),
    Experiment("figure_1"),
    Experiment("figure_2"),
    Experiment("cart_pole_figures", CART_POLE_FIGURES),
    Experiment("figure_8"),
    Experiment("theorem"),
    Experiment("convergence"),
    Experiment("certificates"),
    Experiment("distance_per_second"),
    Experiment("convergence_boston", by_default=False),  # its data are not in the package
    Experiment("replay_by_uncertainty", by_default=False),  # the paper asks, and shows nothing
)
ORDER = (  # of the report; others follow as they run
    *(f"figure_{number}" for number in range(1, 13)),
    "theorem",
    "convergence",
    "convergence_boston",
    "replay_by_uncertainty",
    "first_look",
    "diabetes",
)


def selected(only: str = "") -> tuple[str, ...]:
    """Names of figures in the report's order, from "fig4, figure_8, theorem"; "" stands for all that run by default.

    Raises ValueError if a name is not known.

    >>> selected("fig 8,4")
    ('figure_4', 'figure_8')
    """
    figures_of = {e.name: e.figures for e in EXPERIMENTS} | {name: (name,) for e in EXPERIMENTS for name in e.figures}
    names = tuple(dict.fromkeys((*ORDER, *figures_of)))
    if only.strip():
        wanted = {name for word in only.split(",") for name in figures_of[_known(word, names)]}
    else:
        wanted = {name for e in EXPERIMENTS if e.by_default for name in e.figures}
    return tuple(name for name in names if name in wanted)


def needed(wanted: Iterable[str]) -> tuple[Experiment, ...]:
    """The experiments that make these figures, in the order they run."""
    return tuple(e for e in EXPERIMENTS if set(e.figures) & set(wanted))


def _known(word: str, names: tuple[str, ...]) -> str:
    name = re.sub(r"[\s-]+", "_", word.strip().lower())
    number = re.fullmatch(r"(?:fig(?:ure)?_?)?(\d+)", name)
    name = f"figure_{number[1]}" if number else name
    if name not in names:
        raise ValueError(f"--only: there is no {word.strip()!r}; those known are {', '.join(names)}")
    return name
