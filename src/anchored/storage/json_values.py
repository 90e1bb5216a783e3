"""The values that JSON knows, and how numbers and sequences of other libraries become such values."""

from collections.abc import Sequence
from numbers import Integral, Real

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]


def json_value(value: object) -> JsonValue:
    """A number, a string, a truth value, None, or a sequence of these, of Python, NumPy or JAX, as JSON has it.

    Anything else raises a TypeError.
    """
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy and JAX
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [json_value(item) for item in value]
    raise TypeError(f"JSON has no {type(value).__name__}")
