"""Forged files with a valid checksum: loading one raises an error of the library, or returns a model that predicts.

Some try to run code: each string in the header is replaced in turn by the name of a module, the canary, or by a
command. If the canary were imported or the command run, it would create a file.
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
from faults.trial import HELD, Case, Check, Trial, describe_error

MODULE = "anchored_canary"  # name of a module that creates a file when it is imported or used
CANARY_SOURCE = """
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

Forgery = tuple[str, Any, dict[str, np.ndarray]]  # description, header, arrays


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield, for each kind of file in `folder` in turn, a forgery that tries to run code, and a random edit.

    The forgeries that try to run code come to an end; the random edits, drawn with `seed`, do not.
    """
    sources: list[tuple[str, Iterator[Forgery]]] = []
    for name, (header, arrays) in {name: parts(folder / name) for name in KINDS}.items():
        sources += [(name, dangerous(header, arrays)), (name, forged(header, arrays, seed))]
    for number in itertools.count():
        for name, forgeries in sources:
            for description, header, arrays in itertools.islice(forgeries, 1):
                yield Case(f"{name}, number {number}: {description}", (name, header, arrays))


# Code


def dangerous(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Iterator[Forgery]:
    """Yield forgeries of `header` and `arrays` in which a string of the header names code."""
    if "environment" in header:
        for description, environment in _dangerous_environments(header["environment"].get("gymnasium")):
            forgery = _replaced(header, ("environment",), {"gymnasium": environment})
            yield f"environment: {description}", forgery, arrays
    for keys in [*_texts(header), ("a new field",)]:
        for name in NAMES:
            yield f"{'.'.join(map(str, keys))} = {name!r}", _replaced(header, keys, name), arrays


def _dangerous_environments(stored_description: Any) -> Iterator[tuple[str, Any]]:
    """Yield descriptions of environments that name code, in our format and as Gymnasium's specifications."""
    specification = json.loads(gymnasium.spec("CartPole-v1").to_json())
    for description, changes in _dangerous_fields():
        yield f"{description}, as text", json.dumps(specification | changes)
        yield description, specification | changes
        if isinstance(stored_description, dict):
            yield f"{description}, in our format", stored_description | changes
            yield f"{description}, as arguments", stored_description | {"kwargs": changes}


def _dangerous_fields() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield fields of a specification that name code: as the environment, as a wrapper, in its id."""
    for name in NAMES:
        yield f"entry_point = {name!r}", {"entry_point": name, "kwargs": {}}
        yield f"vector_entry_point = {name!r}", {"vector_entry_point": name}
        yield f"id = {name!r}", {"id": name, "entry_point": name}
        yield f"wrapped by {name!r}", {"additional_wrappers": [WRAPPER | {"entry_point": name}]}
    yield "a command", {"entry_point": "os:system", "kwargs": {"command": COMMAND}}
    yield "a process", {"entry_point": "subprocess:call", "kwargs": {"args": COMMAND, "shell": True}}
    yield "an expression", {"entry_point": "builtins:exec", "kwargs": {"source": f"import {MODULE}"}}


def _texts(content: Any, keys: tuple = ()) -> Iterator[tuple]:
    """Yield the path of keys that leads to each string."""
    if isinstance(content, str):
        yield keys
    elif isinstance(content, dict | list):
        for key, entry in content.items() if isinstance(content, dict) else enumerate(content):
            yield from _texts(entry, (*keys, key))


def _replaced(header: dict[str, Any], keys: tuple, value: Any) -> dict[str, Any]:
    """Return a copy of the header with another value at one path of keys."""
    new = inside = copy.deepcopy(header)
    for key in keys[:-1]:
        inside = inside[key]
    inside[keys[-1]] = value
    return new


# Checking


def start(folder: Path, scratch: Path) -> Check:
    """Make the canary in `scratch` importable, and return a check of forged files; `folder` has the original ones."""
    for name, kind in KINDS.items():  # compile the programs that the models need
        kind.predictions(kind.load(folder / name))
    (scratch / f"{MODULE}.py").write_text(CANARY_SOURCE)
    sys.path.insert(0, str(scratch))
    os.chdir(scratch)  # where a command would create its file

    def check(case: tuple[str, dict, dict]) -> str:
        name, header, arrays = case
        write_forged(scratch / "forged", header, arrays)
        failure = failure_of_loading(KINDS[name], scratch / "forged")
        fired = (scratch / "fired").exists()
        (scratch / "fired").unlink(missing_ok=True)
        sys.modules.pop(MODULE, None)
        return "code that the file names was run" if fired else failure

    return check


def failure_of_loading(kind: models.Kind, path: Path) -> str:
    """Return HELD if loading the file `path` of this `kind` raises an error of the library, or the model predicts."""
    try:
        model = kind.load(path)
    except OWN_ERRORS:
        return HELD
    except Exception as error:
        return describe_error(error)
    try:
        predictions = kind.predictions(model)
    except Exception as error:
        return f"read, and then {describe_error(error)}"
    return HELD if all(np.isfinite(values).all() for values in predictions) else "read, and predicts NaN or infinity"


TRIAL = Trial(
    "forged",
    "a forged file is refused with a clear error, or loads as a model that predicts finite numbers; none runs code",
    size=10_000,
    quick=240,
    cases=cases,
    start=start,
    prepare=models.prepare,
)
