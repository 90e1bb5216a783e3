"""Benchmarks are scripts: their folder is where they import each other from."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(unoptimised):
    """As a quick reproduction does: small programs run too briefly to be worth optimising."""
