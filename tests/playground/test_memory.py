"""The server gives freed memory back."""

import subprocess
import sys
from pathlib import Path

import pytest

from anchored.playground import memory

# Threads allocate and free arrays of many sizes, as programs do; then the process says how many MB it holds in addition
CHURN = """
import importlib.util, pathlib, sys, threading
spec = importlib.util.spec_from_file_location("memory", sys.argv[1])
memory = importlib.util.module_from_spec(spec)
spec.loader.exec_module(memory)

def held():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

def work(barrier):
    for size in (2, 8, 30, 20, 8):
        block = bytearray(size * 2**20)
        barrier.wait()
        del block

if sys.argv[2] == "set":
    memory.set_thresholds()
before, barrier = held(), threading.Barrier(4)
threads = [threading.Thread(target=work, args=(barrier,)) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(held() - before)
"""


def growth(setting):
    command = [sys.executable, "-c", CHURN, memory.__file__, setting]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the memory of a process is read from /proc")
def test_freed_arrays_are_given_back():
    assert growth("set") < 10
