"""Forge saved files: edits of a header and of arrays, and a file written of them with its checksum made anew.

Plain functions, without pytest, for the tests and for longer runs.
"""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save

from anchored.storage import archive

Arrays = dict[str, np.ndarray]
Forgery = tuple[str, Any, Arrays]  # what was done; the header, an object or JSON text; the arrays

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 3, 0.5, -2.5, 1e-320, 1e300, 2**31, 2**63, 10**400, float("inf"), float("nan"),
    "", "x", "x" * 200_001, "../x", "os.system", [], [0], [-1.5, None], [[[]]], {}, {"x": 1}, {"tuple": [1]},
    {"settings": "HMC"}, {"settings": "os"}, {"own": True}, "HMC", "GaussianProcess", "adam", "set_to_zero",
    "<U200000000",
)  # fmt: skip
DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint32", "bool")


def parts(path: Any) -> tuple[dict[str, Any], Arrays]:
    """A saved file's header as JSON has it, and its arrays."""
    with safe_open(str(path), framework="numpy") as file:
        return json.loads(file.metadata()[archive.ENTRY]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write_forged(path: Any, header: Any, arrays: Arrays) -> None:
    """Write a file whose checksum is right; a header that is text stands as it is."""
    text = header if isinstance(header, str) else json.dumps(header)
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with open(path, "wb") as file:
        file.write(save(arrays, metadata={archive.ENTRY: text, archive.CHECKSUM: archive._checksum(text, arrays)}))


def forged(header: dict[str, Any], arrays: Arrays, random_state: int | None = None) -> Iterator[Forgery]:
    """Forged headers and arrays, each a copy: every single edit once, in order.

    With a `random_state` there is no end: edits at random, up to three at a time.
    """
    if random_state is None:
        for edit in edits(header, arrays):
            yield edited(header, arrays, [edit])
        return
    rng = np.random.default_rng(random_state)
    known = list(edits(header, arrays))
    while True:
        chosen = rng.choice(len(known), size=rng.choice([1, 2, 3], p=[0.8, 0.15, 0.05]), replace=False)
        yield edited(header, arrays, [known[i] for i in chosen])


Edit = tuple[str, Callable[[Any, Arrays], Any]]  # what it does; changes both in place, gives a header that is new


def edited(header: dict[str, Any], arrays: Arrays, chosen: list[Edit]) -> Forgery:
    """Copies with some edits made, one after the other; one that the others have left no place for is passed over."""
    header, arrays, done = deepcopy(header), dict(arrays), []
    for what, change in chosen:
        try:
            header = change(header, arrays) or header
        except (KeyError, IndexError, TypeError, AttributeError):
            if len(chosen) == 1:
                raise
            continue
        done.append(what)
    return "; ".join(done), header, arrays


def edits(header: dict[str, Any], arrays: Arrays) -> Iterator[Edit]:
    """All single edits of the header's fields, of its text and of the arrays."""
    for place in places(header):
        yield from field_edits(place, is_entry=isinstance(place[-1], int))
    yield "header: unknown field", lambda h, a: h.update(unknown=1)
    yield from text_edits()
    for name in sorted(arrays):
        yield from array_edits(name)
    yield "arrays: an extra one", lambda h, a: a.update(extra=np.zeros(3, np.float32))
    yield "arrays: an extra scalar", lambda h, a: a.update({"rows/inputs": np.zeros((3, 1), np.float32)})
    yield "arrays: none", lambda h, a: a.clear()


def places(content: Any, above: tuple = ()) -> Iterator[tuple]:
    """The keys that lead to each field; of a list, to its first and last entry."""
    if isinstance(content, dict):
        keys: Any = list(content)
    else:
        keys = sorted({0, len(content) - 1}) if isinstance(content, list) and content else []
    for key in keys:
        yield (*above, key)
        yield from places(content[key], (*above, key))


def field_edits(place: tuple, is_entry: bool) -> Iterator[Edit]:
    """Delete, rename or replace one field."""
    named = "header: " + ".".join(map(str, place))
    *above, last = place

    def owner(header: Any) -> Any:
        for key in above:
            header = header[key]
        return header

    def delete(header: Any, arrays: Arrays) -> None:
        del owner(header)[last]

    def rename(header: Any, arrays: Arrays) -> None:
        inside = owner(header)
        inside.append(inside[last]) if is_entry else inside.update({f"{last}x": inside.pop(last)})

    def extend(header: Any, arrays: Arrays) -> None:
        inside = owner(header)[last]
        inside.append(inside[0] if inside else 1) if isinstance(inside, list) else inside.update(unknown=1)

    def replace(value: Any) -> Callable[[Any, Arrays], None]:
        def change(header: Any, arrays: Arrays) -> None:
            owner(header)[last] = deepcopy(value)

        return change

    yield f"{named} deleted", delete
    yield f"{named} {'repeated' if is_entry else 'renamed'}", rename
    for value in VALUES:
        yield f"{named} = {_shown(value)}", replace(value)
    yield f"{named} extended", lambda h, a: extend(h, a) if isinstance(owner(h)[last], list | dict) else None


def text_edits() -> Iterator[Edit]:
    """Headers that are not JSON, or not an object, or too much of it."""
    for what, (before, repeated, n, after) in {
        "empty": ("", "", 0, ""),
        "cut short": ("{", "", 0, ""),
        "a list": ("[]", "", 0, ""),
        "null": ("null", "", 0, ""),
        "NaN": ("NaN", "", 0, ""),
        "deep": ("", "[", 100_000, ""),
        "deep and whole": ("", '{"format":', 5000, "1" + "}" * 5000),
        "digits": ("", "9", 5000, ""),
        "long": ('{"x": "', "x", 20_000_000, '"}'),
        "many objects": ('{"x": [', "{},", 5_000_000, "1]}"),
    }.items():
        yield f"text: {what}", lambda h, a, b=before, r=repeated, n=n, e=after: b + r * n + e or " "
    for constant in ("NaN", "Infinity", "-1", "0", "true", "1.0", '"1"', "99", "1" + "0" * 400):
        yield f"text: format {constant[:20]}", lambda h, a, c=constant: _with_format(h, c)


def array_edits(name: str) -> Iterator[Edit]:
    """Drop, rename, reshape or fill one array, or change its type."""

    def made(make: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any, Arrays], None]:
        def change(header: Any, arrays: Arrays) -> None:
            arrays[name] = make(np.array(arrays[name]))

        return change

    yield f"array {name}: dropped", lambda h, a: a.pop(name) is None
    yield f"array {name}: renamed", lambda h, a: a.update({name + "x": a.pop(name)})
    for what, make in FORMS.items():
        yield f"array {name}: {what}", made(make)
    for value in (np.nan, np.inf, -np.inf, -1, 0, 1e30, -1e300):
        yield f"array {name}: one entry {value}", made(lambda array, v=value: _with_entry(array, v))
    for dtype in DTYPES:
        yield f"array {name}: as {dtype}", made(lambda array, d=dtype: _as(array, d))


FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "flat": np.ravel,
    "transposed": np.transpose,
    "with an axis more": lambda array: array[None],
    "one row short": lambda array: array[:-1] if array.ndim else array[None],
    "one row more": lambda array: np.concatenate([np.atleast_1d(array)] * 2),
    "empty": lambda array: np.atleast_1d(array)[:0],
    "negated": lambda array: ~array if array.dtype == bool else (-array).astype(array.dtype),
    "all zero": np.zeros_like,
}


def _with_entry(array: np.ndarray, value: float) -> np.ndarray:
    if array.size:
        array.flat[0] = _as(np.array(value), array.dtype)
    return array


def _as(array: np.ndarray, dtype: Any) -> np.ndarray:
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _with_format(header: dict[str, Any], text: str) -> str:
    return json.dumps({**header, "format": "HERE"}).replace('"HERE"', text)


def _shown(value: Any) -> str:
    return repr(value)[:40] if not isinstance(value, int) or value < 2**64 else "10**400"
