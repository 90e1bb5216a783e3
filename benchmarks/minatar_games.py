"""MinAtar: three agents in five games, ten seeds each, one million frames.

    python benchmarks/minatar_games.py                                     on a GPU
    python benchmarks/minatar_games.py --games breakout --agents DQN
    python benchmarks/minatar_games.py --checkpoint minatar.npz            can be stopped within a run
    python benchmarks/minatar_games.py --quick                             one game, two seeds, a few frames

All seeds of an agent in a game are trained in one program. Every such run is stored when it ends, and is not run again,
so the command can be stopped and repeated. The picture is written next to the stored result.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
import reporting
import rl_agents
from reporting import Json, number
from rl_agents import AGENTS, ConvolutionalQNetwork

if TYPE_CHECKING:
    from anchored.rl import RunConfig
    from anchored.rl.training import EnvState, TrainState
    from anchored.types import Array, Key, Params

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
N_SEGMENTS = 20  # parts of a run, after which progress is noted and a checkpoint is written


@dataclass(frozen=True)
class Settings:
    """What a run depends on, besides its game and agent."""

    n_frames: int  # of each seed
    n_seeds: int
    n_evaluated: int = 100  # greedy episodes of each seed, at the end
    n_filters: int = 16  # of the convolution, as in Young and Tian (2019)
    n_units: int = 128  # of the hidden layer, as in Young and Tian (2019)


class Row(TypedDict):
    """All seeds of one agent in one game."""

    game: str
    agent: str
    greedy: list[float]  # mean return of the greedy episodes of each seed
    curve: list[list[float | None]]  # for each seed and segment, mean return of episodes that ended; None if none did
    seconds: float  # of training and evaluation, with compilation


def main(arguments: Sequence[str] | None = None) -> Json:
    """Run the games that the command line, `arguments`, selects and that are not stored yet, and draw the picture."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES), help="default: all")
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=list(AGENTS), help="default: all")
    parser.add_argument("--frames", type=int, default=1_000_000, help="number of frames of a run; default: 1,000,000")
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds; default: 10")
    parser.add_argument("--checkpoint", type=Path, help="file to continue a run from that was stopped; default: none")
    options = parser.parse_args(arguments)
    settings = Settings(options.frames, options.seeds)
    if options.quick:
        options.games = ["breakout"]
        settings = Settings(n_frames=160, n_seeds=2, n_evaluated=2, n_filters=2, n_units=4)
    path = options.out or (None if options.quick else reporting.RESULTS / "minatar_games.json")
    stored_settings = {**asdict(settings), **rl_agents.settings(**agent_arguments(options.quick))}
    results = run(options, settings, reporting.stored_rows(path, stored_settings))
    stored = reporting.run_and_store("minatar_games", options, stored_settings, results, tables)
    if path is not None and stored["rows"]:
        draw(stored["rows"], settings.n_frames, path.with_suffix(".png"))
    return stored


def agent_arguments(quick: bool) -> dict[str, int]:
    """Return the arguments of all agents that differ from the defaults of `QEnsembleAgent`, besides the network."""
    return {"n_estimators": 2, "buffer_size": 100, "learning_starts": 20, "batch_size": 8} if quick else {}


def run(options: argparse.Namespace, settings: Settings, known: Sequence[Row]) -> Iterator[Json]:
    """Yield the rows so far, in the order of the table; rows in `known` are not run again."""
    rows = list(known)
    yield {"rows": rows}
    for game in options.games:
        for agent in options.agents:
            if (game, agent) not in [(row["game"], row["agent"]) for row in rows]:
                rows.append(play(options, settings, game, agent))
                reporting.note(f"{game}, {agent}: greedy {_mean_and_error(rows[-1])}, {rows[-1]['seconds']:.0f} s")
                rows.sort(key=lambda row: (GAMES.index(row["game"]), AGENTS.index(row["agent"])))
                yield {"rows": rows}


def play(options: argparse.Namespace, settings: Settings, game: str, agent: str) -> Row:
    """Train all seeds of `agent` in `game`, in one program for each segment, and evaluate them."""
    started, arguments = time.perf_counter(), agent_arguments(options.quick)
    config = configuration(settings, game, agent, **arguments)
    keys = jax.vmap(jax.random.key)(jnp.arange(settings.n_seeds))
    name = f"{game}, {agent}, {settings}, {rl_agents.settings(**arguments)}"
    start = _Progress(_start(config, keys), [], np.zeros(settings.n_seeds), 0.0)
    progress = read_checkpoint(options.checkpoint, name, start)
    started -= progress.seconds
    while len(progress.curve) < N_SEGMENTS:
        states, rewards, done = _train(config, progress.states)
        means, unfinished = mean_returns(np.asarray(rewards), np.asarray(done), progress.unfinished)
        progress = _Progress(states, [*progress.curve, means], unfinished, time.perf_counter() - started)
        average = np.mean([mean for mean in means if mean is not None] or np.nan)
        part = f"{len(progress.curve)}/{N_SEGMENTS}"
        reporting.note(f"{game}, {agent}, {part}: mean return {average:.2f}, {progress.seconds:.0f} s")
        write_checkpoint(options.checkpoint, name, progress)
    greedy = np.asarray(_evaluate(config, keys, progress.states[0].members.params, settings.n_evaluated))
    return {
        "game": game,
        "agent": agent,
        "greedy": greedy.mean(1).tolist(),
        "curve": [list(by_segment) for by_segment in zip(*progress.curve, strict=True)],
        "seconds": time.perf_counter() - started,
    }


def configuration(settings: Settings, game: str, agent: str, **arguments: int) -> "RunConfig":
    """Return the configuration of one segment of a run; `arguments` are passed to `QEnsembleAgent`."""
    from anchored.rl import RunConfig, environments

    env = getattr(environments, game.title().replace("_", ""))()
    network = ConvolutionalQNetwork(settings.n_filters, settings.n_units, env.n_actions)
    learner = rl_agents.make_agent(agent, env, 0, network=network, **arguments)
    return RunConfig(env, learner.config, settings.n_frames // learner.config.train_freq // N_SEGMENTS)


class _Progress(NamedTuple):
    """The state of a run after some segments."""

    states: "tuple[TrainState, EnvState]"  # with a leading axis of seeds
    curve: list[list[float | None]]  # for each segment and seed, mean return of the episodes that ended
    unfinished: np.ndarray  # (seeds,), return so far of the current episode
    seconds: float  # since the start


@jax.jit
def _start(config: "RunConfig", keys: "Key") -> "tuple[TrainState, EnvState]":
    """Return the states of all seeds before training."""
    from anchored.rl import training

    return jax.vmap(training.init, in_axes=(0, None))(keys, config)


@partial(jax.jit, donate_argnums=1)
def _train(
    config: "RunConfig", states: "tuple[TrainState, EnvState]"
) -> "tuple[tuple[TrainState, EnvState], Array, Array]":
    """Train all seeds for one segment; return the states, and reward and end of each step, (seeds, steps)."""
    from anchored.rl import training

    def rollout(states: tuple, _: None) -> tuple:
        train_state, env_state, log = training.rollout_and_update(config, *states)
        return (train_state, env_state), (log.reward, log.done)

    def segment(states: tuple) -> tuple:
        states, (rewards, done) = jax.lax.scan(rollout, states, None, length=config.n_rollouts)
        return states, rewards.ravel(), done.ravel()

    return jax.vmap(segment)(states)


@partial(jax.jit, static_argnums=3)
def _evaluate(config: "RunConfig", keys: "Key", params: "Params", n_episodes: int) -> "Array":
    """Return the returns of greedy episodes, (seeds, n_episodes)."""
    from anchored.rl import training

    def seed(key: "Key", params: "Params") -> "Array":
        return training.play_episodes(key, config.environment, config.agent.greedy, params, n_episodes)[0]

    return jax.vmap(seed)(keys, params)


def mean_returns(
    rewards: np.ndarray, done: np.ndarray, unfinished: np.ndarray
) -> tuple[list[float | None], np.ndarray]:
    """Return the mean return of the episodes of each seed that end in a segment, and the returns of unfinished ones.

    Parameters
    ----------
    rewards, done
        Reward of each step, and whether it was the last of its episode, (seeds, steps) each.
    unfinished
        Return, before the segment, of the episode that each seed is in, (seeds,).
    """
    totals = unfinished[:, None] + np.cumsum(rewards, 1, dtype=float)
    means: list[float | None] = []
    for total, is_last in zip(totals, done, strict=True):
        means.append(float(total[is_last][-1] / is_last.sum()) if is_last.any() else None)
    last = [total[-1] - (total[is_last][-1] if is_last.any() else 0) for total, is_last in zip(totals, done)]
    return means, np.array(last)


def write_checkpoint(path: Path | None, name: str, progress: _Progress) -> None:
    """Write the progress of the run called `name` to the file `path`, if there is one."""
    from anchored.storage import atomic

    if path is None:
        return
    arrays = {f"leaf_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(_plain(progress.states)))}
    curve = np.array(progress.curve, float)  # with NaN for None
    content = BytesIO()
    np.savez(content, name=name, curve=curve, unfinished=progress.unfinished, seconds=progress.seconds, **arrays)
    atomic.write_bytes(path, content.getvalue())


def read_checkpoint(path: Path | None, name: str, start: _Progress) -> _Progress:
    """Return the progress of the run called `name` in the file `path`; `start` if there is none."""
    if path is None or not path.exists():
        return start
    with np.load(path) as stored:
        if str(stored["name"]) != name:
            return start
        leaves, structure = jax.tree.flatten(_plain(start.states))
        states = jax.tree.unflatten(structure, [jnp.asarray(stored[f"leaf_{i}"]) for i in range(len(leaves))])
        curve = [[None if np.isnan(mean) else mean for mean in means] for means in stored["curve"].tolist()]
        train_state, env_state = states
        train_state = train_state._replace(key=jax.random.wrap_key_data(train_state.key))
        return _Progress((train_state, env_state), curve, stored["unfinished"], float(stored["seconds"]))


def _plain(states: "tuple[TrainState, EnvState]") -> "tuple[TrainState, EnvState]":
    """Return the states with their random keys as integers."""
    train_state, env_state = states
    return train_state._replace(key=jax.random.key_data(train_state.key)), env_state


def tables(stored: Json) -> dict[str, str]:
    """Return the table of greedy returns in `stored`: mean over seeds ± standard error."""
    cells: dict[str, dict[str, str]] = {}
    for row in stored["rows"]:
        cells.setdefault(row["game"], {})[row["agent"]] = _mean_and_error(row)
    agents = [agent for agent in AGENTS if any(agent in by_agent for by_agent in cells.values())]
    rows = [
        (game.replace("_", " "), *(by_agent.get(agent, "") for agent in agents)) for game, by_agent in cells.items()
    ]
    return {"minatar": reporting.table(stored, "python benchmarks/minatar_games.py", ("game", *agents), rows)}


def _mean_and_error(row: Row) -> str:
    """Return the mean over seeds of the greedy return ± its standard error."""
    seeds = row["greedy"]
    error = f" ± {stdev(seeds) / len(seeds) ** 0.5:.1f}" if len(seeds) > 1 else ""
    return number(fmean(seeds), 1) + error


def draw(rows: Sequence[Row], n_frames: int, path: Path) -> None:
    """Draw the mean return during training, over seeds with standard errors, into the PNG file `path`."""
    import matplotlib.pyplot as plt

    from anchored.plots import as_png
    from anchored.storage import atomic

    games = list(dict.fromkeys(row["game"] for row in rows))
    figure, axes = plt.subplots(
        1, len(games), figsize=(2.6 * len(games) + 0.6, 2.8), layout="constrained", squeeze=False
    )
    frames = (np.arange(N_SEGMENTS) + 0.5) / N_SEGMENTS * n_frames
    for ax, game in zip(axes[0], games, strict=True):
        for row in (row for row in rows if row["game"] == game):
            curve = np.array(row["curve"], float)
            color = f"C{AGENTS.index(row['agent'])}"
            mean, error = curve.mean(0), curve.std(0, ddof=min(1, len(curve) - 1)) / len(curve) ** 0.5
            ax.plot(frames, mean, color=color, label=row["agent"])
            ax.fill_between(frames, mean - error, mean + error, color=color, alpha=0.2)
        ax.set(title=game.replace("_", " "), xlabel="frames", ylim=(0, None))
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("return of training episodes")
    axes[0, -1].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic.write_bytes(path, as_png(figure))


if __name__ == "__main__":
    main()
