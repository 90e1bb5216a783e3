"""Small programs that run briefly: most of their time would go into optimising them."""

import pytest

from anchored.paper.reproduction import compiling_quickly


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """As a quick reproduction does."""
    with compiling_quickly():
        yield
