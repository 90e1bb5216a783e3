"""Faults on purpose: files that are damaged or forged, odd tables, killed processes, full disks, dead workers.

Each kind of trial is a `Trial`: cases, and a function that judges one of them in a process apart.
"""
