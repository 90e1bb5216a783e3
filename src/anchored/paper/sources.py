"""Which source files a module depends on, found by reading them: a result is stale when one of these has changed."""

import ast
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]  # the folder of `anchored`


def source_hash(modules: Iterable[str], package: Path = PACKAGE) -> str:
    """A hash of the source of these modules (`anchored.rl.agent`) and of all that they import from the package.

    `package` is the folder of the package, where another copy than the one that runs is to be read.
    """
    found = hashlib.sha256()
    for path in sorted(dependencies(modules, package)):
        found.update(path.relative_to(package).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def dependencies(modules: Iterable[str], package: Path = PACKAGE) -> set[Path]:
    """The files of these modules and of all that they import from the package, directly or not, in functions too."""
    found: set[Path] = set()
    waiting = [path for module in modules for path in _files(module, package)]
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += [file for name in _imports(path) for file in _files(name, package)]
    return found


def _imports(path: Path) -> Iterator[str]:
    """Names that a file imports, among them names of functions, which are no modules."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _files(name: str, package: Path) -> Iterator[Path]:
    """The file of a module and those of the packages it lies in, as far as the name is one of modules."""
    first, *parts = name.split(".")
    if first != package.name:
        return
    place = package
    yield place / "__init__.py"
    for part in parts:
        place = place / part
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if not path.is_file():
            return
        yield path
