"""Forged files: a saved file whose header or arrays are edited, and which is written again with a valid checksum.

The functions do not use pytest, so that benchmarks can call them too.
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
Forgery = tuple[str, Any, Arrays]  # description, header (an object, or text instead of it), arrays
Edit = tuple[str, Callable[[Any, Arrays], Any]]  # description, and a function that changes header and arrays in place

VALUES: tuple[Any, ...] = (  # values that replace those of fields
    None, True, False, -1, 0, 1, 3, 0.5, -2.5, 1e-320, 1e300, 2**31, 2**63, 10**400, float("inf"), float("nan"),
    "", "x", "x" * 200_001, "../x", "os.system", [], [0], [-1.5, None], [[[]]], {}, {"x": 1}, {"tuple": [1]},
    {"class": "HMC"}, {"class": "os"}, {"own": True}, "HMC", "GaussianProcess", "adam", "set_to_zero",
    "<U200000000",
)  # fmt: skip
# Types that arrays are converted to
DTYPES = ("float16", "float32", "float64", "int8", "int32", "int64", "uint32", "bool")


def parts(path: Any) -> tuple[dict[str, Any], Arrays]:
    """Return the header of a saved file as parsed JSON, and its arrays."""
    with safe_open(str(path), framework="numpy") as file:
        return json.loads(file.metadata()[archive.ENTRY]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def write_forged(path: Any, header: Any, arrays: Arrays) -> None:
    """Write a file with a valid checksum. If `header` is text, it is written unchanged."""
    text = header if isinstance(header, str) else json.dumps(header)
    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    with open(path, "wb") as file:
        file.write(save(arrays, metadata={archive.ENTRY: text, archive.CHECKSUM: archive._checksum(text, arrays)}))


def forged(header: dict[str, Any], arrays: Arrays, random_state: int | None = None) -> Iterator[Forgery]:
    """Yield forged copies of `header` and `arrays`, each with one of the edits.

    With a `random_state`, yield without end copies with one to three random edits.
    """
    if random_state is None:
        for edit in edits(header, arrays):
            yield edited(header, arrays, [edit])
        return
    rng = np.random.default_rng(random_state)
    all_edits = list(edits(header, arrays))
    while True:
        chosen = rng.choice(len(all_edits), size=rng.choice([1, 2, 3], p=[0.8, 0.15, 0.05]), replace=False)
        yield edited(header, arrays, [all_edits[i] for i in chosen])


def edited(header: dict[str, Any], arrays: Arrays, chosen: list[Edit]) -> Forgery:
    """Return copies of `header` and `arrays` after the `chosen` edits, in order.

    An edit is skipped if an earlier one has removed the field or array that it changes. If its function returns a
    value, this is the new header.
    """
    header, arrays, descriptions = deepcopy(header), dict(arrays), []
    for description, change in chosen:
        try:
            header = change(header, arrays) or header
        except (KeyError, IndexError, TypeError, AttributeError):
            if len(chosen) == 1:
                raise
            continue
        descriptions.append(description)
    return "; ".join(descriptions), header, arrays


def edits(header: dict[str, Any], arrays: Arrays) -> Iterator[Edit]:
    """Yield all edits of the header's fields, of its text and of the arrays."""
    for path in field_paths(header):
        yield from field_edits(path, is_entry=isinstance(path[-1], int))
    yield "header: unknown field", lambda h, a: h.update(unknown=1)
    yield from text_edits()
    for name in sorted(arrays):
        yield from array_edits(name)
    yield "arrays: an extra one", lambda h, a: a.update(extra=np.zeros(3, np.float32))
    yield "arrays: an extra scalar", lambda h, a: a.update({"rows/inputs": np.zeros((3, 1), np.float32)})
    yield "arrays: none", lambda h, a: a.clear()


def field_paths(content: Any, parent: tuple = ()) -> Iterator[tuple]:
    """Yield the path of each field, a tuple of keys. Of a list, only the first and the last entry are included."""
    if isinstance(content, dict):
        keys: Any = list(content)
    else:
        keys = sorted({0, len(content) - 1}) if isinstance(content, list) and content else []
    for key in keys:
        yield (*parent, key)
        yield from field_paths(content[key], (*parent, key))


def field_edits(path: tuple, is_entry: bool) -> Iterator[Edit]:
    """Yield edits that delete, rename or replace the field at `path`, or extend it if it is a list or an object.

    An entry of a list (`is_entry`) is repeated instead of renamed.
    """
    name = "header: " + ".".join(map(str, path))
    *parent, last = path

    def container(header: Any) -> Any:
        for key in parent:
            header = header[key]
        return header

    def delete(header: Any, arrays: Arrays) -> None:
        del container(header)[last]

    def rename(header: Any, arrays: Arrays) -> None:
        fields = container(header)
        fields.append(fields[last]) if is_entry else fields.update({f"{last}x": fields.pop(last)})

    def extend(header: Any, arrays: Arrays) -> None:
        field = container(header)[last]
        field.append(field[0] if field else 1) if isinstance(field, list) else field.update(unknown=1)

    def replace(value: Any) -> Callable[[Any, Arrays], None]:
        def change(header: Any, arrays: Arrays) -> None:
            container(header)[last] = deepcopy(value)

        return change

    yield f"{name} deleted", delete
    yield f"{name} {'repeated' if is_entry else 'renamed'}", rename
    for value in VALUES:
        yield f"{name} = {_shown(value)}", replace(value)
    yield f"{name} extended", lambda h, a: extend(h, a) if isinstance(container(h)[last], list | dict) else None


def text_edits() -> Iterator[Edit]:
    """Yield edits that replace the header by text that is not a JSON object, or by one that is too large.

    The text is made of a beginning, a part that is repeated n times, and an end.
    """
    for what, (beginning, repeated, n, end) in {
        "empty": ("", "", 0, ""),
        "truncated": ("{", "", 0, ""),
        "a list": ("[]", "", 0, ""),
        "null": ("null", "", 0, ""),
        "NaN": ("NaN", "", 0, ""),
        "deep": ("", "[", 100_000, ""),
        "deep but complete": ("", '{"format":', 5000, "1" + "}" * 5000),
        "digits": ("", "9", 5000, ""),
        "long": ('{"x": "', "x", 20_000_000, '"}'),
        "many objects": ('{"x": [', "{},", 5_000_000, "1]}"),
    }.items():
        yield f"text: {what}", lambda h, a, b=beginning, r=repeated, n=n, e=end: b + r * n + e or " "
    for constant in ("NaN", "Infinity", "-1", "0", "true", "1.0", '"1"', "99", "1" + "0" * 400):
        yield f"text: format {constant[:20]}", lambda h, a, c=constant: _with_format(h, c)


def array_edits(name: str) -> Iterator[Edit]:
    """Yield edits that remove, rename, reshape or fill the array called `name`, or change its type."""

    def replaced_by(make: Callable[[np.ndarray], np.ndarray]) -> Callable[[Any, Arrays], None]:
        def change(header: Any, arrays: Arrays) -> None:
            arrays[name] = make(np.array(arrays[name]))

        return change

    yield f"array {name}: removed", lambda h, a: a.pop(name) is None
    yield f"array {name}: renamed", lambda h, a: a.update({name + "x": a.pop(name)})
    for what, make in ARRAY_CHANGES.items():
        yield f"array {name}: {what}", replaced_by(make)
    for value in (np.nan, np.inf, -np.inf, -1, 0, 1e30, -1e300):
        yield f"array {name}: first entry {value}", replaced_by(lambda array, v=value: _with_entry(array, v))
    for dtype in DTYPES:
        yield f"array {name}: as {dtype}", replaced_by(lambda array, d=dtype: _as(array, d))


ARRAY_CHANGES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "flat": np.ravel,
    "transposed": np.transpose,
    "with another axis": lambda array: array[None],
    "without the last row": lambda array: array[:-1] if array.ndim else array[None],
    "with all rows twice": lambda array: np.concatenate([np.atleast_1d(array)] * 2),
    "empty": lambda array: np.atleast_1d(array)[:0],
    "negated": lambda array: ~array if array.dtype == bool else (-array).astype(array.dtype),
    "all zero": np.zeros_like,
}


def _with_entry(array: np.ndarray, value: float) -> np.ndarray:
    """Set the first entry of the array to `value`."""
    if array.size:
        array.flat[0] = _as(np.array(value), array.dtype)
    return array


def _as(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return the array in another type, without warnings about overflow."""
    with np.errstate(all="ignore"):
        return array.astype(dtype)


def _with_format(header: dict[str, Any], text: str) -> str:
    """Return the header as JSON in which the field `format` is the unquoted `text`."""
    return json.dumps({**header, "format": "HERE"}).replace('"HERE"', text)


def _shown(value: Any) -> str:
    """Return `value` as short text."""
    return repr(value)[:40] if not isinstance(value, int) or value < 2**64 else "10**400"
