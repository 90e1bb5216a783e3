"""Every experiment by name, in the order they run, and every exhibit by name, in the order of the report."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from anchored.paper.experiments import (
    cart_pole_study,
    certificates,
    convergence,
    distance_per_second,
    figure_1,
    figure_2,
    figure_8,
    figures_3_to_12,
    first_look,
    replay_by_uncertainty,
    theorem,
)
from anchored.paper.experiments.exhibit import Exhibit, Progress


@dataclass(frozen=True)
class Experiment:
    """One run, which may have several exhibits."""

    name: str
    shows: tuple[str, ...]  # names of its exhibits
    config: Any
    quick: Any
    run: Callable[[Any, Progress], Any]
    exhibits: Callable[[Any, Any], tuple[Exhibit, ...]]
    by_default: bool = True

    def configured(self, quick: bool, seed: int) -> Any:
        """The configuration of a run."""
        return replace(self.quick if quick else self.config, seed=seed)


def _of(name: str, module: Any, shows: tuple[str, ...] = ()) -> Experiment:
    return Experiment(name, shows or (name,), module.Config(), module.QUICK, module.run, module.exhibits)


EXPERIMENTS = (
    _of("first_look", first_look, ("first_look", "diabetes")),
    _of("figure_1", figure_1),
    _of("figure_2", figure_2),
    Experiment(
        "cart_pole",
        tuple(f"figure_{number}" for number in figures_3_to_12.FIGURES),
        cart_pole_study.Study(),
        figures_3_to_12.QUICK,
        figures_3_to_12.run,
        figures_3_to_12.exhibits,
    ),
    _of("figure_8", figure_8),
    _of("theorem", theorem),
    _of("convergence", convergence),
    _of("certificates", certificates),
    _of("distance_per_second", distance_per_second),
    Experiment(
        "convergence_boston",
        ("convergence_boston",),
        convergence.BOSTON,
        convergence.QUICK_BOSTON,
        convergence.run,
        convergence.exhibits,
        by_default=False,  # its data are not in the package
    ),
    Experiment(
        "replay_by_uncertainty",
        ("replay_by_uncertainty",),
        replay_by_uncertainty.Setting(),
        replay_by_uncertainty.QUICK,
        replay_by_uncertainty.run,
        replay_by_uncertainty.exhibits,
        by_default=False,  # the paper asks, and shows nothing
    ),
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
    """Names of exhibits in the report's order, from "fig4, figure_8, theorem"; "" stands for all that run by default.

    >>> selected("fig 8,4")
    ('figure_4', 'figure_8')
    """
    shown = {e.name: e.shows for e in EXPERIMENTS} | {name: (name,) for e in EXPERIMENTS for name in e.shows}
    names = tuple(dict.fromkeys((*ORDER, *shown)))
    if only.strip():
        wanted = {name for word in only.split(",") for name in shown[_known(word, names)]}
    else:
        wanted = {name for e in EXPERIMENTS if e.by_default for name in e.shows}
    return tuple(name for name in names if name in wanted)


def needed(wanted: Iterable[str]) -> tuple[Experiment, ...]:
    """The experiments that show these exhibits."""
    return tuple(e for e in EXPERIMENTS if set(e.shows) & set(wanted))


def _known(word: str, names: tuple[str, ...]) -> str:
    name = re.sub(r"[\s-]+", "_", word.strip().lower())
    number = re.fullmatch(r"(?:fig(?:ure)?_?)?(\d+)", name)
    name = f"figure_{number[1]}" if number else name
    if name not in names:
        raise ValueError(f"--only: there is no {word.strip()!r}; those known are {', '.join(names)}")
    return name
