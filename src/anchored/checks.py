"""Checks of arguments: a value that cannot be used raises an ArgumentError that names it."""

from collections.abc import Iterable
from importlib.util import find_spec
from numbers import Integral, Real

import numpy as np

from anchored.errors import ArgumentError


def is_real(value: object) -> bool:
    """Whether `value` is a finite real number; booleans are not numbers."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and bool(np.isfinite(float(value)))


def whole(name: str, value: object, least: int = 1, alternative: str = "") -> None:
    """Raise unless `value`, the argument called `name`, is a whole number of at least `least`.

    `alternative` names another value that the caller accepts, such as "or None".
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        wanted = f"must be a whole number of at least {least} {alternative}".rstrip()
        raise ArgumentError(name, f"{wanted}, got {value!r}")


def positive(name: str, value: object, alternative: str = "") -> None:
    """Raise unless `value`, the argument called `name`, is a positive number; `alternative` as for `whole`."""
    if not isinstance(value, Real) or not is_real(value) or float(value) <= 0:
        raise ArgumentError(name, f"must be a positive number {alternative}".rstrip() + f", got {value!r}")


def share(name: str, value: object) -> None:
    """Raise unless `value`, the argument called `name`, is a number between 0 and 1, both excluded."""
    if not isinstance(value, Real) or not is_real(value) or not 0 < float(value) < 1:
        raise ArgumentError(name, f"must lie between 0 and 1, got {value!r}")


def installed(package: str, user: str, extra: str) -> None:
    """Raise an ImportError unless `package` is installed, which `user` needs and the extra `extra` installs.

    The package is not imported yet. Call this after all other checks, so that an installation is all that is missing.
    """
    if find_spec(package) is None:
        raise ImportError(f"{user} needs {package}: pip install 'anchored[{extra}]'")


def one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Raise unless `value`, the argument called `name`, is one of the strings `known`."""
    known = sorted(known)
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(name, f"must be one of {known}, got {value!r}")
