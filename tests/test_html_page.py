"""Self-contained pages: what is written is what a parser reads back, and nothing is loaded from elsewhere."""

import base64
from html.parser import HTMLParser

import pytest

from anchored import html_page

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


class Reader(HTMLParser):
    """Elements that were opened, in order, with their attributes and the text directly inside."""

    EMPTY = ("meta", "img", "link", "wbr")

    def __init__(self):
        super().__init__()
        self.found, self.open = [], []

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes), []))
        if tag not in self.EMPTY:
            self.open.append(self.found[-1])

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, tag

    def handle_data(self, data):
        if self.open:
            self.open[-1][2].append(data)

    def texts(self, wanted):
        return ["".join(text) for tag, _, text in self.found if tag == wanted]


def read(text):
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []  # everything opened is closed
    return reader


def test_a_page_is_read_back():
    hostile = "<script>alert('no')</script> & \"quotes\""
    page = html_page.page(
        hostile,
        html_page.section(
            hostile,
            html_page.paragraph("see ", html_page.link("#here", hostile), " and ", html_page.time("3 s")),
            html_page.table(
                ["what", "how much"], [[hostile, "−1.5 ± 0.1"], [html_page.badge(hostile, "good"), "12"]], hostile
            ),
            html_page.picture(PNG, hostile, hostile),
            html_page.code(hostile),
            html_page.details(hostile, html_page.items([hostile])),
            name="here",
        ),
        lead=hostile,
    )
    reader = read(page)
    assert "script" not in {tag for tag, *_ in reader.found}
    for tag in ("title", "h1", "h2", "a", "caption", "figcaption", "summary", "li", "code"):
        assert reader.texts(tag) == [hostile], tag
    assert reader.texts("td") == [hostile, "−1.5 ± 0.1", "", "12"]
    numbers = [text for tag, attributes, text in reader.found if attributes.get("class") == "number"]
    assert numbers == [["how much"], ["−1.5 ± 0.1"], ["12"]]
    image = next(attributes for tag, attributes, _ in reader.found if tag == "img")
    assert image["alt"] == hostile
    assert base64.b64decode(image["src"].removeprefix("data:image/png;base64,")) == PNG
    assert {tag: attributes for tag, attributes, _ in reader.found}["html"] == {"lang": "en"}


def test_pictures_are_as_wide_as_their_pixels_say():
    header = PNG[:16] + (2000).to_bytes(4) + (800).to_bytes(4) + PNG[24:]
    wide = html_page.picture(header, "")
    assert 'class="picture wide"' in wide and 'width="2000" height="800"' in wide and "2000 / 800" in wide
    sharp = html_page.picture(header, "", density=4)
    assert 'class="picture"' in sharp and 'width="500"' in sharp


def test_pictures_are_enlarged_by_a_button():
    """The button of each picture shows and hides that picture, by the name of its element."""
    reader = read(html_page.pictures([html_page.picture(PNG, "one"), html_page.picture(PNG, "two")]))
    named = [attributes["id"] for tag, attributes, _ in reader.found if "popover" in attributes]
    assert [attributes["popovertarget"] for tag, attributes, _ in reader.found if tag == "button"] == named
    assert len(set(named)) == 2


def test_minus_signs():
    """Hyphens before numbers become minus signs; those in dates, exponents, names and text that is HTML stay."""
    cells = ["-1,946", "-2 to -1.5", "1e-05", "2020-01-02", "x-1", "a -1", html_page.Html("-1")]
    reader = read(html_page.table(["cell"], [[cell] for cell in cells]))
    assert reader.texts("td") == ["−1,946", "−2 to −1.5", "1e-05", "2020-01-02", "x-1", "a -1", "-1"]


def test_columns_of_numbers():
    """Intervals and missing numbers are numbers, too."""
    rows = [["−1.5 to 2e3", "missing", "up to 3"], ["0.1 to 0.2", "3", "4"]]
    reader = read(html_page.table(["interval", "gappy", "text"], rows))
    classes = [attributes.get("class") for tag, attributes, _ in reader.found if tag == "th"]
    assert classes == ["number", "number", "short"]


def test_titles_of_columns_break_after_underscores():
    reader = read(html_page.table(["distance_in_km", html_page.badge("a_b")], [["1", "2"]]))
    assert reader.texts("th") == ["distance_in_km", ""] and reader.texts("span") == ["a_b"]
    assert [tag for tag, *_ in reader.found].count("wbr") == 2


def test_nothing_is_loaded_from_elsewhere():
    page = html_page.page("title", html_page.picture(PNG, "a dot"))
    for _, attributes, _ in read(page).found:
        for name in ("src", "href"):
            assert attributes.get(name, "data:").startswith(("data:", "#"))
    assert "url(" not in html_page.STYLE and "@import" not in html_page.STYLE
    assert "default-src 'none'" in page


def test_a_tone_that_is_none_is_named():
    with pytest.raises(ValueError, match="tone='great': must be one of good, bad, mixed, plain"):
        html_page.badge("holds", "great")
