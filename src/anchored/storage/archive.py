"""Write and read a JSON header and named arrays as one safetensors file, without pickle."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from anchored.storage import atomic
from anchored.storage.atomic import StrPath
from anchored.storage.headers import Header, StorageError, parse

FORMAT = 4  # version of the file format
MAX_HEADER_BYTES = 2**24  # length of the JSON at the start of a safetensors file, which includes our header
MAX_ARRAYS = 2**14  # largest number of arrays in a file
DTYPES = {  # names of NumPy's types in safetensors files
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bool": "BOOL",
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
}
NOT_A_MODEL = "this is not a saved model, or is truncated"
ENTRY, CHECKSUM = "anchored", "checksum"  # keys of the header and the checksum in the file's metadata


def write(path: StrPath, header: Mapping[str, object], arrays: dict[str, np.ndarray]) -> None:
    """Write a header and arrays to a file, completely or not at all.

    Parameters
    ----------
    path : path
        File to write. An existing file is replaced.
    header : mapping
        Fields of the header, with values that JSON can hold.
    arrays : dict of str to ndarray
        The arrays by name.

    Raises
    ------
    ValueError
        If there are more arrays, or a longer header, than `read` accepts.
    OSError
        If the file cannot be written.
    """
    arrays = {name: np.asarray(array, array.dtype.newbyteorder("="), order="C") for name, array in arrays.items()}
    text = json.dumps({**header, "format": FORMAT}, allow_nan=False)
    start, names = _start(arrays, {ENTRY: text, CHECKSUM: _checksum(text, arrays)})
    if len(arrays) > MAX_ARRAYS or _header_length(start) > MAX_HEADER_BYTES:
        raise ValueError(
            f"{str(path)!r} cannot be saved: it would hold more than {MAX_ARRAYS:,} arrays or a safetensors header of "
            f"more than {MAX_HEADER_BYTES:,} bytes, which could not be read again"
        )
    # safetensors' own function copies all arrays, and the replay buffer of an agent may take gigabytes.
    with atomic.replacing(path) as temporary, open(temporary, "wb") as file:
        file.write(start)
        for name in names:
            file.write(_bytes(arrays[name]))


def read(path: StrPath) -> tuple[Header, dict[str, np.ndarray]]:
    """Read a file that `write` wrote.

    The checksum detects damage, but not forgery, so the caller must check the header and the arrays.

    Parameters
    ----------
    path : path
        File to read.

    Returns
    -------
    header : Header
        The header, whose fields are not checked yet.
    arrays : dict of str to ndarray
        The arrays by name.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    StorageError
        If the file is not a saved model, is damaged, or has another format version.
    """
    from safetensors import safe_open

    shown_path = str(path)
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file at {shown_path!r}")
    _check_length(path)
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata, names = file.metadata() or {}, file.keys()
            if len(names) > MAX_ARRAYS:
                raise ValueError(f"it holds {len(names):,} arrays; at most {MAX_ARRAYS:,} are allowed")
            arrays = {name: file.get_tensor(name) for name in names}
    except Exception as error:  # safetensors raises errors of several types for a damaged file
        raise StorageError(f"{NOT_A_MODEL}: {error}", shown_path) from error
    if ENTRY not in metadata:
        raise StorageError("this is a safetensors file, but not a model saved by anchored", shown_path)
    with reading(path):
        header = parse(metadata[ENTRY])
        _check_format(header)
    if metadata.get(CHECKSUM) != _checksum(metadata[ENTRY], arrays):
        problem = "it is corrupted: its contents do not match their checksum. Save the model again."
        raise StorageError(problem, shown_path)
    return header, arrays


@contextmanager
def reading(path: StrPath) -> Iterator[None]:
    """Context manager that adds the file's `path` to any StorageError raised in the block."""
    try:
        yield
    except StorageError as error:
        raise StorageError(error.reason, str(path)) from error


def _check_length(path: StrPath) -> None:
    """Raise a StorageError if the safetensors header is longer than allowed, before safetensors reads it."""
    with open(path, "rb") as file:
        length = _header_length(file.read(8))
    if length > MAX_HEADER_BYTES:
        raise StorageError(
            f"{NOT_A_MODEL}: its header has {length:,} bytes; at most {MAX_HEADER_BYTES:,} are allowed", str(path)
        )


def _start(arrays: dict[str, np.ndarray], metadata: dict[str, str]) -> tuple[bytes, list[str]]:
    """Return the start of a safetensors file of `arrays`, and their names in the order in which they follow it."""
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))  # so that all are aligned
    entries: dict[str, object] = {"__metadata__": metadata}
    end = 0
    for name in names:
        array, begin = arrays[name], end
        end += array.nbytes
        entries[name] = {"dtype": DTYPES[array.dtype.name], "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, names


def _bytes(array: np.ndarray) -> memoryview:
    """Return the bytes of a C-contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data


def _header_length(content: bytes) -> int:
    """Return the length in bytes of the safetensors header, which the first eight bytes of the file hold."""
    return int.from_bytes(content[:8], "little")


def _check_format(header: Header) -> None:
    """Raise a StorageError unless the file has the format version that this code reads."""
    version = header.whole("format", 1)
    if version > FORMAT:
        raise StorageError(
            f"it has format {version}, newer than this version of anchored reads ({FORMAT}). Upgrade anchored."
        )
    if version < FORMAT:
        raise StorageError(
            f"it was saved by an older version of anchored in format {version}; this version reads format {FORMAT}. "
            "Fit and save the model again."
        )


def _checksum(header: str, arrays: dict[str, np.ndarray]) -> str:
    """Return a hash of the header, and of the names, types, shapes and values of the arrays."""
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(_bytes(np.ascontiguousarray(arrays[name])))
    return digest.hexdigest()
