"""Keep trained blocks of lanes in a folder, so that a fit that was interrupted continues where it stopped.

The result of a block is a function of its inputs: random key, settings, lanes and rows. The name of its file is a hash
of them all. If the same fit is run again, it therefore finds everything that it has trained, pilot members included,
and nothing else. While a block is being trained, the file holds its state, which is replaced every few seconds.
"""

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import jax
import numpy as np

from anchored.errors import ArgumentError
from anchored.storage import archive, atomic
from anchored.storage.headers import StorageError
from anchored.trees import Tree

SECONDS_BETWEEN_STATES = 10.0  # time after which the state of a block that is being trained is stored again
SUFFIX = ".block"  # suffix of the files of blocks
ADDRESS = re.compile(r" at 0x[0-9a-f]+")  # in the `repr` of a function; it differs between processes

_folder: ContextVar[Path | None] = ContextVar("folder", default=None)


@contextmanager
def using(folder: Path | None) -> Iterator[None]:
    """Context manager in which `training.train` keeps blocks in `folder`, which must exist; None keeps nothing."""
    token = _folder.set(folder)
    try:
        yield
    finally:
        _folder.reset(token)


def current_folder() -> Path | None:
    """Return the folder of the innermost `using`, or None."""
    return _folder.get()


class ResultFile:
    """The file of a result in the folder. Its name is a hash of everything that the result depends on.

    Parameters
    ----------
    folder : Path
        The folder.
    digest : bytes
        Hash of what the result depends on so far; `depending_on` adds to it.
    """

    def __init__(self, folder: Path, digest: bytes = b""):
        self._folder, self._digest = folder, digest
        self._stored_at = time.monotonic()

    def depending_on(self, *inputs: object) -> "ResultFile":
        """Return the file of a result that also depends on `inputs`: pytrees of arrays, numbers and text."""
        digest = hashlib.blake2b(self._digest, digest_size=16)
        for leaf in jax.tree.leaves(inputs):
            if isinstance(leaf, str):
                digest.update(leaf.encode())
                continue
            array = np.asarray(leaf)
            digest.update(f"{array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return ResultFile(self._folder, digest.digest())

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self._folder / (self._digest.hex() + SUFFIX)

    def is_due(self) -> bool:
        """Return whether SECONDS_BETWEEN_STATES have passed since the last `store`, or since the start of the work."""
        return time.monotonic() - self._stored_at >= SECONDS_BETWEEN_STATES

    def store(self, result: Tree) -> None:
        """Replace the file by `result`, a pytree of arrays, in one step."""
        leaves = jax.tree.leaves(result)
        archive.write(self.path, {"leaves": len(leaves)}, {str(i): np.asarray(leaf) for i, leaf in enumerate(leaves)})
        self._stored_at = time.monotonic()

    def load(self, like: Tree) -> Tree | None:
        """Return what was stored, in the structure of the pytree `like`, or None if nothing was."""
        if not self.path.exists():
            return None
        leaves, structure = jax.tree.flatten(like)
        try:
            _, arrays = archive.read(self.path)
            return jax.tree.unflatten(structure, [arrays[str(i)] for i in range(len(leaves))])
        except (StorageError, KeyError) as error:
            remedy = "delete this file, and its members will be trained again"
            raise ArgumentError("checkpoint", f"{self.path} is damaged ({error})", remedy) from error


def result_file() -> ResultFile | None:
    """Return the file of a result in the current folder, or None if there is no such folder."""
    folder = current_folder()
    return None if folder is None else ResultFile(folder)


def described(setting: object) -> str:
    """Return the `repr` of a setting without the addresses of functions, which differ between processes."""
    return ADDRESS.sub("", repr(setting))


def remove(folder: Path) -> None:
    """Remove the files of blocks from `folder`, complete or not."""
    atomic.remove_abandoned(folder)
    for path in folder.glob(f"*{SUFFIX}"):
        path.unlink(missing_ok=True)
