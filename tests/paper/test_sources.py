"""A stored result is out of date if a file that its experiment imports has changed, and only then."""

import shutil

import grimp

from anchored.paper.sources import PACKAGE, dependencies, source_hash

CART_POLE = "anchored.paper.experiments.cart_pole_figures"


def test_only_changes_of_imported_files_change_the_hash(tmp_path):
    copy = shutil.copytree(PACKAGE, tmp_path / "anchored", ignore=shutil.ignore_patterns("__pycache__"))

    def changed(name):
        before = source_hash([CART_POLE], copy)
        with (copy / name).open("a") as file:
            file.write("# a comment\n")
        return source_hash([CART_POLE], copy) != before

    assert not changed("tables/files.py")
    assert changed("inference/anchoring.py")


def test_dependencies_are_those_of_the_import_graph():
    """They are the modules of import-linter's graph, and the `__init__` of each package that contains one."""
    found = {path.relative_to(PACKAGE).as_posix() for path in dependencies([CART_POLE])}
    graph = grimp.build_graph("anchored", cache_dir=None)
    for module in graph.find_upstream_modules(CART_POLE):
        path = module.removeprefix("anchored").replace(".", "/").removeprefix("/")
        assert found & {f"{path}.py", f"{path}/__init__.py", "__init__.py" if not path else ""}, module
    # `plots` is imported inside a function
    assert {"rl/__init__.py", "plots/__init__.py", "paper/experiments/cart_pole_claims.py"} <= found
    assert not {name for name in found if name.startswith(("tables/", "cli/", "estimators/"))}


def test_unknown_modules_have_no_files():
    assert dependencies(["anchored.nowhere", "numpy"]) == {PACKAGE / "__init__.py"}
