"""Types of JSON values, and conversion of Python, NumPy and JAX values to them."""

from collections.abc import Sequence
from numbers import Integral, Real

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]
JsonObject = dict[str, JsonValue]


def json_value(value: object) -> JsonValue:
    """Convert `value` to a JSON value.

    Parameters
    ----------
    value : object
        A number, a string, a boolean, None, a sequence of these, or an array of NumPy or JAX.

    Returns
    -------
    JsonValue
        The same value in built-in types. Sequences and arrays become lists.

    Raises
    ------
    TypeError
        If `value` is of any other type.
    """
    if hasattr(value, "tolist"):  # arrays and scalars of NumPy and JAX
        value = value.tolist()
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [json_value(item) for item in value]
    raise TypeError(f"a {type(value).__name__} cannot be stored as JSON")
