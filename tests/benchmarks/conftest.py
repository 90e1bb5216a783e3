"""Settings of the tests of benchmarks, which are scripts that import each other from their folder."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(unoptimised):
    """Compile programs without optimisation: they run so briefly that optimising them would take longer."""
