"""Small programs that run briefly: most of their time would go into optimising them."""

import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(unoptimised):
    """As a quick reproduction does."""
