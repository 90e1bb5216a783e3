"""What a setting must be: a value that cannot be used raises an error that names it."""

from collections.abc import Iterable
from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any

import numpy as np


def is_real(value: Any) -> bool:
    """Whether it is a finite number."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and bool(np.isfinite(float(value)))


def whole(name: str, value: Any, least: int = 1, alternative: str = "") -> None:
    """Raise unless `value` is a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        wanted = f"{name} must be a whole number of at least {least} {alternative}".rstrip()
        raise ValueError(f"{wanted}, got {value!r}")


def positive(name: str, value: Any, alternative: str = "") -> None:
    """Raise unless `value` is a positive number."""
    if not is_real(value) or value <= 0:
        raise ValueError(f"{name} must be a positive number {alternative}".rstrip() + f", got {value!r}")


def share(name: str, value: Any) -> None:
    """Raise unless `value` lies between 0 and 1."""
    if not is_real(value) or not 0 < value < 1:
        raise ValueError(f"{name} must lie between 0 and 1, got {value!r}")


def installed(package: str, user: str, extra: str) -> None:
    """Raise an ImportError unless `package` is there, which `extra` brings; it is not imported yet.

    Checked after everything else, so that what is left of an error is the package alone.
    """
    if find_spec(package) is None:
        raise ImportError(f"{user} needs {package}: pip install 'anchored[{extra}]'")


def one_of(name: str, value: Any, known: Iterable[str]) -> None:
    """Raise unless `value` is one of the names known."""
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{name} must be one of {sorted(known)}, got {value!r}")
