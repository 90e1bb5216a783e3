"""Write class labels as JSON, and read them back."""

import json

import numpy as np

from anchored.storage.headers import Header, is_finite_number, is_text
from anchored.storage.json_values import JsonObject, JsonValue

NUMBER_DTYPES = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
DTYPES = ("bool", "str", "object", *NUMBER_DTYPES)  # NumPy data types of labels that can be saved
MAX_CHARACTERS = 10**7  # largest size of all labels together, each padded by NumPy to the length of the longest


def labels_to_json(classes: np.ndarray) -> JsonObject:
    """Return the labels `classes`, (classes,), and their data type as JSON.

    Raises a TypeError if they could not be read back from JSON unchanged.
    """
    labels = classes.tolist()
    dtype = "str" if classes.dtype.kind == "U" else classes.dtype.name
    try:
        is_same = dtype in DTYPES and np.array_equal(np.array(json.loads(json.dumps(labels)), dtype), classes)
    except TypeError:
        is_same = False
    if not is_same:
        raise TypeError(f"classes of type {type(labels[0]).__name__} cannot be saved; use numbers or strings as labels")
    return {"labels": labels, "dtype": dtype}


def labels_from_json(header: Header) -> np.ndarray:
    """Return the labels, (classes,), that `labels_to_json` wrote to `header`.

    A field that is invalid raises a StorageError, which names it.
    """
    header.require_only(("labels", "dtype"))
    dtype = header.text("dtype", DTYPES)
    labels = header.listed("labels", _is_label, "text, numbers or booleans")
    kinds = {float if isinstance(label, int) and not isinstance(label, bool) else type(label) for label in labels}
    if len(kinds) != 1 or (dtype != "object" and kinds != {{"bool": bool, "str": str}.get(dtype, float)}):
        header.refuse(f"must be a list of labels of type {dtype}", "labels")
    if kinds == {str} and len(labels) * max(map(len, labels)) > MAX_CHARACTERS:
        header.refuse("is too long", "labels")
    try:
        classes = np.array(labels, dtype)
        is_same = classes.tolist() == labels and len(labels) > 1 and np.array_equal(np.unique(classes), classes)
    except OverflowError:
        is_same = False
    if not is_same:
        header.refuse(f"must be a sorted list of at least two different labels of type {dtype}", "labels")
    return classes


def _is_label(value: JsonValue) -> bool:
    """Return whether `value` can be a label: a string, a boolean, or a number whose absolute value is below 2**64."""
    is_number = isinstance(value, int | float) and is_finite_number(value) and abs(value) < 2**64
    return isinstance(value, bool) or is_text(value) or is_number
