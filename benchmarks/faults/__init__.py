"""Fault injection: damaged and forged files, odd tables, killed processes, full disks, dead workers.

Each kind of fault is a `Trial`: cases, and a function that checks one case in a separate process.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))  # for the module `forging`
