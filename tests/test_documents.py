"""Every example in the documents runs, every command they name exists, and every public name has a page."""

import contextlib
import importlib
import inspect
import io
import json
import re
import shlex
import subprocess
import sys
import tomllib
import zlib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

import anchored
from anchored.cli import app

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
TABLES = DOCS / "how-to" / "command-line.md"  # the page whose commands are run, too
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))
FENCE = re.compile(r"^( *)```(\S*)[^\n]*\n(.*?)^\1```$", re.S | re.M)
NUMBER = re.compile(r"[-−+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?")


def blocks(page):
    """Fenced blocks as (language, text)."""
    return [(language, inspect.cleandoc(text) + "\n") for _, language, text in FENCE.findall(page.read_text())]


def name_of(page):
    return page.relative_to(ROOT).as_posix()


# Code


@pytest.mark.parametrize("page", [p for p in PAGES if "```python" in p.read_text()], ids=name_of)
def test_code_runs(page, tmp_path, monkeypatch, request):
    """The blocks of a page share their names; a `text` block after one is what it prints."""
    monkeypatch.chdir(tmp_path)
    if "```text" in page.read_text() and page != TABLES:  # what it prints depends on the training
        request.getfixturevalue("trained_as_for_users")
    names = {"__name__": "__main__"}
    found = blocks(page)
    for i, (language, code) in enumerate(found):
        if language == "python":
            printed = printed_by(code, f"{name_of(page)}, block {i + 1}", names)
        elif language == "sh" and page == TABLES:
            printed = "".join(map(printed_by_command, code.splitlines()))
        else:
            continue
        if found[i + 1 : i + 2] and found[i + 1][0] == "text":
            assert_reads_alike(printed, found[i + 1][1])


def printed_by(code, place, names):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, place, "exec"), names)
    return printed.getvalue()


def printed_by_command(line):
    program, *arguments = shlex.split(line)
    assert program == "anchored"
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 0, run.output
    return run.stdout


def assert_reads_alike(printed, shown):
    """Word by word, with numbers to within a quarter: training amplifies how a machine rounds."""
    assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", shown).split()
    here, there = ([float(n.replace(",", "").replace("−", "-")) for n in NUMBER.findall(t)] for t in (printed, shown))
    assert here == pytest.approx(there, rel=0.25, abs=0.05)


def test_every_block_is_of_a_kind_that_is_checked():
    kinds = {(name_of(page), language) for page in PAGES for language, _ in blocks(page)}
    assert {kind for kind in kinds if kind[1] not in ("python", "text", "sh")} == set()


def test_pages_name_what_they_import(monkeypatch):
    """The static part of what `docs/fresh_environments.py` checks: pages install what their code imports."""
    monkeypatch.syspath_prepend(str(DOCS))
    import fresh_environments

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed_by_ours = {"anchored.plots": "matplotlib", "anchored.tables": "pyarrow"}
    for page in fresh_environments.PAGES:
        commands = fresh_environments.installations(page)
        extras = ",".join(re.findall(r"\[([\w,]+)\]", " ".join(commands))).split(",")
        listed = [
            *project["dependencies"],
            *(name for e in extras if e for name in project["optional-dependencies"][e]),
        ]
        installed = set(re.findall(r"\w+", " ".join([*listed, *commands]).replace("scikit-learn", "sklearn")))
        code = "".join(text for language, text in fresh_environments.blocks(page) if language == "python")
        modules = re.findall(r"^ *(?:from|import) ([\w.]+)", code, re.M)
        used = {needed_by_ours.get(module, module.split(".")[0]) for module in modules}
        missing = used - installed - set(sys.stdlib_module_names) - {"anchored"}
        assert not missing, f"{name_of(page)} does not say how to install {missing}"


# Commands


def commands(page):
    """Lines of shell blocks, and commands in running text."""
    text = page.read_text()
    shell = "".join(code for language, code in blocks(page) if language == "sh")
    lines = [line.split("  #")[0].strip() for line in shell.replace("\\\n", " ").splitlines()]
    spoken = re.findall(r"`((?:anchored|python|make|pip|mkdocs) [^`]+)`", FENCE.sub("", text))
    return [line for line in [*lines, *spoken] if line and not line.startswith("#")]


@pytest.mark.parametrize("page", [p for p in [*PAGES, ROOT / "CONTRIBUTING.md"] if commands(p)], ids=name_of)
def test_commands_exist(page):
    for command in commands(page):
        program, *arguments = shlex.split(command)
        check = {"make": check_make, "pip": check_pip, "python": check_python, "anchored": check_anchored}
        assert program in check, f"{command!r} is of a kind that nothing checks"
        check[program](arguments)


def check_make(arguments):
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(arguments) <= set(targets), arguments


def check_pip(arguments):
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    asked = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
    assert arguments[0] == "install"
    assert {extra for some in asked for extra in some.split(",")} <= set(known), arguments


def check_python(arguments):
    """A module or a file of ours, and options that it reads."""
    if arguments[0] == "-m":
        assert arguments[1].startswith("anchored."), arguments
        path = ROOT / "src" / Path(*arguments[1].split(".")).with_suffix(".py")
        arguments = arguments[1:]
    else:
        path = ROOT / arguments[0]
        path = path / "__main__.py" if path.is_dir() else path
    source = path.read_text()
    assert '__name__ == "__main__"' in source, f"{path} cannot be run"
    shared = re.findall(r"^(?:from|import) (\w+)", source, re.M)  # scripts that lie in one folder share options
    near = [folder / f"{name}.py" for folder in (path.parent, path.parent.parent) for name in shared]
    source += "".join(file.read_text() for file in near if file.exists())
    options = re.findall(r'add_argument\(\s*"(--[\w-]+)"', source)
    assert {a for a in arguments[1:] if a.startswith("--")} <= set(options), arguments


def check_anchored(arguments):
    """A command, and options that it has."""
    command = get_command(app)
    if arguments and not arguments[0].startswith("-"):
        assert arguments[0] in command.commands, arguments
        command = command.commands[arguments[0]]
    options = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
    # Typer adds these to every command line
    options |= {"--help", "--install-completion", "--show-completion"}
    assert {a for a in arguments if a.startswith("-")} <= options, arguments
    if "--only" in arguments:
        from anchored.paper import catalogue

        assert catalogue.selected(arguments[arguments.index("--only") + 1])


# The site


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Built strictly: a warning, such as for a link that leads nowhere, is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def documented(site):
    """Names in the site's inventory."""
    *_, body = (site / "objects.inv").read_bytes().split(b"\n", 4)
    return {line.split()[0] for line in zlib.decompress(body).decode().splitlines()}


PACKAGES = ("anchored", "anchored.estimators", "anchored.methods", "anchored.exact", "anchored.rl")
PACKAGES += ("anchored.rl.environments",)
MODULES = (*(f"model.{name}" for name in ("networks", "priors", "likelihoods", "predictive", "bayesian_model")),)
MODULES += ("metrics", "plots", "datasets")
MODULES += ("exact.kernels", "rl.exploration", "rl.learning_curves", "rl.history")


def public_names():
    """Where each is defined: what packages export, and what public modules define."""
    for package in map(importlib.import_module, PACKAGES):
        for name in package.__all__:
            found = getattr(package, name)
            if isinstance(found, ModuleType):
                yield found.__name__
            elif hasattr(found, "__qualname__"):
                yield f"{found.__module__}.{found.__qualname__}"
            else:
                yield f"{package.__name__}.{name}"
    for module in (importlib.import_module(f"anchored.{name}") for name in MODULES):
        for name, found in vars(module).items():
            if not name.startswith("_") and getattr(found, "__module__", None) == module.__name__:
                yield f"{module.__name__}.{name}"


def test_every_public_name_has_a_page(site):
    missing = sorted(set(public_names()) - documented(site) - {"anchored.paper.experiments"})
    assert not missing
    told = (site / "reference" / "command-line.html").read_text()
    assert [name for name in get_command(app).commands if f'id="anchored-{name}"' not in told] == []
    folder = ROOT / "src/anchored/paper/experiments"
    experiments = (path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    assert {f"anchored.paper.experiments.{name}" for name in experiments} <= documented(site)


def test_the_site_fetches_nothing(site):
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|link|img)[^>]*\s(?:src|href)="(https?:[^"]*)"', page.read_text())
        assert not fetched, f"{page.name} fetches {fetched}"


def test_every_picture_of_the_site_is_there_and_described(site):
    for page in site.rglob("*.html"):
        for tag in re.findall(r"<img[^>]*>", page.read_text()):
            source = re.search(r'src="([^"]*)"', tag).group(1)
            assert source.startswith("data:") or (page.parent / source).exists(), f"{page.name}: {source}"
            assert re.search(r'alt="[^"]+"', tag) or source.startswith("data:"), f"{page.name}: {source} has no words"


def test_links_lead_somewhere():
    """Of the documents beside the site; its own are checked as it is built."""
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            assert target.startswith("http") or (ROOT / target).exists(), f"{page.name} links to {target}"


def test_the_citation_names_this_version_and_the_paper():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert cited["cff-version"] == "1.2.0" and cited["version"] == anchored.__version__ and cited["message"]
    paper = cited["references"][0]
    assert paper["url"] in (ROOT / "README.md").read_text()
    told = " ".join((DOCS / "how-to" / "practical.md").read_text().split())
    assert paper["title"] in told and all(author["family-names"] in told for author in paper["authors"])


def test_make_targets_stand_at_the_top_of_the_readme():
    top = (ROOT / "README.md").read_text()[:1500]
    assert "make reproduce" in top
    assert "make test" in top


# Tables from stored results


def test_tables_are_those_of_the_stored_results(monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    import stored_results

    for page in stored_results.documents():
        assert stored_results.filled(page.read_text()) == page.read_text(), (
            f"{name_of(page)} is older than benchmarks/results: run `python docs/stored_results.py`"
        )
    marked = {name for page in stored_results.documents() for name in stored_results.MARKED.findall(page.read_text())}
    assert marked == set(stored_results.TABLES)


# The first picture of the README


def test_first_look_knows_what_it_does_not_know():
    from anchored.paper.experiments import first_look

    results = first_look.run(first_look.Config(n_estimators=5, table_estimators=2, max_iter=200, table_max_iter=20))
    assert results["max_epistemic_std_in_gap"] > 5 * results["mean_epistemic_std_at_data"]
    assert 0.1 < results["estimated_noise_std"] < 0.22


# The gallery


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
def test_notebook_is_executed(path):
    """As `make gallery` leaves it: every cell of code ran, in order, and none failed."""
    book = json.loads(path.read_text())
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert not any("error" in kinds for kinds in kinds_of_output(book))
    assert sum(map(len, kinds_of_output(book))) >= 3


def test_a_notebook_runs(tmp_path, monkeypatch):
    """Trained briefly, it prints the words that are stored; `make gallery` executes all notebooks as they are."""
    monkeypatch.chdir(tmp_path)
    book = json.loads((DOCS / "gallery" / "table.ipynb").read_text())
    names = {"__name__": "__main__"}
    for i, cell in enumerate(cell for cell in book["cells"] if cell["cell_type"] == "code"):
        printed = printed_by("".join(cell["source"]), f"table.ipynb, cell {i + 1}", names)
        stored = "".join("".join(output["text"]) for output in cell["outputs"] if output["output_type"] == "stream")
        assert NUMBER.sub("#", printed).split() == NUMBER.sub("#", stored).split()


def kinds_of_output(book):
    return [[output["output_type"] for output in cell.get("outputs", [])] for cell in book["cells"]]
