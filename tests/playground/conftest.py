"""Settings of the tests of the playground, which share the browser of the benchmark."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
