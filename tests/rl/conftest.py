import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def little_optimisation():
    """Compile with little optimisation: these programs run for a moment, and compiling them is most of the time."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture
def full_optimisation(little_optimisation):
    """Compile as for users, where the rounding of the compiled program is part of what is tested."""
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", True)
