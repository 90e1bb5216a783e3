"""The report on a model: what its page shows is what the model predicts, and nothing is loaded from elsewhere."""

import json
from base64 import b64decode
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from command_line import CONTROLS_SHOWN, MARKUP, UNSEEN_CONTROLS, refused, run


class Outline(HTMLParser):
    """Headings, tables, pictures and everything the page would load."""

    def __init__(self, page):
        super().__init__()
        self.sections, self.tables, self.pictures, self.loaded, self.row, self.inside = [], [], [], [], None, None
        self.page = page
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.loaded += [value for name, value in attributes.items() if name in ("src", "href")]
        if tag == "section":
            self.sections.append(attributes["id"])
        if tag == "table":
            self.tables.append([])
        if tag == "tr":
            self.tables[-1].append([])
        if tag == "img":
            self.pictures.append(b64decode(attributes["src"].removeprefix("data:image/png;base64,")))
        self.inside = tag

    def handle_data(self, text):
        if self.inside in ("td", "th"):
            self.tables[-1][-1].append(text)

    def handle_endtag(self, tag):
        self.inside = None


def outline_of(told, page, effects=()):
    assert told.exit_code == 0, told.output
    outline = Outline(page.read_text())
    assert outline.sections == [
        "scores",
        "calibration",
        "confident",
        "uncertain",
        "importance",
        *effects,
        "choices",
        "columns",
        "command",
    ]
    assert all(source.startswith("data:") for source in outline.loaded)
    assert all(picture.startswith(b"\x89PNG") and len(picture) > 5000 for picture in outline.pictures)
    return outline


def test_report_of_numbers(folder, model):
    """A column's name may look like a formula; rows without a target shift no number."""
    data = pd.read_csv(folder / "others.csv")
    data.loc[:2, "progression"], data.loc[4, "clinic"] = np.nan, "abroad"
    data.to_csv(folder / "known later.csv", index=False)
    told = run("report", model, folder / "known later.csv", "-o", folder / "page.html", "--json")
    outline, numbers = outline_of(told, folder / "page.html", ["effects"]), json.loads(told.stdout)
    assert "clinic: category not seen in training (&#x27;abroad&#x27;) in 1 row, first in row 5" in outline.page
    assert "&#x27;" + str(folder / "known later.csv") + "&#x27; --out" in outline.page  # as a shell reads it
    run("predict", model, folder / "known later.csv", "-o", folder / "p.csv")
    predictions, data = pd.read_csv(folder / "p.csv")[3:], data[3:]
    scores, confident, uncertain, importance, choices, _ = outline.tables
    order = [(-float(row[4]), float(row[1].replace("−", "-"))) for row in choices[1:]]  # epochs and score
    assert order == sorted(order)
    assert dict(row[:2] for row in scores[1:])["rows"] == str(len(data))
    assert dict(row[:2] for row in scores[1:])["RMSE"] == f"{numbers['rmse']:.2f}"
    most = np.argsort(-predictions["std"].to_numpy(), kind="stable")[:12]
    assert [int(row[0]) for row in uncertain[1:]] == (most + 4).tolist()
    assert [float(row[1]) for row in uncertain[1:]] == data["progression"].to_numpy()[most].tolist()
    assert [row[0] for row in importance[1:]] == [one["column"] for one in numbers["permutation_importance"]]
    order = np.argsort(predictions["std"].to_numpy(), kind="stable")[: round(0.2 * len(data))]
    error = np.sqrt(np.mean((predictions["mean"] - data["progression"]).to_numpy()[order] ** 2))
    assert float(confident[-1][2]) == pytest.approx(error, rel=1e-3)
    assert len(outline.pictures) == 3 + 4  # and the effects of four columns


def test_report_of_classes(flowers):
    told = run("report", flowers / "model", flowers / "test.csv", "-o", flowers / "page.html")
    outline = outline_of(told, flowers / "page.html")
    assert len(outline.pictures) == 2 and "Calibration: the probabilities are" in told.stdout
    confusion = np.array([list(map(int, row[1:])) for row in outline.tables[1][1:]])
    told_species = pd.read_csv(flowers / "test.csv")["species"].value_counts().sort_index()
    assert confusion.sum(axis=1).tolist() == told_species.tolist() and np.trace(confusion) > 0.9 * confusion.sum()
    importance = {row[0]: float(row[3].replace("−", "-")) for row in outline.tables[4][1:]}
    assert max(importance, key=importance.get).startswith("petal")
    assert {MARKUP, CONTROLS_SHOWN} < set(importance) and not UNSEEN_CONTROLS.search(outline.page)
    assert told.stderr == ""  # no glyph was missing in a picture
    truth = pd.read_csv(flowers / "test.csv")
    assert {row[1] for row in outline.tables[3][1:]} <= set(truth["species"])


def test_no_report_without_targets(folder, model, tmp_path):
    pd.read_csv(folder / "others.csv").drop(columns="progression").to_csv(tmp_path / "new.csv")
    told = run("report", model, tmp_path / "new.csv", "-o", tmp_path / "page.html")
    refused(told, "no column 'progression'", tmp_path, ["new.csv"])
