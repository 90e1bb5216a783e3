"""Fault injection: damaged and forged files, odd tables, killed processes, full disks, dead workers.

Each kind of fault is a module with a `Trial`. Its function `cases(seed, folder)` yields the cases for a random seed;
`start(folder, scratch)`, called in a separate process, returns the function that checks a case. `folder` is shared by
all trials; `scratch` is an empty folder of that process.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))  # for the module `forging`
