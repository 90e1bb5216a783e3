"""Arrays and a JSON header in one safetensors file: no pickle, written whole or not at all."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from anchored.storage import atomic
from anchored.storage.atomic import StrPath
from anchored.storage.headers import Header, StorageError, parse

FORMAT = 2
LONGEST_HEADER = 2**24  # bytes that safetensors reads as JSON; our own header is a part of them
MOST_ARRAYS = 2**14
NOT_A_MODEL = "this is not a saved model, or is cut short"
ENTRY, CHECKSUM = "anchored", "checksum"  # keys of the header and the checksum in the file's metadata


def write(path: StrPath, header: Mapping[str, object], arrays: dict[str, np.ndarray]) -> None:
    """Write a header, in JSON's types, and arrays by name to the file `path`, whole or not at all.

    A ValueError is raised if they are more than `read` accepts.
    """
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps({**header, "format": FORMAT}, allow_nan=False)
    content = save(arrays, metadata={ENTRY: text, CHECKSUM: _checksum(text, arrays)})
    if len(arrays) > MOST_ARRAYS or _header_length(content) > LONGEST_HEADER:
        raise ValueError(f"{str(path)!r} would hold more than {MOST_ARRAYS:,} arrays or too long a header to be read")
    atomic.write_bytes(path, content)


def read(path: StrPath) -> tuple[Header, dict[str, np.ndarray]]:
    """The header and the arrays by name of the file `path`; a StorageError says why it is not one that `write` wrote.

    The checksum detects damage, not forgery: the caller has to check what the header and the arrays hold.
    """
    from safetensors import safe_open

    named = str(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file at {named!r}")
    _check_length(path)
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata, names = file.metadata() or {}, file.keys()
            if len(names) > MOST_ARRAYS:
                raise ValueError(f"it holds {len(names):,} arrays, and at most {MOST_ARRAYS:,} are read")
            arrays = {name: file.get_tensor(name) for name in names}
    except Exception as error:  # whatever safetensors makes of a damaged file: it has more than one error
        raise StorageError(f"{NOT_A_MODEL}: {error}", named) from error
    if ENTRY not in metadata:
        raise StorageError("this is a safetensors file, but not a model saved by anchored", named)
    with reading(path):
        header = parse(metadata[ENTRY])
        _check_format(header)
    if metadata.get(CHECKSUM) != _checksum(metadata[ENTRY], arrays):
        raise StorageError("it is corrupted: its contents do not match their checksum. Save the model again.", named)
    return header, arrays


@contextmanager
def reading(path: StrPath) -> Iterator[None]:
    """Add the path of the file to any StorageError that the block raises."""
    try:
        yield
    except StorageError as error:
        raise StorageError(error.reason, str(path)) from error


def _check_length(path: StrPath) -> None:
    """Check the length of the part that safetensors reads as JSON, which the first eight bytes hold."""
    with open(path, "rb") as file:
        length = _header_length(file.read(8))
    if length > LONGEST_HEADER:
        raise StorageError(
            f"{NOT_A_MODEL}: its header would have {length:,} bytes, and at most {LONGEST_HEADER:,} are read",
            str(path),
        )


def _header_length(content: bytes) -> int:
    return int.from_bytes(content[:8], "little")


def _check_format(header: Header) -> None:
    version = header.whole("format", 1)
    if version > FORMAT:
        raise StorageError(f"it has format {version}, newer than this anchored reads ({FORMAT}). Upgrade anchored.")
    if version < FORMAT:
        raise StorageError(
            f"it was saved by an older version of anchored, in format {version}, and this one reads {FORMAT}. Fit and "
            "save the model again."
        )


def _checksum(header: str, arrays: dict[str, np.ndarray]) -> str:
    """A hash of everything in the file that has a meaning."""
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)  # without a copy
    return digest.hexdigest()
