"""ARCHITECTURE.md names every package, and nothing heavy loads before it is used."""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import grimp

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "anchored"


def modules():
    """Return all modules of the package, as paths relative to it."""
    return sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.name != "__init__.py")


def test_every_package_is_explained():
    """ARCHITECTURE.md has a line for every package and every module at the root."""
    explained = set(re.findall(r"^- `([a-z_/]+(?:\.py)?)`", (ROOT / "ARCHITECTURE.md").read_text(), re.M))
    packages = {f"{path.parts[0]}/" for path in modules() if len(path.parts) > 1}
    assert explained == packages | {path.name for path in modules() if len(path.parts) == 1}


def test_few_modules_at_the_root():
    assert len(list(PACKAGE.glob("*.py"))) <= 10


def test_the_longest_chain_of_imports_is_short():
    """It has at most 14 modules, if imports within functions and for type checking are included."""
    graph = grimp.build_graph("anchored", cache_dir=None)

    @cache
    def length(module):
        return 1 + max(map(length, graph.find_modules_directly_imported_by(module)), default=0)

    assert max(map(length, graph.modules)) <= 14


def test_init_files_only_re_export():
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent == PACKAGE:
            continue
        allowed = (ast.Expr, ast.ImportFrom, ast.Assign, ast.Try)  # `try` is for packages that may not be installed
        nodes = [node for node in ast.parse(path.read_text()).body if getattr(node, "name", "") != "__getattr__"]
        assert all(isinstance(node, allowed) for node in nodes), path  # `__getattr__` re-exports when a name is used


def test_imports_are_lazy():
    """The package loads no other library before it is used, and no plot loads reinforcement learning."""
    code = (
        "import sys, anchored\n"
        "assert not {'jax', 'sklearn', 'scipy', 'matplotlib', 'rich', 'anchored.rl'} & set(sys.modules)\n"
        "import anchored.plots\n"
        "assert 'jax' in sys.modules and 'anchored.rl' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_public_names_resolve():
    import anchored

    assert all(getattr(anchored, name) is not None for name in dir(anchored))
