"""The playground in a real browser: time to the first posterior, from drop to redraw, and 200 random actions.

    python benchmarks/playground.py
    python benchmarks/playground.py --quick         few actions, one page
    python benchmarks/playground.py --pictures      only the pictures of the documents

It needs Chromium, its driver and Selenium. Times from drop to redraw run from the release of the mouse button until the
browser has drawn the reference, on the clock of the page.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import browser
import numpy as np
import reporting
from browser import WATCH, Browser
from reporting import Json, measured

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
COMMAND = "python benchmarks/playground.py"
MEGABYTE = 2**20
PICTURES = (("curves", False), ("curves", True), ("planes", False), ("cartpole", True))  # page, and whether it is dark


class Served:
    """A running `anchored playground`.

    Attributes
    ----------
    address : str
        URL of the server.
    started : float
        Time of `time.perf_counter` when the command was called.
    """

    def __init__(self, cache: str, log: Path):
        self.log = log
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "anchored", "playground", "--port", "0", "--no-browser"],
            env=os.environ | {"ANCHORED_CACHE": cache, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().split()[2].rstrip(";")

    def memory(self) -> float:
        """Return the memory of the server, in bytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(1024 * float(line.split()[1]) for line in lines if line.startswith("VmRSS"))

    def errors(self) -> list[str]:
        """Return what the server has written to standard error."""
        return self.log.read_text().splitlines()


@contextmanager
def served(cache: str) -> Iterator[Served]:
    """Context manager that runs `anchored playground`, which keeps compiled programs in the folder `cache`."""
    with tempfile.TemporaryDirectory() as folder:
        server = Served(cache, Path(folder) / "errors")
        try:
            yield server
        finally:
            server.process.terminate()
            server.process.wait(90)


def first_posterior(cache: str, visitor: Browser) -> float:
    """Return the seconds from the command until the first posterior is on the page."""
    with served(cache) as server:
        visitor.open(f"{server.address}/curves")
        visitor.until_said("Shown")
        return time.perf_counter() - server.started


def redraws(visitor: Browser, actions: list, figure: str = "right") -> list[float]:
    """Return the milliseconds from the release of the mouse until `figure` is redrawn, for each of `actions`."""
    visitor.script(WATCH, figure, -2)
    times = []
    for action in actions:
        visitor.script("window.redrawn = []; window.released = []")
        action()
        visitor.until(lambda: visitor.script("return window.redrawn.length > 0"))
        times.append(visitor.script("return window.redrawn[0] - window.released.at(-1)"))
        visitor.until_said("Shown")
        time.sleep(0.3)
    return times


def drags(visitor: Browser, n: int) -> list:
    """Return `n` actions, each of which drags the first point to another place."""

    def drag() -> None:
        data = visitor.source("left")
        rng = np.random.default_rng(int(1e6 * abs(data["y"][0])))
        visitor.drag("left", (data["x"][0], data["y"][0]), (-1.5 + rng.uniform(-0.3, 0.3), rng.uniform(-1.2, 1.2)))

    return [drag] * n


def latencies(server: Served, visitor: Browser, n: int) -> dict[str, list[float]]:
    """Return the milliseconds from release to redraw of drags, full refits and drags with a closed form."""
    visitor.open(f"{server.address}/curves")
    visitor.until_said("Shown")
    visitor.until(lambda: "computed" not in visitor.read("numbers"), 180)  # programs for further points are compiled
    result = {"continued": redraws(visitor, drags(visitor, n))}
    result["anew"] = redraws(visitor, [lambda: visitor.click("anew")] * n)
    visitor.change("trainable", value="last_layer")
    visitor.until_said("closed form")
    time.sleep(2)
    result["closed form"] = redraws(visitor, drags(visitor, n))
    return result


def frames_per_second(server: Served, visitor: Browser, seconds: float) -> float:
    """Return the number of pictures of CartPole per second while the agent learns."""
    visitor.open(f"{server.address}/cartpole")
    visitor.until_said("Press Learn", 120)
    visitor.change("mode", active=1)
    visitor.until_said("Learning:", 120)
    time.sleep(3)
    visitor.script(WATCH, "cart", 2)
    started = visitor.script("return performance.now()")
    time.sleep(seconds)
    n, now = visitor.script("return [window.redrawn.length, performance.now()]")
    return 1000 * n / (now - started)


def random_action(visitor: Browser, rng: np.random.Generator) -> None:
    """Do one random action on the page of curves or of planes."""
    kind = rng.choice(["add", "drag", "delete", "control", "preset", "button"])
    data = visitor.source("left")
    place = rng.uniform(-2.3, 2.3, 2)
    if kind == "add" or not data["x"]:
        visitor.click_at("left", *place)
    elif kind in ("drag", "delete"):
        i = int(rng.integers(len(data["x"])))
        visitor.drag("left", (data["x"][i], data["y"][i]), tuple(place))
        if kind == "delete":
            visitor.press("\ue003")
    elif kind == "control":
        name, value = [("noise", 0.3), ("noise", 0.1), ("n_members", 20), ("n_members", 10), ("prior_scale", 3.0)][
            rng.integers(5)
        ]
        if visitor.read(name, "value") is not None:
            visitor.change(name, value=value, value_throttled=value)
    elif kind == "preset":
        names = [option[0] for option in visitor.read("preset", "options")]
        visitor.change("preset", value=str(rng.choice(names)))
    else:
        visitor.click("anew")
    time.sleep(float(rng.uniform(0, 0.3)))


def play(server: Served, visitor: Browser, n: int) -> Json:
    """Do `n` random actions on both pages of points, and return errors and the growth of the server's memory."""
    rng = np.random.default_rng(0)
    visitor.errors()
    before = None
    for number in range(n):
        if number % 20 == 0:
            page = ("/curves", "/planes")[number // 20 % 2]
            visitor.open(server.address + page)
            visitor.until_said("Shown")
            if number == 40 or n <= 40:
                before = server.memory()  # both pages have been visited once
        random_action(visitor, rng)
    time.sleep(12)  # until pages that were left have been forgotten
    grown = server.memory() - (before or server.memory())
    return {"actions": n, "grown": grown, "console": visitor.errors(), "server": server.errors()}


def run(options: argparse.Namespace) -> Iterator[Json]:
    """Yield the results so far."""
    n_drags, n_actions, seconds = (2, 10, 2) if options.quick else (15, 200, 15)
    with tempfile.TemporaryDirectory() as cache, Browser() as visitor:
        result: Json = {}
        if not options.quick:
            result["first"] = {"cold": first_posterior(cache, visitor), "warm": first_posterior(cache, visitor)}
            yield result
        with served(os.environ.get("ANCHORED_CACHE", cache) if options.quick else cache) as server:
            result["latencies"] = latencies(server, visitor, n_drags)
            yield result
            result["play"] = play(server, visitor, n_actions)
            yield result
            if not options.quick:
                result["frames"] = frames_per_second(server, visitor, seconds)
            yield result


def tables(stored: Json) -> dict[str, str]:
    """Return the table of the documents."""
    lines = []
    if "first" in stored:
        lines += [
            measured("from the command to the first posterior, nothing compiled", stored["first"]["cold"], "s", 8),
            measured("the same, with cached programs", stored["first"]["warm"], "s", 4),
        ]
    if "latencies" in stored:
        goals = {"continued": 300, "closed form": 300, "anew": 1500}
        words = {
            "continued": "from drop to redraw, members continue",
            "closed form": "from drop to redraw, last layer in closed form",
            "anew": "from click to redraw, “Fit anew”",
        }
        lines += [
            measured(words[name], float(np.median(stored["latencies"][name])), "ms", goal)
            for name, goal in goals.items()
        ]
    if "frames" in stored:
        lines.append(measured("pictures of CartPole while it learns", stored["frames"], "per second", 20, True))
    if "play" in stored:
        found = stored["play"]
        n_errors = len(found["console"]) + len(found["server"])
        lines += [
            measured(f"errors in the console and of the server in {found['actions']} random actions", n_errors, "", 0),
            measured("growth of the server's memory", found["grown"] / MEGABYTE, "MB", 50),
        ]
    return {"playground": reporting.measured_table(stored, COMMAND, lines)}


def draw_pictures(folder: Path) -> None:
    """Write the pictures of the documents, 1,400 pixels wide."""
    with served(os.environ.get("ANCHORED_CACHE", "")) as server:
        for page, is_dark in PICTURES:
            with Browser(1400, 900, is_dark) as visitor:
                visitor.open(f"{server.address}/{page}")
                visitor.until(lambda: any(word in (visitor.read("status") or "") for word in ("Shown", "Press Learn")))
                if page == "curves":
                    visitor.until(lambda: "computed" not in visitor.read("numbers"))
                if page == "cartpole":
                    visitor.change("speed", value="16")
                    visitor.change("mode", active=1)
                    visitor.until(lambda: len(visitor.source("curve", 0)["x"]) > 60, 120)
                time.sleep(1)
                visitor.picture(folder / f"playground_{page}_{'dark' if is_dark else 'light'}.png")


def main() -> None:
    """Run the benchmark, or draw the pictures."""
    parser = reporting.parser_of(__doc__)
    parser.add_argument("--pictures", action="store_true", help="draw the pictures of the documents, and nothing else")
    options = parser.parse_args()
    if browser.why_unavailable():
        parser.error(browser.why_unavailable())
    if options.pictures:
        draw_pictures(IMAGES)
    else:
        reporting.run_and_store("playground", options, {}, run(options), tables)


if __name__ == "__main__":
    main()
