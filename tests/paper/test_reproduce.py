"""`anchored reproduce`: names of figures, stored results, failures, interrupted runs, verdicts, and the report."""

import base64
import contextlib
import html
import io
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from test_html_page import read
from typer.testing import CliRunner

from anchored.cli import app, bench
from anchored.cli import reproduce as command
from anchored.cli.console import Output
from anchored.paper import catalogue, report, reproduction
from anchored.paper.experiments import figure_2, figure_8, first_look
from anchored.paper.findings import WORDS, Claim, Figure, Verdict, above, below, verdict_of, within
from anchored.paper.machine import describe, machine
from anchored.paper.reproduction import Result

CHEAP = ("--quick", "--only", "fig8,first_look,diabetes")
MACHINE = {"cpu": "a machine", "cores": 2, "device": "cpu", "python": "3", "versions": {}}
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def run(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)], catch_exceptions=False)


def without_times(page):
    return re.sub(r'<span class="time">.*?</span>', "", page)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a complete run of two experiments with three figures."""
    folder = tmp_path_factory.mktemp("whole")
    done = run(*CHEAP, "--out", folder)
    assert done.exit_code == 0, done.output
    assert "report: " in done.output
    return folder


@pytest.fixture(scope="module")
def every_figure(whole):
    """A page with every figure of the catalogue, of which most have the picture of figure 8, and their names."""
    folder = whole
    real = [reproduction.load(path) for path in sorted((folder / "results").iterdir())]
    borrowed = {figure.name: figure for result in real for figure in result.figures}
    assert set(borrowed) == {"figure_8", "first_look", "diabetes"}
    results = list(real)
    for experiment in catalogue.EXPERIMENTS:
        missing = [name for name in experiment.figures if name not in borrowed]
        like = borrowed["figure_8"]
        figures = tuple(
            replace(like, name=name, title=f"This is {name}", description=f"{name}: {like.description}")
            for name in missing
        )
        if missing:
            config = reproduction.asdict(experiment.module.FULL)
            results.append(Result(experiment.name, False, 0, config, MACHINE, "2026", 1.5, "", figures))
    names = tuple(name for experiment in catalogue.EXPERIMENTS for name in experiment.figures)
    return report.page(results, catalogue.selected(",".join(names)), quick=False), names


@pytest.mark.parametrize(
    ("only", "names"),
    [
        ("fig4", ["figure_4"]),
        (" Figure-12,3", ["figure_3", "figure_12"]),
        ("theorem,figure_1", ["figure_1", "theorem"]),
        ("diabetes,first_look", ["first_look", "diabetes"]),
        ("cart_pole_figures", [f"figure_{n}" for n in (3, 4, 5, 6, 7, 9, 10, 11, 12)]),
    ],
)
def test_names_of_figures(only, names):
    assert catalogue.selected(only) == tuple(names)
    assert {e.name for e in catalogue.needed(names)} <= {e.name for e in catalogue.EXPERIMENTS}


def test_all_figures_of_the_paper_are_made_by_default():
    everything = catalogue.selected()
    assert [name for name in everything if name.startswith("figure_")] == [f"figure_{n}" for n in range(1, 13)]
    assert {"theorem", "convergence", "certificates", "distance_per_second"} <= set(everything)
    assert {"convergence_boston", "replay_by_uncertainty"}.isdisjoint(everything)
    assert set(catalogue.selected("convergence_boston")) == {"convergence_boston"}


def test_the_error_of_an_unknown_name_lists_the_known_ones(tmp_path):
    done = run("--only", "fig13", "--out", tmp_path / "report")
    assert done.exit_code == 2
    assert "--only names 'fig13'" in done.output and "figure_12" in done.output and "theorem" in done.output
    assert not (tmp_path / "report").exists()


def test_a_folder_that_cannot_be_made_is_an_error_before_anything_runs(tmp_path):
    (tmp_path / "report").touch()
    done = run("--out", tmp_path / "report")
    assert done.exit_code == 2 and str(tmp_path / "report") in done.output


def test_both_configurations_of_an_experiment_have_one_class_and_a_seed():
    for experiment in catalogue.EXPERIMENTS:
        quick, full = experiment.module.QUICK, experiment.module.FULL
        assert type(quick) is type(full) and quick.seed == full.seed == 0
        assert reproduction.fingerprint(experiment, True, 3) != reproduction.fingerprint(experiment, True, 0)


def test_a_rerun_uses_stored_results(whole):
    folder = whole
    stored = {path: path.stat().st_mtime_ns for path in folder.rglob("result*/**/*")}
    page = (folder / "index.html").read_text()
    done = run(*CHEAP, "--out", folder)
    assert done.output.count("as stored") == 2
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("result*/**/*")} == stored
    assert (folder / "index.html").read_text() == page


def test_a_rerun_shows_only_the_selected_figures(whole, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    done = run("--quick", "--only", "diabetes", "--out", folder)
    assert "first_look computes its 2 figures together" in done.output
    assert "as stored" in done.output
    ids = {attributes.get("id") for _, attributes, _ in read((folder / "index.html").read_text()).found}
    assert "diabetes" in ids and {"first_look", "figure_8"}.isdisjoint(ids)


def drawn_at_once(results):
    """Return bytes in place of figure 8's picture, which depend on the results."""
    return b"\x89PNG" + repr(results["cases"]["exact"]["sample_error"]).encode()


def test_seed_damage_and_code_make_an_experiment_run_again(tmp_path, monkeypatch):
    monkeypatch.setattr(figure_8, "draw", drawn_at_once)
    only_figure_8 = ("--quick", "--only", "fig8", "--out", tmp_path)
    path = tmp_path / "results" / "figure_8_quick" / "result.json"

    def fingerprint():
        done = run(*only_figure_8)
        assert done.exit_code == 0
        return json.loads(path.read_text())["fingerprint"], "as stored" in done.output

    first, stored = fingerprint()
    assert not stored and fingerprint() == (first, True)
    page = (tmp_path / "index.html").read_text()
    assert run(*only_figure_8, "--seed", 1).exit_code == 0
    assert json.loads(path.read_text())["fingerprint"] != first
    assert without_times((tmp_path / "index.html").read_text()) != without_times(page)
    assert fingerprint() == (first, False)
    path.write_text(path.read_text()[:100])  # truncated, for example by a full disk
    assert fingerprint() == (first, False)
    (picture,) = path.parent.glob("figure_8-*.png")
    picture.unlink()
    assert fingerprint() == (first, False)
    assert sorted(path.parent.iterdir()) == sorted([path, picture])
    monkeypatch.setattr(reproduction, "_source", lambda experiment: "other code")
    changed, stored = fingerprint()
    assert changed != first and not stored
    assert without_times((tmp_path / "index.html").read_text()) == without_times(page)


def test_an_interrupted_run_continues_to_the_same_page(whole, tmp_path, monkeypatch):
    """It is interrupted after one of two experiments; benchmarks/faults kills processes at any time."""

    def cut(config, on_progress):
        raise KeyboardInterrupt

    for path in whole.rglob("figure_8_quick"):  # stored before the interruption
        shutil.copytree(path, tmp_path / path.relative_to(whole))
    with monkeypatch.context() as patch:
        patch.setattr(first_look, "run", cut)
        done = run(*CHEAP, "--out", tmp_path)
        assert done.exit_code == 130 and "the same command resumes from here" in done.output
    shutil.copytree(whole / "results" / "first_look_quick", tmp_path / "results" / "first_look_quick")
    assert run(*CHEAP, "--out", tmp_path).output.count("as stored") == 2
    ours, theirs = ((path / "index.html").read_text() for path in (tmp_path, whole))
    assert without_times(ours) == without_times(theirs)
    assert not list(tmp_path.rglob(".*"))  # no temporary file is left


def test_an_interruption_ends_the_experiments_in_other_threads(tmp_path, monkeypatch):
    has_started, is_ended = threading.Event(), threading.Event()

    def interrupt(config, on_progress):
        assert has_started.wait(60)
        raise KeyboardInterrupt

    def run_for_long(config, on_progress):
        has_started.set()
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                on_progress(0.0)
            except BaseException:
                is_ended.set()
                raise
            time.sleep(0.01)

    monkeypatch.setattr(first_look, "run", interrupt)
    monkeypatch.setattr(figure_8, "run", run_for_long)
    assert run(*CHEAP, "--out", tmp_path).exit_code == 130
    assert is_ended.is_set() and not list(tmp_path.rglob("result.json"))


def result_of(seed, *pictures):
    """Return a result with these bytes as `pictures`."""
    figures = tuple(Figure(f"figure_{i}", "", "", picture, "") for i, picture in enumerate(pictures))
    return Result("study", True, seed, {}, MACHINE, "2026", 1.0, f"of seed {seed}", figures)


class Crash:
    """A machine that stops after `n_calls` calls that change the disk."""

    def __init__(self, n_calls, monkeypatch):
        self.n_left = n_calls
        for name in ("open", "replace", "unlink", "fsync", "fchmod"):
            monkeypatch.setattr(os, name, self.counted(getattr(os, name)))

    def counted(self, call):
        def counted(*arguments, **keywords):
            self.n_left -= 1
            if self.n_left < 0:
                raise KeyboardInterrupt
            return call(*arguments, **keywords)

        return counted


def test_a_crash_at_any_step_leaves_the_old_result_or_the_new(tmp_path, monkeypatch):
    old, new, later = result_of(0, b"old", b"same", b"more"), result_of(1, b"new", b"same"), result_of(2, b"later")
    found, is_whole = [], False
    while not is_whole:
        reproduction.save(old, tmp_path)
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            crash = Crash(len(found), patch)
            reproduction.save(new, tmp_path)
        is_whole = crash.n_left >= 0
        found.append(reproduction.load(tmp_path))
        reproduction.save(later, tmp_path)
        assert reproduction.load(tmp_path) == later
        assert len(os.listdir(tmp_path)) == 2  # a picture and result.json; temporary files are removed
    n_old = found.count(old)
    assert 0 < n_old < len(found) and found == [old] * n_old + [new] * (len(found) - n_old)


def test_a_damaged_result_is_none(tmp_path):
    reproduction.save(result_of(0, b"one", b"two"), tmp_path)
    for path in tmp_path.iterdir():
        whole = path.read_bytes()
        path.write_bytes(whole[:-2])
        assert reproduction.load(tmp_path) is None
        path.unlink()
        assert reproduction.load(tmp_path) is None
        path.write_bytes(whole)
        assert reproduction.load(tmp_path) is not None


FORGED = ["5", "null", "[]", '"x"', "{}", '{"figures": ["x"]}', '{"figures": [5]}', '{"figures": 5}', "[" * 100_000]


@pytest.mark.parametrize("text", FORGED, ids=lambda text: text[:20])
def test_a_forged_result_is_none(tmp_path, text):
    (tmp_path / "result.json").write_text(text)
    assert reproduction.load(tmp_path) is None


def test_only_pictures_in_the_folder_of_the_result_are_opened(tmp_path):
    """Reading a pipe would block, and reading /dev/zero would fill the memory."""
    reproduction.save(result_of(0, b"one"), tmp_path)
    path = tmp_path / "result.json"
    result = json.loads(path.read_text())
    picture = tmp_path / result["figures"][0]["picture"]
    shutil.copy(picture, tmp_path.parent / picture.name)
    for name in ("/dev/zero", str(picture), f"../{picture.name}", f"./{picture.name}", "result.json", "", 5, None):
        result["figures"][0]["picture"] = name
        path.write_text(json.dumps(result))
        assert reproduction.load(tmp_path) is None
    result["figures"][0]["picture"] = picture.name
    path.write_text(json.dumps(result))
    assert reproduction.load(tmp_path) == result_of(0, b"one")
    for file in (picture, path):
        file.unlink()
        os.mkfifo(file)
        assert reproduction.load(tmp_path) is None


def test_simultaneous_runs_do_not_remove_each_others_pictures(tmp_path):
    results = [result_of(seed, f"picture {seed}".encode()) for seed in range(4)]

    def save(result):
        for _ in range(10):
            reproduction.save(result, tmp_path)

    with ThreadPoolExecutor() as pool:
        list(pool.map(save, results))
    assert reproduction.load(tmp_path) in results and len(os.listdir(tmp_path)) == 2


def broken(config, on_progress):
    on_progress(0.5)
    raise ArithmeticError("no <such> number")


def test_a_failing_experiment_does_not_stop_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "EXPERIMENTS", (catalogue.Experiment("figure_2"), catalogue.Experiment("figure_8")))
    monkeypatch.setattr(figure_2, "run", broken)
    monkeypatch.setattr(figure_8, "draw", drawn_at_once)
    done = run("--quick", "--out", tmp_path)
    assert done.exit_code == 1
    assert "figure_2: FAILED, ArithmeticError: no <such> number" in done.output
    page = read((tmp_path / "index.html").read_text())
    ids = {attributes.get("id") for _, attributes, _ in page.found}
    assert {"failures", "failure-figure_2", "figure_8"} <= ids and "figure_2" not in ids
    assert any("in broken" in text and "no <such> number" in text for text in page.texts("code"))
    for name in ("run", "figures"):  # figure 2 becomes a copy of figure 8, which is fast
        monkeypatch.setattr(figure_2, name, getattr(figure_8, name))
    monkeypatch.setattr(figure_2, "QUICK", figure_8.QUICK)
    again = run("--quick", "--out", tmp_path)
    assert again.exit_code == 0 and again.output.count("as stored") == 1  # the failed experiment runs again
    ids = {attributes.get("id") for _, attributes, _ in read((tmp_path / "index.html").read_text()).found}
    assert "failures" not in ids


@pytest.mark.parametrize(
    ("effect", "error", "verdict"),
    [
        (1.3, 0.1, Verdict.HOLDS),
        (1.1, 0.1, Verdict.UNDECIDED),
        (1.0, 0.0, Verdict.UNDECIDED),
        (0.9, 0.1, Verdict.UNDECIDED),
        (0.7, 0.1, Verdict.FAILS),
        (1.0001, 0.0, Verdict.HOLDS),
        (float("nan"), 0.1, Verdict.UNDECIDED),
    ],
)
def test_an_effect_within_two_standard_errors_of_its_threshold_is_undecided(effect, error, verdict):
    assert above(effect, error, 1).verdict is verdict
    assert below(-effect, error, -1).verdict is verdict


def test_a_claim_holds_if_all_its_conditions_do():
    holds, undecided, fails = above(2, 0.1, 1), above(1, 0.1, 1), above(0, 0.1, 1)
    assert verdict_of([holds, holds]) is Verdict.HOLDS
    assert verdict_of([holds, undecided]) is Verdict.UNDECIDED
    assert verdict_of([undecided, fails, holds]) is Verdict.FAILS
    assert [verdict_of(within(x, 0.1, 0, 1)) for x in (0, -0.9, 1.1, 1.3)] == [
        *(Verdict.HOLDS, Verdict.UNDECIDED, Verdict.UNDECIDED, Verdict.FAILS)
    ]


def test_a_claim_is_corrected_if_only_the_corrected_form_holds():
    holds, undecided, fails = above(2, 0.1, 1), above(1, 0.1, 1), above(0, 0.1, 1)

    def verdict(printed, corrected):
        return Claim.compared("", [printed], [corrected], "").verdict

    assert verdict(fails, holds) is Verdict.CORRECTED
    assert verdict(fails, fails) is Verdict.FAILS
    assert verdict(fails, undecided) is Verdict.UNDECIDED
    assert verdict(holds, holds) is Verdict.HOLDS
    assert verdict(undecided, holds) is Verdict.UNDECIDED


def test_five_runs_of_an_effect_at_its_threshold_are_seldom_decided():
    """With normal runs, two standard errors from five runs are exceeded by chance in about 12 % (Student's t)."""
    values = np.random.default_rng(0).normal(size=(4000, 5))
    conditions = [above(v.mean(), v.std(ddof=1) / 5**0.5, 0) for v in values]
    share = np.mean([condition.verdict is not Verdict.UNDECIDED for condition in conditions])
    assert share == pytest.approx(2 * stats.t.sf(2, 4), abs=0.02)


def test_a_note_is_shown_once():
    figures = tuple(
        Figure(f"figure_{i}", f"Figure {i}", "", b"", "", notes=("the same note", f"note {i}")) for i in (3, 4)
    )
    result = Result("study", True, 0, {}, MACHINE, "2026", 1.0, "", figures)
    page = report.page([result], ("figure_3", "figure_4"), quick=False)
    assert page.count("the same note") == page.count("note 3") == page.count("note 4") == 1
    assert 'See also the notes of <a href="#figure_3">figure 3</a>.' in page


def check(page, names):
    """Check structure, links, pictures and claims of a page; return its parser."""
    reader = read(page)
    ids = [attributes["id"] for _, attributes, _ in reader.found if "id" in attributes]
    assert len(ids) == len(set(ids)) and {*names, "summary", "errata"} <= set(ids)
    for tag, attributes, _ in reader.found:
        if tag == "a":
            assert attributes["href"].removeprefix("#") in ids, attributes
        for name in ("src", "href"):
            assert attributes.get(name, "#").startswith(("data:", "#"))
    pictures = [attributes for tag, attributes, _ in reader.found if tag == "img"]
    assert len(pictures) == len(names)
    for picture in pictures:
        png = base64.b64decode(picture["src"].removeprefix("data:image/png;base64,"), validate=True)
        assert png.startswith(b"\x89PNG") and len(picture["alt"]) > 40
    headings = [tag for tag, *_ in reader.found if re.fullmatch("h[1-6]", tag)]
    assert headings[0] == "h1" and headings.count("h1") == 1
    badges = [("".join(text), attributes["class"]) for tag, attributes, text in reader.found if tag == "span"]
    found = [(text, kind) for text, kind in badges if text in WORDS.values()]
    tones = {
        "holds": "badge good",
        "does not hold": "badge bad",
        "corrected": "badge mixed",
        "undecided": "badge plain",
    }
    assert all(kind == tones[text] for text, kind in found)
    claims = [text for tag, _, text in reader.found if tag == "dd"]
    assert len(found) >= len(claims) + len(WORDS)  # one for each claim, the legend, and the main claims
    return reader


def test_the_page_of_a_run(whole):
    page = (whole / "index.html").read_text()
    reader = check(page, ("figure_8", "first_look", "diabetes"))
    code = reader.texts("code")
    assert "anchored reproduce --only figure_8 --seed 0 --quick" in code
    assert json.loads(code[code.index("anchored reproduce --only figure_8 --seed 0 --quick") + 1])["n_samples"] == 150
    assert "quick run" in reader.texts("span")
    totals = [row for row in re.findall(r"<tr>(.*?)</tr>", page) if "Total, figures of the paper" in row]
    assert re.findall(r'class="number">(.*?)<', totals[0])[:4] == ["–", "1", "–", "1"]  # the claims about figure 8
    assert machine()["cpu"] in page


def test_the_page_with_every_figure(every_figure):
    page, names = every_figure
    reader = check(page, names)
    assert "quick run" not in reader.texts("span")
    in_order = [attributes["id"] for _, attributes, _ in reader.found if attributes.get("id", "").startswith("figure_")]
    assert in_order == [f"figure_{n}" for n in range(1, 13)]


def test_bars_in_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with command._progress_display(catalogue.EXPERIMENTS[:2], Output(False)) as (on_start, tell):
        advance = on_start(catalogue.EXPERIMENTS[0])
        advance(0.5)
        tell("first_look: 3 [holds] :smile: \x07")
    shown = terminal.getvalue()
    assert r"first_look: 3 [holds] :smile: \x07" in shown and "\x07" not in shown and "all" in shown and "50%" in shown


def test_bench(monkeypatch):
    quick = {"n_estimators": 2, "hidden_layer_sizes": (20,), "noise_variance": 0.01, "prior_scale": 2.0, "max_iter": 20}
    for name, small in (("N_ROWS", 40), ("N_MEMBERS", 2), ("N_PREDICTED", 1000), ("DEFAULTS", quick)):
        monkeypatch.setattr(bench, name, small)
    monkeypatch.setattr(bench, "fit_in_new_process", lambda cache: exec(bench.FIT.format(bench.N_ROWS)))
    done = CliRunner().invoke(app, ["bench", "--json"], catch_exceptions=False)
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["machine"] == describe(machine())
    assert all(row["value"] > 0 for row in found["measured"])
    assert [row["unit"] for row in found["measured"]] == ["s"] * 4 + ["members/s", "rows/s"]


LOOK = """<!DOCTYPE html><html><body><script>
const page = PAGE, found = {};
const looks = [1200, 390].map(width => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.width = width; frame.height = 900; frame.style.border = 0;
  frame.onload = () => {
    const images = [...frame.contentDocument.images];
    const enlarge = frame.contentDocument.querySelector(".picture button");
    const click = () => { enlarge.click(); return images[0].clientWidth; };
    found[width] = {
      small: images[0].clientWidth, enlarged: click(), shrunk: click(),
      natural: images.map(image => image.naturalWidth),
      shown: images.map(image => image.getBoundingClientRect().right),
      window: frame.contentWindow.innerWidth, page: frame.contentDocument.documentElement.scrollWidth,
    };
    done();
  };
  frame.srcdoc = page;
  document.body.append(frame);
}));
Promise.all(looks).then(() => { document.body.dataset.found = JSON.stringify(found); });
</script></body></html>"""


def browse(path):
    """Return the finished process of a browser that loads `path`: the document and the messages of the console."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom"]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    return subprocess.run(
        [*command, profile, "--virtual-time-budget=10000", f"file://{path}"], capture_output=True, text=True, timeout=60
    )


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium here")
def test_in_a_browser(every_figure, tmp_path):
    """It loads without messages in the console; at both widths every picture is drawn, and nothing is wider.

    A click enlarges a picture to its own size, and a second one shrinks it.
    """
    page, names = every_figure
    (tmp_path / "index.html").write_text(page)
    opened = browse(tmp_path / "index.html")
    assert "CONSOLE" not in opened.stderr, opened.stderr
    assert opened.stdout.count("<img") == len(names)
    # The page runs no scripts, so another page measures it in frames
    (tmp_path / "look.html").write_text(LOOK.replace("PAGE", json.dumps(page).replace("</", "<\\/")))
    looked = browse(tmp_path / "look.html")
    found = json.loads(html.unescape(re.search(r'data-found="(.*?)"', looked.stdout)[1]))
    for width in (1200, 390):
        seen = found[str(width)]
        assert seen["window"] == width
        assert len(seen["natural"]) == len(names) and min(seen["natural"]) > 300
        assert seen["small"] == seen["shrunk"] < seen["enlarged"] == seen["natural"][0]
        assert seen["page"] <= width and max(seen["shown"]) <= width
