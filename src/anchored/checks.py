"""Checks of arguments, which raise an ArgumentError that names the argument."""

from collections.abc import Iterable
from importlib.util import find_spec
from numbers import Integral, Real

import numpy as np

from anchored.errors import ArgumentError, MissingPackageError


def is_real(value: object) -> bool:
    """Return whether `value` is a finite real number. A boolean does not count as a number."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and bool(np.isfinite(float(value)))


def whole(name: str, value: object, least: int = 1, alternative: str = "") -> None:
    """Raise an ArgumentError unless `value`, the argument called `name`, is a whole number of at least `least`.

    `alternative` is added to the message and says what else the caller accepts, such as "or None".
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or int(value) < least:
        requirement = f"must be a whole number of at least {least} {alternative}".rstrip()
        raise ArgumentError(name, f"{requirement}, got {value!r}")


def positive(name: str, value: object, alternative: str = "") -> None:
    """Raise an ArgumentError unless `value`, the argument called `name`, is a positive number.

    `alternative` is added to the message and says what else the caller accepts, such as "or None".
    """
    if not isinstance(value, Real) or not is_real(value) or float(value) <= 0:
        raise ArgumentError(name, f"must be a positive number {alternative}".rstrip() + f", got {value!r}")


def fraction(name: str, value: object) -> None:
    """Raise an ArgumentError unless `value`, the argument called `name`, is a number between 0 and 1, both excluded."""
    if not isinstance(value, Real) or not is_real(value) or not 0 < float(value) < 1:
        raise ArgumentError(name, f"must lie between 0 and 1, got {value!r}")


def installed(package: str, feature: str, extra: str) -> None:
    """Raise a MissingPackageError unless a package is installed. The package is not imported.

    Call this after all other checks, so that users install the package only if nothing else is wrong.

    Parameters
    ----------
    package : str
        Name of the package.
    feature : str
        What needs the package, such as the name of a class; used in the message.
    extra : str
        The optional dependency group of anchored that installs it, as in `pip install 'anchored[extra]'`.
    """
    if find_spec(package) is None:
        raise MissingPackageError(feature, package, extra)


def one_of(name: str, value: object, known: Iterable[str]) -> None:
    """Raise an ArgumentError unless `value`, the argument called `name`, is one of the strings `known`."""
    known = sorted(known)
    if not isinstance(value, str) or value not in known:
        raise ArgumentError(name, f"must be one of {known}, got {value!r}")
