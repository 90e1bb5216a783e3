"""The source files that a module depends on, found by parsing imports.

A stored result is out of date when one of these files has changed.
"""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]  # the folder of `anchored`


def source_hash(modules: Iterable[str], package: Path = PACKAGE) -> str:
    """Return a hash of the source files that `modules` depend on.

    Parameters
    ----------
    modules
        Full names of modules, such as `anchored.rl.agent`.
    package
        Folder of the package; by default the folder of `anchored`.
    """
    digest = hashlib.sha256()
    for path in sorted(dependencies(modules, package)):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def dependencies(modules: Iterable[str], package: Path = PACKAGE) -> set[Path]:
    """Return the files of `modules` and of everything that they import from the package.

    Indirect imports and imports inside functions are included. The arguments are as in `source_hash`.
    """
    files: set[Path] = set()
    remaining = [path for module in modules for path in _files(module, package)]
    while remaining:
        path = remaining.pop()
        if path not in files:
            files.add(path)
            remaining += [file for name in _imports(path) for file in _files(name, package)]
    return files


def _imports(path: Path) -> Iterator[str]:
    """Yield the names that a file imports; some are names of functions, not of modules."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files(name: str, package: Path) -> Iterator[Path]:
    """Yield the file of the module `name` and of each package that contains it; nothing for other names."""
    first, *parts = name.split(".")
    if first != package.name:
        return
    current = package
    yield current / "__init__.py"
    for part in parts:
        current = current / part
        path = current / "__init__.py" if current.is_dir() else current.with_suffix(".py")
        if not path.is_file():
            return
        yield path
