"""The folder in which a fit keeps what it has trained: blocks of members, and a description of the fit."""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.base import BaseEstimator

from anchored.errors import ArgumentError
from anchored.estimators.fingerprints import fingerprint
from anchored.inference import checkpoints, workers
from anchored.storage import atomic

DESCRIPTION = "fit.json"  # name of the file with the data, arguments and versions of the fit
IRRELEVANT = ("n_jobs", "verbose", "warm_start")  # arguments on which members do not depend
ANOTHER_FOLDER = "name another folder, or delete this one to start anew"


@contextmanager
def keeping(folder: Path | str | None, estimator: BaseEstimator, data: Mapping[str, np.ndarray]) -> Iterator[None]:
    """Context manager in which everything that is trained is kept in `folder`, or taken from there.

    Parameters
    ----------
    folder : path or None
        The folder, created if there is none; None keeps nothing.
    estimator : BaseEstimator
        The estimator that is fitted.
    data : mapping of str to ndarray
        The training data, by the names of the arguments of `fit`.

    Raises
    ------
    ArgumentError
        If the folder holds a fit of other data, with other arguments or by other versions, or is not such a folder.
    """
    if folder is None:
        yield
        return
    folder = Path(folder)
    if not isinstance(estimator.random_state, int | np.integer):
        reason = "needs a seed, so that an interrupted fit can be continued with the same random numbers"
        raise ArgumentError("checkpoint", reason, "pass a number as random_state")
    _open(folder, _description(estimator, data))
    with checkpoints.using(folder.resolve()):
        yield


def remove(folder: Path) -> None:
    """Remove what `keeping` wrote to `folder`, and the folder if nothing else is in it."""
    checkpoints.remove(folder)
    (folder / DESCRIPTION).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def _open(folder: Path, description: dict[str, dict[str, str]]) -> None:
    """Create `folder` for the fit with this `description`, or check that it belongs to this fit."""
    if folder.exists() and not folder.is_dir():
        raise ArgumentError("checkpoint", f"must be a folder, but {folder} is a file")
    folder.mkdir(parents=True, exist_ok=True)
    atomic.remove_abandoned(folder)
    path = folder / DESCRIPTION
    if not path.exists():
        if any(folder.iterdir()):
            reason = f"is the folder {folder}, which contains other files and no interrupted fit"
            raise ArgumentError("checkpoint", reason, "name a new or an empty folder")
        atomic.write_text(path, json.dumps(description, indent=1))
        return
    try:
        stored = json.loads(path.read_text())
        differences = [
            f"{name} ({stored[part][name]} there, {value} here)" if part != "data" else name
            for part, values in description.items()
            for name, value in values.items()
            if stored[part].get(name, value) != value  # a library missing there was not imported, and had no influence
        ]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ArgumentError(
            "checkpoint", f"is the folder {folder}, whose {DESCRIPTION} is damaged", ANOTHER_FOLDER
        ) from error
    if differences:
        raise ArgumentError(
            "checkpoint",
            f"is the folder {folder}, which belongs to a fit with other {', '.join(differences)}",
            ANOTHER_FOLDER,
        )


def _description(estimator: BaseEstimator, data: Mapping[str, np.ndarray]) -> dict[str, dict[str, str]]:
    """Return what the members of a fit depend on: its data, its arguments, and the versions of the libraries."""
    arguments = {name: value for name, value in estimator.get_params(deep=False).items() if name not in IRRELEVANT}
    return {
        "data": {name: fingerprint(array) for name, array in data.items()},
        "arguments": {name: _described(value) for name, value in arguments.items()},
        "versions": workers.fingerprint(name for name in workers.LIBRARIES if name in sys.modules),
    }


def _described(value: object) -> str:
    """Return an argument as text: its `repr`, or for a function its name and a hash of its code."""
    if isinstance(value, tuple | list):
        return f"({', '.join(map(_described, value))})"
    code = getattr(value, "__code__", None)
    if code is None:
        return checkpoints.described(value)
    values = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
    parts = (code.co_code, code.co_names, checkpoints.described((code.co_consts, values)))
    return f"{code.co_qualname} {hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()}"
