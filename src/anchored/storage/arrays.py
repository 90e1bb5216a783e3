"""Take a file's arrays by name, shape and type, before anything is built from them.

As for its header: an array that is missing, has another shape or type than expected, holds numbers out of range, or is
never taken raises a StorageError that names it.
"""

from typing import NoReturn

import numpy as np

from anchored.storage.headers import StorageError

FLOATS, WHOLES = ("float32", "float64"), ("int32", "int64")
LARGEST = float(np.finfo(np.float64).max)


class Arrays:
    """Arrays of a file, `content` by name, that are checked as they are taken one by one."""

    def __init__(self, content: dict[str, np.ndarray]):
        self._content = content
        self._taken: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._content

    def __len__(self) -> int:
        return len(self._content)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of the array called `name`, which must be there."""
        if name not in self._content:
            raise StorageError(f"array {name!r} is missing")
        return self._content[name].shape

    def shapes(self, prefix: str) -> dict[str, tuple[int, ...]]:
        """The shapes of all arrays whose names begin with `prefix`, by the rest of their names."""
        return {n.removeprefix(prefix): a.shape for n, a in self._content.items() if n.startswith(prefix)}

    def take(
        self,
        name: str,
        shape: tuple[int | None, ...],
        dtypes: tuple[str, ...] = FLOATS,
        least: float = -LARGEST,
        most: float = LARGEST,
        finite: bool = True,
    ) -> np.ndarray:
        """The array called `name`, marked as taken.

        Parameters
        ----------
        name : of the array
        shape : that it must have; None stands for any length
        dtypes : names of the types that it may have
        least, most : range of its entries, which must be finite
        finite : False accepts any entries

        """
        found = self.shape(name)
        if len(found) != len(shape) or any(n not in (None, m) for m, n in zip(found, shape, strict=True)):
            wanted = ", ".join("any" if n is None else str(n) for n in shape)
            self.refuse(name, f"must have the shape ({wanted}), not {found}")
        array = self._content[name]
        if array.dtype.name not in dtypes:
            self.refuse(name, f"must be of type {' or '.join(dtypes)}, not {array.dtype.name}")
        if finite and array.size and not (least <= float(array.min()) and float(array.max()) <= most):  # false for NaN
            self.refuse(name, f"must hold finite numbers from {least:g} to {most:g}")
        self._taken.add(name)
        return array

    def refuse(self, name: str, why: str) -> NoReturn:
        """Raise a StorageError that says what is wrong with the array called `name`."""
        raise StorageError(f"array {name!r} {why}")

    def require_no_more(self) -> None:
        """Raise unless all arrays have been taken."""
        for name in sorted(self._content):
            if name not in self._taken:
                self.refuse(name[:100], "is not known")
