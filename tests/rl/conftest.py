"""These programs run for a moment, and compiling them is most of the time."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def little_optimisation(unoptimised):
    """Compile with little optimisation."""


@pytest.fixture
def full_optimisation(compiled_as_for_users):
    """Compile with all of it, where the rounding of the compiled program is part of what is tested."""
