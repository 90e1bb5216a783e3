"""Several threads at work in parallel: each gets the same result as if it worked alone, bit for bit."""

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import jax
import numpy as np

import anchored
from anchored import AnchoredClassifier, AnchoredRegressor
from anchored.rl import QEnsembleAgent
from anchored.rl.environments import CartPole
from faults import models
from faults.trial import HELD, Case, Check, Trial

N_THREADS = 4
Work = Callable[[int], list[Any]]  # a task of a thread: from a random seed to numbers


def regression(seed: int) -> list[Any]:
    """Fit a regressor that chooses noise and prior, with this random `seed`, and return its predictions."""
    X = models.rows()
    settings = {**models.TINY, "prior_scale": "auto", "random_state": seed}
    predictive = AnchoredRegressor(**settings).fit(X, np.sin(X[:, 0])).predict_dist(X)
    return [predictive.mean, predictive.epistemic_variance, predictive.aleatoric_variance]


def doubles(seed: int) -> list[Any]:
    """Do the same as `regression` in float64, which JAX sets for each thread; `seed` is passed on."""
    with jax.enable_x64(True):
        return regression(seed)


def classes(seed: int) -> list[Any]:
    """Fit a classifier with this random `seed`, and return its predictions."""
    X = models.rows()
    model = AnchoredClassifier(**{**models.TINY, "random_state": seed}, temperature=0.3).fit(X, X[:, 0] > 0)
    return [model.predict_proba(X)]


def learning(seed: int) -> list[Any]:
    """Train an agent with this random `seed`, and return its members and returns."""
    agent = QEnsembleAgent(CartPole(60), seed=seed, **models.AGENT).learn(total_timesteps=80)
    return [*jax.tree.leaves(agent.train_state.members), np.array(agent.history.returns)]


def tasks(folder: Path, scratch: Path) -> dict[str, Work]:
    """Return the tasks of threads, by name; `folder` contains models to load, and `scratch` is for files to write."""
    names = itertools.count()
    shared = anchored.load(folder / "regressor")

    def predicting(seed: int) -> list[Any]:
        X = np.random.default_rng(seed).normal(size=(100 + seed % 7, 2))
        return [*shared.predict(X, return_std=True), shared.sample_y(X, 3, random_state=seed)]

    def saving(seed: int) -> list[Any]:
        path = scratch / f"model {next(names)}"
        shared.save(path)
        return models.regression_predictions(anchored.load(path))

    def saving_to_one_file(seed: int) -> list[Any]:
        shared.save(scratch / "one for all")
        return models.regression_predictions(anchored.load(scratch / "one for all"))

    listed = (regression, doubles, classes, learning, predicting, saving, saving_to_one_file)
    return {task.__name__: task for task in listed}


NAMES = ("regression", "doubles", "classes", "learning", "predicting", "saving", "saving_to_one_file")


def cases(seed: int, folder: Path) -> Iterator[Case]:
    """Yield the same task for all threads with different seeds, then mixtures of tasks, endlessly.

    `seed` is the random seed of the mixtures; `folder` is not used.
    """
    for name in NAMES:
        yield Case(f"{N_THREADS} × {name}", [(name, number) for number in range(N_THREADS)])
    for number in itertools.count():
        random = Random(f"{seed} {number}")
        mixed = [(name, random.randrange(100)) for name in random.choices(NAMES, k=N_THREADS)]
        yield Case(", ".join(f"{name} {work_seed}" for name, work_seed in mixed), mixed)


def start(folder: Path, scratch: Path) -> Check:
    """Compile all programs, and return a check that runs tasks in parallel and then one by one.

    `folder` and `scratch` are as in `tasks`.
    """
    known = tasks(folder, scratch)
    for task in known.values():
        task(0)

    def check(case: list[tuple[str, int]]) -> str:
        with ThreadPoolExecutor(len(case)) as pool:
            parallel = [thread.result() for thread in [pool.submit(known[name], seed) for name, seed in case]]
        for (name, seed), numbers in zip(case, parallel):
            if not models.same(numbers, known[name](seed)):
                return f"{name} {seed} differs from its result without other threads"
        return HELD

    return check


TRIAL = Trial(
    "threads",
    "threads that fit, predict, save and learn in parallel get the same results as a single thread, bit for bit",
    size=40,
    quick=7,
    cases=cases,
    start=start,
    prepare=models.prepare,
    seconds=120,
    megabytes=2000,
    processes=2,
)
