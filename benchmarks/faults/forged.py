"""Forged files, with a checksum that fits: refused by an error of the library, or read as a model that predicts.

Some try to run code: they name a module of ours, or a command, in every place where a file might name one. Either would
leave a file behind.
"""

import copy
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from forging import forged, parts, write_forged

from faults import models
from faults.models import KINDS, OWN_ERRORS
from faults.trial import HELD, Case, Judge, Trial, in_words

MODULE = "anchored_canary"  # whose import, or any use of it, leaves a file
FIRES = """
from pathlib import Path

def fire(*args, **kwargs):
    Path(__file__).with_name("fired").touch()

class Fire:
    __init__ = fire

fire()
"""
NAMES = (f"{MODULE}:fire", f"{MODULE}:Fire", f"{MODULE}.fire", f"{MODULE}:Env-v0", MODULE, "os:system", "os.system")
COMMAND = "touch fired"
WRAPPER = {"name": "Fire", "kwargs": {}}

Forgery = tuple[str, Any, dict[str, np.ndarray]]  # what was done; header; arrays


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Of each kind of file in turn: one that would run code, as long as there are any, and an edit at random."""
    turns: list[tuple[str, Iterator[Forgery]]] = []
    for name, (header, arrays) in {name: parts(folder / name) for name in KINDS}.items():
        turns += [(name, dangerous(header, arrays)), (name, forged(header, arrays, seed))]
    for number in itertools.count():
        for name, forgeries in turns:
            for told, header, arrays in itertools.islice(forgeries, 1):
                yield Case(f"{name}, number {number}: {told}", (name, header, arrays))


# Code


def dangerous(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Iterator[Forgery]:
    """The file with every text of its header, in turn, naming code; an agent's first in what it says of Gymnasium."""
    if "environment" in header:
        for told, environment in _dangerous_environments(header["environment"].get("gymnasium")):
            forgery = _replaced(header, ("environment",), {"gymnasium": environment})
            yield f"environment: {told}", forgery, arrays
    for place in [*_texts(header), ("a new field",)]:
        for name in NAMES:
            yield f"{'.'.join(map(str, place))} = {name!r}", _replaced(header, place, name), arrays


def _dangerous_environments(described: Any) -> Iterator[tuple[str, Any]]:
    """What files may say of an environment, and Gymnasium's own specification as text and as an object, naming code."""
    specification = json.loads(gymnasium.spec("CartPole-v1").to_json())
    for told, changes in _dangerous_fields():
        yield f"{told}, as text", json.dumps(specification | changes)
        yield told, specification | changes
        if isinstance(described, dict):
            yield f"{told}, among its own", described | changes
            yield f"{told}, as arguments", described | {"kwargs": changes}


def _dangerous_fields() -> Iterator[tuple[str, dict[str, Any]]]:
    """Fields of a specification that name code: as the environment, as what wraps it, in its name."""
    for name in NAMES:
        yield f"entry_point = {name!r}", {"entry_point": name, "kwargs": {}}
        yield f"vector_entry_point = {name!r}", {"vector_entry_point": name}
        yield f"id = {name!r}", {"id": name, "entry_point": name}
        yield f"wrapped by {name!r}", {"additional_wrappers": [WRAPPER | {"entry_point": name}]}
    yield "a command", {"entry_point": "os:system", "kwargs": {"command": COMMAND}}
    yield "a process", {"entry_point": "subprocess:call", "kwargs": {"args": COMMAND, "shell": True}}
    yield "an expression", {"entry_point": "builtins:exec", "kwargs": {"source": f"import {MODULE}"}}


def _texts(content: Any, place: tuple = ()) -> Iterator[tuple]:
    """The keys that lead to each text."""
    if isinstance(content, str):
        yield place
    elif isinstance(content, dict | list):
        for key, entry in content.items() if isinstance(content, dict) else enumerate(content):
            yield from _texts(entry, (*place, key))


def _replaced(header: dict[str, Any], place: tuple, value: Any) -> dict[str, Any]:
    """A copy with another value in one place."""
    new = inside = copy.deepcopy(header)
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return new


# Judging


def start(folder: Path, own: Path) -> Judge:
    """Be ready to load forged files where the canary would be found."""
    for name, kind in KINDS.items():  # compile what all of them need
        kind.answers(kind.load(folder / name))
    (own / f"{MODULE}.py").write_text(FIRES)
    sys.path.insert(0, str(own))
    os.chdir(own)  # where a command would leave its file

    def judge(case: tuple[str, dict, dict]) -> str:
        name, header, arrays = case
        write_forged(own / "forged", header, arrays)
        failure = loaded(KINDS[name], own / "forged")
        fired = (own / "fired").exists()
        (own / "fired").unlink(missing_ok=True)
        sys.modules.pop(MODULE, None)
        return "code that the file names was run" if fired else failure

    return judge


def loaded(kind: models.Kind, path: Path) -> str:
    """HELD where a file is refused as it should be, or read as a model that predicts finite numbers."""
    try:
        model = kind.load(path)
    except OWN_ERRORS:
        return HELD
    except Exception as error:
        return in_words(error)
    try:
        answers = kind.answers(model)
    except Exception as error:
        return f"read, and then {in_words(error)}"
    return HELD if all(np.isfinite(answer).all() for answer in answers) else "read, and predicts NaN or infinity"


TRIAL = Trial(
    "forged",
    "a forged file is refused with a clear error, or predicts finite numbers; none runs code",
    size=10_000,
    quick=240,
    cases=cases,
    start=start,
    prepare=models.prepare,
)
