"""A description of the machine that a result was measured on."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

PACKAGES = (
    "anchored", "jax", "jaxlib", "numpy", "scipy", "scikit-learn", "optax", "numpyro", "matplotlib", "gymnasium",
    "torch",
)  # fmt: skip


class Machine(TypedDict):
    """The hardware and software that speed and rounding of a result depend on."""

    cpu: str  # model name of the processor
    cores: int  # number of cores that this process may use
    device: str  # JAX's default device
    python: str  # version of Python
    versions: dict[str, str]  # of the packages in PACKAGES that are installed


def machine() -> Machine:
    """Return a description of the machine that this process runs on."""
    import jax

    from anchored.inference.solvers.blocks import n_cores

    device = jax.devices()[0]
    return {
        "cpu": _processor(),
        "cores": n_cores(),
        "device": device.platform if device.platform == "cpu" else device.device_kind,
        "python": platform.python_version(),
        "versions": versions(),
    }


def describe(host: Machine) -> str:
    """Return the description of the machine `host` as one line of text."""
    packages = ", ".join(f"{name} {number}" for name, number in host["versions"].items())
    return f"{host['cpu']}, {host['cores']} cores, JAX on {host['device']}; Python {host['python']}, {packages}"


def versions() -> dict[str, str]:
    """Return the versions of the packages in PACKAGES that are installed."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    return installed


def _processor() -> str:
    """Return the model name of the CPU."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
