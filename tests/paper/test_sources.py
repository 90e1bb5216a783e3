"""A result is stale when what its experiment imports has changed, and only then."""

import shutil

import grimp

from anchored.paper.sources import PACKAGE, dependencies, source_hash

CART_POLE = "anchored.paper.experiments.cart_pole_figures"


def test_what_makes_cart_pole_stale(tmp_path):
    copy = shutil.copytree(PACKAGE, tmp_path / "anchored", ignore=shutil.ignore_patterns("__pycache__"))

    def changed(name):
        before = source_hash([CART_POLE], copy)
        with (copy / name).open("a") as file:
            file.write("# a comment\n")
        return source_hash([CART_POLE], copy) != before

    assert not changed("tables/files.py")
    assert changed("inference/anchoring.py")


def test_dependencies_are_those_of_the_import_graph():
    """As import-linter's graph has them, with the packages they lie in, whose `__init__` runs too."""
    found = {path.relative_to(PACKAGE).as_posix() for path in dependencies([CART_POLE])}
    graph = grimp.build_graph("anchored", cache_dir=None)
    for module in graph.find_upstream_modules(CART_POLE):
        path = module.removeprefix("anchored").replace(".", "/").removeprefix("/")
        assert found & {f"{path}.py", f"{path}/__init__.py", "__init__.py" if not path else ""}, module
    assert {
        "rl/__init__.py",
        "plots/__init__.py",
        "paper/experiments/cart_pole_claims.py",
    } <= found  # plots in a function
    assert not {name for name in found if name.startswith(("tables/", "cli/", "estimators/"))}


def test_what_is_not_there_has_no_files():
    assert dependencies(["anchored.nowhere", "numpy"]) == {PACKAGE / "__init__.py"}
