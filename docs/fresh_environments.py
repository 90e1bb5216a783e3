"""Run the tutorial and every how-to guide as a new user does: in an environment with only what the page names.

    python docs/fresh_environments.py [PAGE ...]

By default, all pages with code are run. What a page needs is named by its commands `pip install ...`; a page without
such a command needs `pip install .`. Pages with the same needs share an environment, which is removed afterwards.
Exits with 1 if a page fails, and shows the end of its output.
"""

import re
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = [DOCS / "tutorial.md", *sorted((DOCS / "how-to").glob("*.md"))]
WITH_COMMANDS = DOCS / "how-to" / "command-line.md"  # the page whose commands are run too
BLOCK = re.compile(r"^( *)```(python|sh)\n(.*?)^\1```$", re.S | re.M)
INSTALLATION = re.compile(r"`pip install ([^`]+)`")
SHOWN = 2_000  # number of characters that are shown, from the end of the output of a page that fails
Block = tuple[str, str]  # language and text


def installations(page: Path) -> list[str]:
    """Return the arguments of the commands `pip install` that `page` names, but not those in quoted messages."""
    lines = [line for line in page.read_text().splitlines() if not line.startswith(">")]
    return INSTALLATION.findall("\n".join(lines)) or ["."]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of `page` that are run."""
    languages = ("python", "sh") if page == WITH_COMMANDS else ("python",)
    return [(language, code) for _, language, code in BLOCK.findall(page.read_text()) if language in languages]


def as_script(found: list[Block]) -> str:
    """Return a Python script that runs `found`, the blocks of a page, one after the other."""
    parts = ["import subprocess"]
    for language, code in found:
        commands = [f"subprocess.run({shlex.split(line)!r}, check=True)" for line in code.splitlines()]
        parts.append(code if language == "python" else "\n".join(commands))
    return "\n".join(parts)


def run_page(page: Path, environment: Path) -> bool:
    """Run the code of `page` in `environment`, print how it went, and return whether it succeeded."""
    started, programs = time.perf_counter(), environment / "bin"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "page.py").write_text(as_script(blocks(page)))
        command = ["/usr/bin/env", f"PATH={programs}:/usr/bin:/bin", "MPLBACKEND=agg", "python", "page.py"]
        run = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    outcome = "ok" if run.returncode == 0 else "FAILED"
    print(f"{page.relative_to(ROOT)}: {outcome} in {time.perf_counter() - started:.0f} s", flush=True)
    if run.returncode:
        print(run.stdout[-SHOWN:], flush=True)
    return run.returncode == 0


def run_pages(pages: list[Path], needed: tuple[str, ...]) -> list[Path]:
    """Run `pages` in a new environment with all that is `needed`; return the pages that failed."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        for arguments in needed:
            print(f"pip install {arguments}", flush=True)
            command = [str(Path(folder, "bin", "python")), "-m", "pip", "install", "--quiet", *shlex.split(arguments)]
            subprocess.run(command, cwd=ROOT, check=True)
        return [page for page in pages if not run_page(page, Path(folder))]


def main(names: list[str]) -> None:
    """Run the pages called `names`, or all; exit with 1 if one fails."""
    chosen = [Path(name).resolve() for name in names] or [page for page in PAGES if blocks(page)]
    by_needs: dict[tuple[str, ...], list[Path]] = {}
    for page in chosen:
        by_needs.setdefault(tuple(installations(page)), []).append(page)
    failed = [page for needed, pages in by_needs.items() for page in run_pages(pages, needed)]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} pages ran in {len(by_needs)} fresh environments", flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main(sys.argv[1:])
