"""Each file imports only what ARCHITECTURE.md lists above it, and nothing heavy loads before it is used."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "anchored"


def layers():
    """Modules in the order of ARCHITECTURE.md's list, as (path within the package)."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    block = re.search(r"```text\n(.*?)```", text, re.S).group(1)
    return [line.split()[0] for line in block.splitlines() if line.strip() and not line.startswith("#")]


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("anchored"):
            base = node.module.split(".")[1:]
            for alias in node.names:
                yield [*base, alias.name]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1:] for a in node.names if a.name.startswith("anchored"))


def as_file(parts):
    """The file that an import reaches: the longest prefix that is a module."""
    for n in range(len(parts), 0, -1):
        path = PACKAGE.joinpath(*parts[:n]).with_suffix(".py")
        if path.exists():
            return path.relative_to(PACKAGE).as_posix()
    return None


def test_every_module_has_a_place():
    files = {p.relative_to(PACKAGE).as_posix() for p in PACKAGE.rglob("*.py") if p.name != "__init__.py"}
    assert files == set(layers())


def test_imports_point_upwards():
    order = {name: i for i, name in enumerate(layers())}
    wrong = []
    for name, place in order.items():
        for parts in imported_modules(PACKAGE / name):
            target = as_file(parts)
            if target is not None and order[target] >= place:
                wrong.append(f"{name} imports {target}")
    assert not wrong


def test_init_files_only_re_export():
    for path in PACKAGE.rglob("__init__.py"):
        if path.parent == PACKAGE:
            continue
        allowed = (ast.Expr, ast.ImportFrom, ast.Assign)
        assert all(isinstance(node, allowed) for node in ast.parse(path.read_text()).body), path


def test_import_is_lazy():
    code = "import sys, anchored; print(sorted({'jax', 'sklearn', 'scipy', 'matplotlib', 'rich'} & set(sys.modules)))"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
    )


def test_public_names_resolve():
    import anchored

    assert all(getattr(anchored, name) is not None for name in dir(anchored))
