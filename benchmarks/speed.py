"""Speed, compared with goals: training steps (also of torch), the first fit, and options of `fit`.

    python benchmarks/speed.py                               everything; training steps need torch
    python benchmarks/speed.py --quick                       few rows and epochs; torch only if it is installed
    python benchmarks/speed.py --parts first_fit additions  some parts

Programs that are compared take turns; times are medians over --repeats.
"""

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import reporting
import uci_sets
from reporting import Json, Measured, interleaved, measured, seconds_of

if TYPE_CHECKING:
    from torch import Tensor

N_MEMBERS, N_ROWS, N_FEATURES, N_HIDDEN, BATCH = 10, 506, 13, 50, 64
STEPS_PER_EPOCH = -(-N_ROWS // BATCH)
NOISE_VARIANCE, PRIOR_SCALE, LEARNING_RATE = 0.05, 2.0, 0.03
N_FITTED = {False: 500, True: 100}  # number of rows to fit, by whether the run is quick
# Values of the arguments that the estimator chooses automatically by default
FIXED = {"noise_variance": 0.01, "prior_scale": PRIOR_SCALE, "hidden_layer_sizes": (50, 50)}
QUICK = uci_sets.QUICK  # arguments of a quick run, instead of the defaults


def rows(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return `n` random inputs, (n, N_FEATURES), and a smooth target with noise, (n,), drawn from `seed`."""
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, N_FEATURES))
    return X, np.sin(X[:, 0]) + 0.5 * X[:, 1] + 0.1 * random.standard_normal(n)


# One Adam step of ten members


def anchored_step(n_members: int, n_epochs: int = 200) -> float:
    """Return the seconds of a training step of the library, for an ensemble of `n_members`.

    It is the difference between the times of a long and a short fit, divided by the number of steps in the `n_epochs`
    epochs by which they differ.
    """
    import jax
    from sklearn.exceptions import ConvergenceWarning

    from anchored.inference.solvers.first_order import FirstOrder
    from anchored.methods.anchored_ensemble import AnchoredEnsemble
    from anchored.model.bayesian_model import BayesianModel
    from anchored.model.layered_prior import default_layer_scales, layered_prior
    from anchored.model.likelihoods import Gaussian
    from anchored.model.networks import MLP
    from anchored.types import Data

    X, y = (array.astype(np.float32) for array in rows(N_ROWS))
    data = Data(X, y[:, None], np.ones((N_ROWS, 1), np.float32))
    network = MLP((N_HIDDEN,), 1)
    prior = layered_prior(network, network.init(None, X[:1]), default_layer_scales(network, PRIOR_SCALE))
    model = BayesianModel(network, prior, Gaussian(np.full(1, NOISE_VARIANCE, np.float32)))

    def fit(max_iter: int) -> None:
        solver = FirstOrder(learning_rate=LEARNING_RATE, max_iter=max_iter, batch_size=BATCH)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # training is too short on purpose
            AnchoredEnsemble(n_members, solver=solver).fit(jax.random.key(0), model, data)

    short = 40  # number of epochs after which all calls of the compiled program run equally many epochs
    fit(short)  # compiles
    difference = seconds_of(lambda: fit(short + n_epochs)) - seconds_of(lambda: fit(short))
    return difference / (n_epochs * STEPS_PER_EPOCH)


def torch_batches(n_epochs: int) -> "Iterator[tuple[Tensor, Tensor]]":
    """Yield the batches, inputs and targets, of `n_epochs` epochs; all members share them.

    They are shuffled and of equal size, as in the library.
    """
    import torch

    X, y = (torch.tensor(array, dtype=torch.float32) for array in rows(N_ROWS))
    for _ in range(n_epochs):
        order = torch.randperm(N_ROWS)[torch.arange(STEPS_PER_EPOCH * BATCH) % N_ROWS]
        inputs, targets = X[order], y[order, None]
        yield from zip(inputs.split(BATCH), targets.split(BATCH), strict=True)


def torch_loss(
    outputs: "Tensor", targets: "Tensor", parameters: "list[Tensor]", anchors: "list[Tensor]", precisions: list[float]
) -> "Tensor":
    """Return the anchored loss (eq. 2) on a batch: mean squared errors, plus the penalty divided by the number of rows.

    `outputs` and `targets` are (batch, 1), with a leading axis of members if there are several. `parameters` and
    `anchors` are tensors of the same shapes; `precisions` are the inverse prior variances, one for each tensor.
    """
    pairs = zip(parameters, anchors, precisions, strict=True)
    penalty = sum(precision * ((parameter - anchor) ** 2).sum() for parameter, anchor, precision in pairs)
    return ((outputs - targets) ** 2).mean(-2).sum() + NOISE_VARIANCE / N_ROWS * penalty


def torch_modules() -> "Callable[[Tensor, Tensor], None]":
    """Return a training step as it is usually written: a module and an optimiser for each member, in a loop."""
    import torch
    from torch import nn

    members = []
    for _ in range(N_MEMBERS):
        module = nn.Sequential(nn.Linear(N_FEATURES, N_HIDDEN), nn.ReLU(), nn.Linear(N_HIDDEN, 1, bias=False))
        parameters = list(module.parameters())
        anchors = [parameter.detach().clone() for parameter in parameters]
        members.append((module, parameters, anchors, torch.optim.Adam(parameters, lr=LEARNING_RATE)))
    precisions = [N_FEATURES / PRIOR_SCALE**2, 1 / PRIOR_SCALE**2, N_HIDDEN]

    def step(inputs: "Tensor", targets: "Tensor") -> None:
        for module, parameters, anchors, optimizer in members:
            optimizer.zero_grad()
            torch_loss(module(inputs), targets, parameters, anchors, precisions).backward()
            optimizer.step()

    return step


def torch_stacked() -> "Callable[[Tensor, Tensor], None]":
    """Return a training step written for speed: all members in one batched product, with a fused optimiser."""
    import torch

    shapes = [(N_FEATURES, N_HIDDEN), (1, N_HIDDEN), (N_HIDDEN, 1)]
    scales = [PRIOR_SCALE / N_FEATURES**0.5, PRIOR_SCALE, N_HIDDEN**-0.5]
    anchors = [scale * torch.randn(N_MEMBERS, *shape) for shape, scale in zip(shapes, scales, strict=True)]
    parameters = [anchor.clone().requires_grad_() for anchor in anchors]
    precisions = [scale**-2 for scale in scales]
    optimizer = torch.optim.Adam(parameters, lr=LEARNING_RATE, fused=True)

    def step(inputs: "Tensor", targets: "Tensor") -> None:
        optimizer.zero_grad()
        first, bias, last = parameters
        hidden = torch.relu(torch.baddbmm(bias, inputs.expand(N_MEMBERS, *inputs.shape), first))
        torch_loss(torch.bmm(hidden, last), targets, parameters, anchors, precisions).backward()
        optimizer.step()

    return step


def torch_step(make_step: Callable, n_threads: int, n_epochs: int) -> float:
    """Return the seconds of a training step of torch: the mean over `n_epochs` epochs, after two epochs of warm-up.

    `make_step` returns the step: `torch_modules` or `torch_stacked`. Torch uses `n_threads` threads.
    """
    import torch

    torch.set_num_threads(n_threads)
    step = make_step()
    for batch in torch_batches(2):
        step(*batch)
    batches = torch_batches(n_epochs)
    return seconds_of(lambda: [step(*batch) for batch in batches]) / (n_epochs * STEPS_PER_EPOCH)


def best_threads(make_step: Callable) -> int:
    """Return the number of threads with which the step of `make_step` is fastest: one, or one for each core.

    On a busy machine two threads can be slower than one.
    """
    from anchored.inference.solvers.blocks import n_cores

    return min({1, n_cores()}, key=lambda n_threads: torch_step(make_step, n_threads, 2))


def steps(repeats: int, quick: bool) -> list[Measured]:
    """Measure training steps of the library, and of torch with its best number of threads, `repeats` times.

    The library trains a whole block of members even if only one is needed. A `quick` run is smaller, and leaves torch
    out if it is not installed.
    """
    if quick and find_spec("torch") is None:
        seconds = anchored_step(N_MEMBERS, n_epochs=50)
        return [measured("a step: anchored", 1e6 * seconds, "µs")]
    threads = {make: best_threads(make) for make in (torch_modules, torch_stacked)}
    measurements = {
        "anchored": partial(anchored_step, N_MEMBERS),
        "anchored, 1 member": partial(anchored_step, 1),
        "torch, a loop over modules": partial(torch_step, torch_modules, threads[torch_modules], 10),
        "torch, bmm and fused Adam": partial(torch_step, torch_stacked, threads[torch_stacked], 100),
    }
    seconds_by_name = interleaved(measurements, repeats)
    ours, one, modules, stacked = seconds_by_name.values()
    return [
        *[measured(f"a step: {name}", 1e6 * seconds, "µs") for name, seconds in seconds_by_name.items()],
        measured("torch, a loop over modules / anchored", modules / ours, "×", 40, at_least=True),
        measured("torch, bmm and fused Adam / anchored", stacked / ours, "×", 3, at_least=True),
        measured("anchored, 10 members / 1 member", ours / one, "×", 4),
    ]


# In separate processes


def run_child(part: str, cache: str, quick: bool) -> tuple[float, str]:
    """Run the function `part` of CHILDREN in a new process; return the seconds of that process, and what it printed.

    `cache` is the folder of its compilation cache; `quick` is passed on.
    """
    removed = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")  # an installed package has its bytecode
    environment = {name: value for name, value in os.environ.items() if name not in removed}
    environment["ANCHORED_CACHE"] = cache
    command = [sys.executable, __file__, "--child", part, *["--quick"] * quick]
    started = time.perf_counter()
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return time.perf_counter() - started, done.stdout


def first_fit(repeats: int, quick: bool) -> list[Measured]:
    """Measure import, compilation and fit of 500 rows: in a new process with an empty cache, then in a second process.

    Times are medians over `repeats`; a `quick` run is smaller.
    """

    def both() -> list[float]:
        with tempfile.TemporaryDirectory() as cache:
            return [run_child("fit", cache, quick)[0] for _ in range(2)]

    first, second = np.median([both() for _ in range(repeats)], axis=0)
    return [
        measured("first fit, fresh process, empty cache", first, "s", 7),
        measured("the same in a second process", second, "s", 4),
    ]


def child_fit(quick: bool) -> None:
    """Import the library and fit, with fewer rows if `quick`; `run_child` calls this in a new process."""
    from anchored import AnchoredRegressor

    small = FIXED | QUICK if quick else {}
    AnchoredRegressor(**small, random_state=0).fit(*rows(N_FITTED[quick]))


# Options of fit


def additions(repeats: int, quick: bool) -> list[Measured]:
    """Measure what automatic choices and a progress bar add to the time of a fit.

    Times are medians over `repeats`; a `quick` run is smaller.
    """
    from anchored import AnchoredRegressor

    n_rows, small = N_FITTED[quick], QUICK if quick else {}
    X, y = rows(n_rows)

    def fit(fixed: bool = False, verbose: int = 0) -> float:
        arguments = small | FIXED if fixed else small
        model = AnchoredRegressor(**arguments, random_state=0, verbose=verbose)
        with contextlib.redirect_stdout(io.StringIO()):
            return seconds_of(lambda: model.fit(X, y))

    # The bar is only drawn on a terminal: make the string buffer look like one.
    os.environ |= {"FORCE_COLOR": "1", "TTY_INTERACTIVE": "1", "TERM": "xterm"}
    measurements = {
        "fixed": partial(fit, fixed=True),
        "defaults": fit,
        "verbose": partial(fit, verbose=1),
    }
    interleaved(measurements, 1)  # compiles
    seconds = interleaved(measurements, repeats)
    return [
        measured(f"warm fit of {n_rows} rows, noise and prior fixed", seconds["fixed"], "s"),
        measured(f"warm fit of {n_rows} rows, defaults", seconds["defaults"], "s"),
        measured("defaults / noise and prior fixed", seconds["defaults"] / seconds["fixed"], "×", 3),
        measured("verbose=1, time added", 100 * (seconds["verbose"] / seconds["defaults"] - 1), "%", 5),
    ]


PARTS = {"steps": steps, "first_fit": first_fit, "additions": additions}
CHILDREN = {"fit": child_fit}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the parts that the command line, `arguments`, selects; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="parts to run; default: all")
    parser.add_argument("--repeats", type=int, default=5, help="number of measurements; default: 5")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        CHILDREN[options.child](options.quick)
        return {}
    settings = {"repeats": 1 if options.quick else options.repeats, "parts": options.parts}
    results = run(options.parts, settings["repeats"], options.quick)
    return reporting.run_and_store("speed", options, settings, results, tables)


def run(parts: list[str], repeats: int, quick: bool) -> Iterator[Json]:
    """Yield the measured numbers so far, by the names of the `parts`, to which `repeats` and `quick` are passed."""
    results: Json = {}
    for name in parts:
        results[name] = PARTS[name](repeats, quick)
        reporting.note(name)
        yield results


def tables(stored: Json) -> dict[str, str]:
    """Return one table of all parts in `stored`."""
    lines = [line for part in PARTS if part in stored for line in stored[part]]
    return {"speed": reporting.measured_table(stored, "python benchmarks/speed.py", lines)}


if __name__ == "__main__":
    main()
