"""Training steps on a GPU: the library beside a bare program of a few lines, and beside a chain of matrix products.

    python benchmarks/speed_gpu.py            on a GPU
    python benchmarks/speed_gpu.py --quick    few members and epochs, on any device

The bare program is the yardstick: one stacked tree of parameters, one scan over steps, batches shared by all members,
and nothing else. The library adds lanes with their own targets, weights and learning rates, the retries of members that
diverge, and progress. Programs that are compared take turns; times are medians over --repeats.
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import reporting
from reporting import Json, Measured, interleaved, measured, seconds_of
from speed import LEARNING_RATE, N_FEATURES, N_HIDDEN, N_ROWS, NOISE_VARIANCE, PRIOR_SCALE, rows

if TYPE_CHECKING:
    from anchored.inference.posterior import MemberPosterior

SMALL_BATCH = 64
MEMBERS = (1, 10, 100, 128, 1_000, 10_000)
N_LARGE, LARGE_WIDTH, LARGE_LAYERS, LARGE_BATCH = 10, 1024, 3, 1024
PURITY = (1, 100, 1_000, 10_000)  # numbers of members whose first ten are compared
SCAN = 512  # steps in one call of the bare program


def fit(
    n_members: int, max_iter: int, X: np.ndarray, y: np.ndarray, layers: Sequence[int], batch_size: int
) -> "MemberPosterior":
    """Fit an anchored ensemble for `max_iter` epochs, with fixed settings and all that the library does in a fit."""
    import jax
    from sklearn.exceptions import ConvergenceWarning

    from anchored.inference.solvers.first_order import FirstOrder
    from anchored.methods.anchored_ensemble import AnchoredEnsemble
    from anchored.model.bayesian_model import BayesianModel
    from anchored.model.layered_prior import default_layer_scales, layered_prior
    from anchored.model.likelihoods import Gaussian
    from anchored.model.networks import MLP
    from anchored.types import Data

    data = Data(X.astype(np.float32), y[:, None].astype(np.float32), np.ones((len(y), 1), np.float32))
    network = MLP(tuple(layers), 1)
    prior = layered_prior(network, network.init(None, X[:1]), default_layer_scales(network, PRIOR_SCALE))
    model = BayesianModel(network, prior, Gaussian(np.full(1, NOISE_VARIANCE, np.float32)))
    solver = FirstOrder(learning_rate=LEARNING_RATE / len(layers) ** 3, max_iter=max_iter, batch_size=batch_size)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # training is too short on purpose
        return AnchoredEnsemble(n_members, solver=solver).fit(jax.random.key(0), model, data)


def library_step(
    n_members: int, n_epochs: int, X: np.ndarray, y: np.ndarray, layers: Sequence[int], batch: int
) -> float:
    """Return the seconds of a training step, from the difference between the times of a long and a short fit.

    `n_epochs` is the difference between their numbers of epochs.
    """
    short = -(-2 * SCAN // -(-len(y) // batch))  # after so many epochs, calls of the program have their final length
    work = partial(fit, n_members, X=X, y=y, layers=layers, batch_size=batch)
    work(short)  # compiles
    difference = seconds_of(lambda: work(short + n_epochs)) - seconds_of(lambda: work(short))
    return difference / (n_epochs * -(-len(y) // batch))


def bare_step(n_members: int, n_calls: int) -> float:
    """Return the seconds of a step of the bare program, the mean over `n_calls` calls of SCAN steps."""
    import jax
    import jax.numpy as jnp
    import optax

    X, y = (jnp.asarray(array, jnp.float32) for array in rows(N_ROWS))
    scales = {"first": PRIOR_SCALE / N_FEATURES**0.5, "bias": PRIOR_SCALE, "last": N_HIDDEN**-0.5}
    shapes = {"first": (N_FEATURES, N_HIDDEN), "bias": (1, N_HIDDEN), "last": (N_HIDDEN, 1)}
    anchors = {
        name: scales[name] * jax.random.normal(jax.random.key(i), (n_members, *shape))
        for i, (name, shape) in enumerate(shapes.items())
    }
    optimizer = optax.adam(LEARNING_RATE)

    def loss(params: dict, inputs: jax.Array, targets: jax.Array) -> jax.Array:
        outputs = jax.nn.relu(inputs @ params["first"] + params["bias"]) @ params["last"]
        penalty = sum(jnp.sum(((params[name] - anchors[name]) / scales[name]) ** 2) for name in params)
        return jnp.sum((outputs - targets) ** 2) / SMALL_BATCH + NOISE_VARIANCE / N_ROWS * penalty

    def step(carry: tuple, batch: jax.Array) -> tuple[tuple, jax.Array]:
        params, state = carry
        value, gradient = jax.value_and_grad(loss)(params, X[batch], y[batch, None])
        updates, state = optimizer.update(gradient, state, params)
        return (optax.apply_updates(params, updates), state), value

    order = jnp.asarray(np.random.default_rng(0).integers(0, N_ROWS, (SCAN, SMALL_BATCH)))
    run = jax.jit(lambda carry: jax.lax.scan(step, carry, order))
    carry, _ = jax.block_until_ready(run((anchors, optimizer.init(anchors))))  # compiles

    def calls() -> None:
        last = carry
        for _ in range(n_calls):
            last, _ = run(last)
        jax.block_until_ready(last)

    return seconds_of(calls) / (n_calls * SCAN)


def chain_step(n_members: int, width: int, n_layers: int, batch: int, n_steps: int) -> float:
    """Return the seconds of the matrix products of a step, by themselves, the mean over `n_steps` steps.

    They are those of a forward and a backward pass through square layers, for all members at once, in the precision
    that JAX uses by default. The gradient with respect to the inputs of the first layer is not needed.
    """
    import jax
    import jax.numpy as jnp

    weights = jax.random.normal(jax.random.key(0), (n_layers, n_members, width, width)) / width**0.5
    inputs = jax.random.normal(jax.random.key(1), (n_members, batch, width))

    def step(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weights, inputs = carry
        values = [inputs]
        for layer in weights:
            values.append(values[-1] @ layer)
        gradient, of_weights = values[-1], []
        for i in reversed(range(n_layers)):
            of_weights.append(jnp.swapaxes(values[i], 1, 2) @ gradient)
            gradient = gradient @ jnp.swapaxes(weights[i], 1, 2) if i > 0 else gradient
        # The small terms keep the compiler from leaving out the products, and change hardly anything
        return weights + 1e-9 * jnp.stack(of_weights[::-1]), inputs + 1e-9 * gradient

    run = jax.jit(lambda carry: jax.lax.fori_loop(0, n_steps, step, carry))
    jax.block_until_ready(run((weights, inputs)))  # compiles
    return seconds_of(lambda: jax.block_until_ready(run((weights, inputs)))) / n_steps


def small_networks(repeats: int, quick: bool) -> list[Measured]:
    """Measure a step of 13-50-1 networks, for growing numbers of members, beside the bare program."""
    from anchored.inference.solvers import blocks

    members, n_epochs, n_calls = ((1, 10), 20, 1) if quick else (MEMBERS, 2000, 20)
    X, y = rows(N_ROWS)
    ours = {f"{n:,}": partial(library_step, n, n_epochs, X, y, (N_HIDDEN,), SMALL_BATCH) for n in members}
    bare = {f"{n:,}, bare": partial(bare_step, n, n_calls) for n in members}
    seconds = interleaved(ours | bare, repeats)
    lines = []
    for n in ours:
        lines.append(measured(f"a step: {n} members", 1e6 * seconds[n], "µs", 30 if n == "100" else None))
        lines.append(measured(f"a step: {n} members, bare program", 1e6 * seconds[f"{n}, bare"], "µs"))
    goals = {f"{blocks.WIDTHS['gpu'][0]:,}": 1.3, "10,000": 1.5}
    ratios = {n: seconds[n] / seconds[f"{n}, bare"] for n in ours}
    return [*lines, *(measured(f"anchored / bare, {n} members", r, "×", goals.get(n)) for n, r in ratios.items())]


def large_networks(repeats: int, quick: bool) -> list[Measured]:
    """Measure a step of large networks, beside a chain of the same matrix products."""
    n, width, n_epochs, n_steps = (2, 16, 4, 2) if quick else (N_LARGE, LARGE_WIDTH, 500, 100)
    batch = width * LARGE_BATCH // LARGE_WIDTH
    random = np.random.default_rng(0)
    X = random.standard_normal((4 * batch, width))
    y = np.sin(X[:, 0])
    layers = (width,) * LARGE_LAYERS
    functions = {
        "anchored": partial(library_step, n, n_epochs, X, y, layers, batch),
        "matrix products": partial(chain_step, n, width, LARGE_LAYERS, batch, n_steps),
    }
    seconds = interleaved(functions, repeats)
    n_products = 3 * LARGE_LAYERS - 1
    rate = 2 * n_products * n * batch * width**2 / seconds["matrix products"]
    name = f"{n} members of {LARGE_LAYERS} layers of {width:,}, batch {batch:,}"
    return [
        measured(f"a step: {name}", 1e3 * seconds["anchored"], "ms"),
        measured(f"the same matrix products alone ({rate / 1e12:.0f} TFLOP/s)", 1e3 * seconds["matrix products"], "ms"),
        measured(
            "time of the matrix products / time of a step",
            seconds["matrix products"] / seconds["anchored"],
            "×",
            0.6,
            True,
        ),
    ]


def purity(repeats: int, quick: bool) -> list[Measured]:
    """Count those of the first ten members whose bits differ between ensembles of different sizes."""
    import jax

    X, y = rows(N_ROWS)
    sizes = (1, 12) if quick else PURITY
    by_size = []  # of each size: the parameters of the first ten members, (members, parameters)
    for n in sizes:
        leaves = jax.tree.leaves(fit(n, 40, X, y, (N_HIDDEN,), SMALL_BATCH).members)
        by_size.append(np.concatenate([leaf[:10].reshape(min(n, 10), -1) for leaf in leaves], axis=1))
    n_different = sum(np.any(members != by_size[-1][: len(members)], axis=1).sum() for members in by_size)
    names = ", ".join(f"{n:,}" for n in sizes)
    return [measured(f"members that differ between ensembles of {names}", n_different, "", 0)]


PARTS: dict[str, Callable[[int, bool], list[Measured]]] = {
    "small_networks": small_networks,
    "large_networks": large_networks,
    "purity": purity,
}


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the benchmark with the command line `arguments`; return the stored result."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="number of measurements; default: 3")
    options = parser.parse_args(arguments)
    repeats = 1 if options.quick else options.repeats
    return reporting.run_and_store("speed_gpu", options, {"repeats": repeats}, run(repeats, options.quick), tables)


def run(repeats: int, quick: bool) -> Iterator[Json]:
    """Yield the measured numbers so far, by part, each the median over `repeats`; a `quick` run is smaller."""
    import jax

    if jax.default_backend() == "cpu" and not quick:
        raise SystemExit("JAX finds no GPU on this machine; --quick runs on any device")
    results: Json = {}
    for name, part in PARTS.items():
        results[name] = part(repeats, quick)
        reporting.note(name)
        yield results


def tables(stored: Json) -> dict[str, str]:
    """Return one table of all parts in `stored`."""
    lines = [line for part in PARTS if part in stored for line in stored[part]]
    return {"speed_gpu": reporting.measured_table(stored, "python benchmarks/speed_gpu.py", lines)}


if __name__ == "__main__":
    main()
