"""The list of trials, in the order in which they run."""

from faults import (
    checkpoints,
    clusters,
    damaged,
    disk,
    extremes,
    forged,
    kills,
    odd_tables,
    shapes,
    special_files,
    threads,
)

TRIALS = (
    damaged.TRIAL,
    forged.TRIAL,
    odd_tables.TRIAL,
    kills.TRIAL,
    checkpoints.TRIAL,
    disk.TRIAL,
    clusters.TRIAL,
    threads.TRIAL,
    extremes.TRIAL,
    special_files.TRIAL,
    shapes.TRIAL,
)
