"""Settings of the tests of experiments: their programs run so briefly that optimising them would take longer."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(unoptimised):
    """Compile programs without optimisation, as a quick reproduction does."""
