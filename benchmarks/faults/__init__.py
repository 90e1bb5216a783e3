"""Faults on purpose: files that are damaged or forged, odd tables, killed processes, full disks, dead workers.

Each kind of trial is a `Trial`: cases, and a function that judges one of them in a process apart.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))  # which forge files in the same way
