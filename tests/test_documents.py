"""The README's examples run, and what the documents promise exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


@pytest.mark.parametrize("code", BLOCKS, ids=[f"example {i + 1}" for i in range(len(BLOCKS))])
def test_readme_example(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})


def test_readme_has_examples():
    assert len(BLOCKS) >= 3


def test_links_lead_somewhere():
    for page in ROOT.glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert target.startswith("http") or (ROOT / target).exists(), f"{page.name} links to {target}"


def test_make_targets_stand_at_the_top_of_the_readme():
    top = (ROOT / "README.md").read_text()[:1500]
    assert "make reproduce" in top
    assert "make test" in top


def test_first_look_knows_what_it_does_not_know(tmp_path):
    from anchored.experiments import first_look

    results = first_look.run(first_look.Config(n_estimators=5))
    assert results["epistemic_std_in_gap"] > 5 * results["epistemic_std_at_data"]
    assert 0.1 < results["noise_std"] < 0.22
    first_look.draw(results, tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 10_000
