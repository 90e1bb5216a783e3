"""Arrays and a JSON header in one safetensors file: no pickle, written whole or not at all."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from anchored import atomic
from anchored.headers import StorageError

FORMAT = 1
ENTRY, CHECKSUM = "anchored", "checksum"  # where the header and the checksum stand in the file's metadata


def write(path: Any, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """Write a header and arrays to one file, whole or not at all."""
    from safetensors.numpy import save

    arrays = {name: np.asarray(array, order="C") for name, array in arrays.items()}
    text = json.dumps({**header, "format": FORMAT})
    atomic.write_bytes(path, save(arrays, metadata={ENTRY: text, CHECKSUM: _checksum(text, arrays)}))


def read(path: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The header and the arrays; a StorageError for anything that `write` did not write."""
    from safetensors import safe_open

    if not Path(path).is_file():
        raise FileNotFoundError(f"no file at {str(path)!r}")
    try:
        with safe_open(str(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # whatever safetensors makes of a damaged file: it has more than one error
        raise StorageError(f"{str(path)!r} is not a saved model, or is cut short: {error}") from error
    if ENTRY not in metadata:
        raise StorageError(f"{str(path)!r} is a safetensors file, but not a model saved by anchored")
    header = _parse(path, metadata[ENTRY])
    if metadata.get(CHECKSUM) != _checksum(metadata[ENTRY], arrays):
        raise StorageError(
            f"{str(path)!r} is corrupted: its contents do not match their checksum. Save the model again."
        )
    return header, arrays


def _parse(path: Any, text: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
        version = int(header["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise StorageError(f"{str(path)!r} is corrupted: its header cannot be read") from error
    if version > FORMAT:
        raise StorageError(
            f"{str(path)!r} has format {version}, newer than this anchored reads ({FORMAT}). Upgrade it."
        )
    return header


def _checksum(header: str, arrays: dict[str, np.ndarray]) -> str:
    """Of everything in the file that has a meaning."""
    digest = hashlib.blake2b(header.encode(), digest_size=16)
    for name in sorted(arrays):
        digest.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        digest.update(arrays[name].tobytes())
    return digest.hexdigest()
