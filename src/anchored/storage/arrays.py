"""Check the arrays of a file before anything is built from them.

A StorageError that names the array is raised if it is missing or not expected, has the wrong shape or type, or holds
numbers out of range.
"""

from typing import NoReturn

import numpy as np

from anchored.storage.headers import StorageError

FLOATS, WHOLES = ("float32", "float64"), ("int32", "int64")  # names of data types
MAX_FLOAT = float(np.finfo(np.float64).max)  # the largest finite number


class Arrays:
    """The arrays of a file. `take` checks and returns an array; `require_no_more` raises if one was never taken.

    Parameters
    ----------
    content : dict of str to ndarray
        The arrays by name.
    """

    def __init__(self, content: dict[str, np.ndarray]):
        self._content = content
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def __len__(self) -> int:
        return len(self._content)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of the array called `name`. Raises a StorageError if there is none."""
        if name not in self._content:
            raise StorageError(f"array {name!r} is missing")
        return self._content[name].shape

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """Return the shapes of all arrays whose names begin with `prefix`, by their names without it."""
        return {n.removeprefix(prefix): a.shape for n, a in self._content.items() if n.startswith(prefix)}

    def take(
        self,
        name: str,
        shape: tuple[int | None, ...],
        dtypes: tuple[str, ...] = FLOATS,
        least: float = -MAX_FLOAT,
        most: float = MAX_FLOAT,
        finite: bool = True,
    ) -> np.ndarray:
        """Check the array called `name`, mark it as taken and return it.

        Parameters
        ----------
        name : str
            Name of the array.
        shape : tuple of int or None
            The shape that it must have. None allows any length of an axis.
        dtypes : tuple of str
            Names of the data types that it may have.
        least, most : float
            Smallest and largest value that it may contain.
        finite : bool
            Whether its values must be finite and between `least` and `most`. If False, they are not checked.

        Returns
        -------
        ndarray
            The array.

        Raises
        ------
        StorageError
            If the array is missing or fails a check.
        """
        found = self.shape(name)
        if len(found) != len(shape) or any(n not in (None, m) for m, n in zip(found, shape, strict=True)):
            required = ", ".join("any" if n is None else str(n) for n in shape)
            self.refuse(name, f"must have the shape ({required}), not {found}")
        array = self._content[name]
        if array.dtype.name not in dtypes:
            self.refuse(name, f"must be of type {' or '.join(dtypes)}, not {array.dtype.name}")
        if finite and array.size and not (least <= float(array.min()) and float(array.max()) <= most):  # false for NaN
            self.refuse(name, f"must hold finite numbers from {least:g} to {most:g}")
        self._taken.add(name)
        return array

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raise a StorageError about the array called `name`. `why` is the rest of the sentence, after the name."""
        raise StorageError(f"array {name!r} {why}")

    def require_no_more(self) -> None:
        """Raise a StorageError if the file holds an array that has not been taken."""
        for name in sorted(self._content):
            if name not in self._taken:
                self.refuse(name[:100], "is not known")
