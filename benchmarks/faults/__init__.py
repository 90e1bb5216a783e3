"""Fault injection: damaged and forged files, odd tables, killed processes, full disks, dead workers.

Each kind of fault is tested by a trial: a module with a `Trial` object, the constant TRIAL. Its function
`cases(seed, folder)` yields the cases, which are single faults drawn with the random seed `seed`. Its function
`start(folder, scratch)` is called in a separate process and returns the check: a function that tests a case, and
returns HELD or a description of what went wrong. `folder` is shared by all trials; `scratch` is an empty folder of that
process.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests"))  # for the module `forging`
