"""Keep compiled programs between processes: users feel the first `fit`."""

import os
from pathlib import Path

import jax

WORTH_KEEPING = 0.05  # seconds of compilation


def use_cache() -> None:
    """Turn on JAX's compilation cache, unless somebody has set one already.

    It lies in the folder named by $ANCHORED_CACHE ("off" for none), by default in the user's cache folder.
    """
    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    folder = os.environ.get("ANCHORED_CACHE", "")
    if folder.lower() == "off":
        return
    if not folder:
        folder = str(Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anchored")
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)
