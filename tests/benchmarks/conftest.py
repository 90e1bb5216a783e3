"""Benchmarks are scripts: their folder is where they import each other from."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from anchored.paper.reproduction import compiling_quickly


@pytest.fixture(scope="session", autouse=True)
def quick_compilation():
    """As a quick reproduction does: small programs run too briefly to be worth optimising."""
    with compiling_quickly():
        yield
