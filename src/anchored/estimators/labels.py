"""Class labels as JSON, and back."""

import json
from typing import Any

import numpy as np

from anchored.storage.headers import Header, is_finite_number, is_text
from anchored.storage.json_values import JsonObject

NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
TYPES = ("bool", "str", "object", *NUMBERS)
MOST_CHARACTERS = 10**7  # NumPy gives every label the room of the longest


def labels_to_json(classes: np.ndarray) -> JsonObject:
    """The labels and their type; those that JSON would change are refused."""
    labels = classes.tolist()
    dtype = "str" if classes.dtype.kind == "U" else classes.dtype.name
    try:
        same = dtype in TYPES and np.array_equal(np.array(json.loads(json.dumps(labels)), dtype), classes)
    except TypeError:
        same = False
    if not same:
        raise TypeError(f"classes of type {type(labels[0]).__name__} cannot be saved; use numbers or strings as labels")
    return {"labels": labels, "dtype": dtype}


def labels_from_json(described: Header) -> np.ndarray:
    """Two labels or more of one type, sorted."""
    described.require_only(("labels", "dtype"))
    dtype = described.text("dtype", TYPES)
    labels = described.listed("labels", _is_label, "text, numbers or truth values")
    kinds = {float if isinstance(label, int) and not isinstance(label, bool) else type(label) for label in labels}
    if len(kinds) != 1 or (dtype != "object" and kinds != {{"bool": bool, "str": str}.get(dtype, float)}):
        described.refuse(f"must be a list of labels of type {dtype}", "labels")
    if kinds == {str} and len(labels) * max(map(len, labels)) > MOST_CHARACTERS:
        described.refuse("is too long", "labels")
    try:
        classes = np.array(labels, dtype)
        is_same = classes.tolist() == labels and len(labels) > 1 and np.array_equal(np.unique(classes), classes)
    except OverflowError:
        is_same = False
    if not is_same:
        described.refuse(f"must be a list of at least two labels of type {dtype}, sorted", "labels")
    return classes


def _is_label(value: Any) -> bool:
    return isinstance(value, bool) or is_text(value) or (is_finite_number(value) and abs(value) < 2**64)
