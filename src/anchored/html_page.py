"""Self-contained HTML pages of sections, tables, pictures and claims, without scripts or external resources.

Functions accept plain text, which is escaped, and HTML returned by other functions of this module, which is not.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterable, Sequence

from anchored.storage.text import printable

TONES = ("good", "bad", "mixed", "plain")  # tones of badges; each has a colour in STYLE
# A cell of a column that is aligned as numbers: a number, perhaps with a sign, ±, %, × or a range; – and “missing” too
NUMBER = re.compile(r"–|missing|[-+−±<>≤≥~]?\s*\d[\d\s.,%±–()×+−e-]*( to [-−]?\d[\d\s.,%e+-]*)?")
TEXT_WIDTH = 945  # width of `main` in STYLE, in pixels
LONG_TEXT = 24  # characters above which a value needs a wide column


class Html(str):
    """A string of HTML, which is not escaped again."""

    __slots__ = ()


def join(*content: str) -> Html:
    """Return the strings `content` joined as HTML; strings that are not HTML are escaped."""
    return Html("".join(piece if isinstance(piece, Html) else _escaped(piece) for piece in content))


def _escaped(text: str) -> str:
    """Escape text; line breaks are kept, other control characters become escape sequences."""
    return "\n".join(html.escape(printable(line)) for line in text.split("\n"))


def element(tag: str, *content: str, **attributes: str) -> Html:
    """Return the element <tag attributes>content</tag>.

    Underscores in the names of `attributes` become hyphens; a name that is a Python keyword is passed with an
    underscore at its end: class_="wide".
    """
    written = "".join(f' {name.rstrip("_").replace("_", "-")}="{_escaped(v)}"' for name, v in attributes.items())
    return Html(f"<{tag}{written}>{join(*content)}</{tag}>")


def paragraph(*content: str) -> Html:
    """Return `content` as a paragraph."""
    return element("p", *content)


def items(contents: Iterable[str]) -> Html:
    """Return a bulleted list with an item for each string of `contents`."""
    return element("ul", *(element("li", content) for content in contents))


def link(target: str, text: str) -> Html:
    """Return a link with the given `text` to `target`, such as a section of the page: "#name"."""
    return element("a", text, href=target)


def section(title: str, *parts: str, name: str, level: int = 2) -> Html:
    """Return a section of `parts` with the heading `title` of the given `level`; links refer to it as "#name"."""
    return element("section", element(f"h{level}", title), *parts, id=name)


def table(header: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> Html:
    """Return a table, which scrolls sideways on a narrow screen; columns of numbers are aligned to the right.

    Parameters
    ----------
    header : sequence of str
        Titles of the columns.
    rows : iterable of sequence of str
        Values, one for each column.
    caption : str
        Caption; empty for none.

    Returns
    -------
    Html
        The table.
    """
    rows = list(rows)
    classes = [_css_class([row[i] for row in rows]) for i in range(len(header))]
    titles = (
        element("th", _breakable(title), scope="col", class_=name) for title, name in zip(header, classes, strict=True)
    )
    lines = (
        element("tr", *(element("td", _signed(value), class_=name) for value, name in zip(row, classes, strict=True)))
        for row in rows
    )
    captions = [element("caption", caption)] if caption else []
    content = element("table", *captions, element("thead", element("tr", *titles)), element("tbody", *lines))
    label = _text(caption) or "table"
    return element("div", content, class_="scroll", tabindex="0", role="region", aria_label=label)


def _css_class(column: list[str]) -> str:
    """Return the CSS class of a column of a table: "number", "long" or "short" (text)."""
    texts = list(map(_text, column))
    if any(texts) and all(NUMBER.fullmatch(text) for text in texts if text):
        return "number"
    return "long" if max(map(len, texts), default=0) > LONG_TEXT else "short"


def _signed(value: str) -> str:
    """Return the text of a cell with minus signs, as in pictures, for the hyphens before numbers."""
    return value if isinstance(value, Html) or not NUMBER.fullmatch(value) else re.sub(r"(?<![\w.])-(?=\d)", "−", value)


def _breakable(title: str) -> Html:
    """Return the title of a column as HTML, which may break after an underscore: names are often long."""
    return title if isinstance(title, Html) else Html(join(title).replace("_", "_<wbr>"))


def _text(content: str) -> str:
    """Return the plain text of `content`, without tags."""
    return html.unescape(re.sub(r"<[^>]*>", "", content)) if isinstance(content, Html) else content


def picture(png: bytes, description: str, caption: str = "", density: int = 1) -> Html:
    """Return the bytes `png` as an embedded image, with `description` as alternative text and a `caption` below it.

    `density` is the number of image pixels for each pixel of the page, in each direction. An image that is wider than
    the text may be as wide as a large screen. A click, or the Enter key, shows the image at full size, over the page;
    a second one, or the Escape key, shrinks it again.
    """
    source = "data:image/png;base64," + base64.b64encode(png).decode()
    width, height = (int.from_bytes(png[i : i + 4]) // density for i in (16, 20))  # from the header of the PNG file
    image = Html(f'<img src="{source}" alt="{_escaped(description)}" width="{width}" height="{height}">')
    name = "picture-" + hashlib.sha256(png + description.encode()).hexdigest()[:16]
    button = element("button", image, type="button", popovertarget=name)
    # A popover is shown over the page without a script; the frame keeps its place in the page
    frame = element("div", element("div", button, id=name, popover=""), class_="frame")
    size = f"--width: {width}px; --ratio: {width} / {height}"
    captions = [element("figcaption", caption)] if caption else []
    return element("figure", frame, *captions, class_="picture wide" if width > TEXT_WIDTH else "picture", style=size)


def pictures(contents: Iterable[str]) -> Html:
    """Return several pictures that `picture` returned, side by side where there is room."""
    return element("div", *contents, class_="pictures")


def badge(text: str, tone: str = "plain") -> Html:
    """Return a short `text` in a frame, coloured by `tone`, one of TONES."""
    if tone not in TONES:
        raise ValueError(f"tone={tone!r}: must be one of {', '.join(TONES)}")
    return element("span", text, class_=f"badge {tone}")


def claims(entries: Iterable[tuple[str, str, str]]) -> Html:
    """Return a list of claims; each of `entries` is a badge, the claim, and what was measured."""
    rows = (element("div", element("dt", mark, " ", text), element("dd", measured)) for mark, text, measured in entries)
    return element("dl", *rows, class_="claims")


def code(text: str) -> Html:
    """Return `text` as a block of code or of output."""
    return element("pre", element("code", text))


def details(summary: str, *parts: str) -> Html:
    """Return `parts` that are hidden until the reader clicks on `summary`."""
    return element("details", element("summary", summary), *parts)


def time(text: str) -> Html:
    """Return `text`, a duration or something that depends on a duration, in a fainter colour, as it varies by run."""
    return element("span", text, class_="time")


def page(title: str, *parts: str, lead: str = "") -> Html:
    """Return a complete page: `title`, an introductory sentence `lead` below it, and `parts`.

    The page's content security policy forbids loading anything.
    """
    head = element(
        "head",
        Html('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><link rel="icon" href="data:,">'),
        element("title", title),
        Html(f"<style>{STYLE}</style>"),
    )
    top = element("header", element("h1", title), *([element("p", lead, class_="lead")] if lead else []))
    return Html("<!DOCTYPE html>\n" + element("html", head, element("body", element("main", top, *parts)), lang="en"))


POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fdfdfb; --ink: #1d2228; --soft: #5b6470; --line: #dfe3e8; --shade: #f3f5f7; --accent: #08519c;
  --good: #1b7f4b; --bad: #b3261e; --mixed: #8a5a00;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e4e7eb; --soft: #9aa4b0; --line: #2e353d; --shade: #1c2127; --accent: #7fb5e8;
    --good: #5fcf95; --bad: #ff8a80; --mixed: #f0b95a;
  }
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; -webkit-text-size-adjust: 100%; }
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 1.02rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif;
}
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.25rem 5rem; }
h1 { font-size: clamp(1.6rem, 5vw, 2.3rem); line-height: 1.2; margin: 0 0 .6rem; letter-spacing: -.015em; }
h2 { font-size: 1.4rem; line-height: 1.3; margin: 0 0 .6rem; }
h3 { font-size: 1.08rem; margin: 1.6rem 0 .4rem; }
section { margin-top: 2.6rem; padding-top: 1.6rem; border-top: 1px solid var(--line); }
section section { margin-top: 1.4rem; padding-top: 0; border-top: 0; }
p, ul { max-width: 46rem; margin: .6rem 0; }
ul { padding-left: 1.3rem; }
.lead { font-size: 1.12rem; color: var(--soft); }
a { color: var(--accent); text-underline-offset: .15em; }
.scroll { overflow-x: auto; margin: 1rem 0; --back: var(--paper); }
.scroll, pre { /* a shadow where something is hidden at the right */
  background: linear-gradient(to left, var(--back) 2rem, transparent) right / 4rem 100% no-repeat local,
    linear-gradient(to left, var(--line), transparent) right / 1rem 100% no-repeat var(--back);
}
table { border-collapse: collapse; font-size: .9rem; line-height: 1.45; }
caption { text-align: left; color: var(--soft); padding-bottom: .4rem; max-width: calc(100vw - 2.5rem); }
th, td { text-align: left; vertical-align: top; padding: .4rem .65rem .4rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--soft); font-weight: 600; vertical-align: bottom; }
td { font-variant-numeric: tabular-nums; }
.number { text-align: right; } td.number { white-space: nowrap; }
td.short { min-width: 6rem; } td.long { min-width: 14rem; } td.long:first-child { min-width: 10rem; }
figure { margin: 1.2rem 0; }
.frame {
  box-sizing: content-box; width: min(100% - 18px, var(--width)); aspect-ratio: var(--ratio); padding: 8px;
  background: #fff; border: 1px solid var(--line); border-radius: .5rem;
}
.frame > div {
  display: block; position: static; width: auto; height: auto; margin: 0; padding: 0; border: 0; background: none;
}
.frame button { display: block; width: 100%; margin: 0; padding: 0; border: 0; background: none; cursor: zoom-in; }
img { display: block; width: 100%; height: auto; }
.frame > :popover-open {
  position: fixed; inset: 0; width: fit-content; height: fit-content; max-width: 100vw; max-height: 100vh; margin: auto;
  padding: 8px; overflow: auto; background: #fff; border-radius: .5rem;
}
:popover-open button { width: auto; cursor: zoom-out; } :popover-open img { width: auto; max-width: none; }
::backdrop { background: rgb(0 0 0 / .6); }
.pictures { display: flex; flex-wrap: wrap; gap: 0 1.5rem; }
.pictures .picture { width: calc(var(--width) + 18px); max-width: 100%; }
@media (min-width: 45rem) {
  .wide { --shown: min(96vw - 18px, 90rem, var(--width)); }
  .wide .frame { width: var(--shown); margin-left: calc(50% - var(--shown) / 2 - 9px); }
}
@media (prefers-color-scheme: dark) {
  .frame, .frame > :popover-open { background: #e0e0e0; } img { filter: brightness(.88); }
}
figcaption { color: var(--soft); font-size: .92rem; margin-top: .4rem; max-width: 46rem; }
.badge {
  display: inline-block; white-space: nowrap; padding: .05rem .6rem; border-radius: 1rem; border: 1px solid;
  font-size: .82rem; font-weight: 600; color: var(--soft);
}
.badge.good { color: var(--good); } .badge.bad { color: var(--bad); } .badge.mixed { color: var(--mixed); }
.claims { margin: 1rem 0; }
.claims > div { padding: .55rem 0; border-bottom: 1px solid var(--line); }
.claims dt { font-weight: 500; } .claims dt .badge { margin-right: .35rem; }
.claims dd { margin: .15rem 0 0; color: var(--soft); font-size: .92rem; max-width: 56rem; }
pre { overflow-x: auto; --back: var(--shade); padding: .8rem 1rem; border-radius: .5rem; margin: .8rem 0; }
sub { font-size: .78em; line-height: 0; }
code { font: .86rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
details { margin: .8rem 0; }
summary { cursor: pointer; color: var(--accent); }
.time { color: var(--soft); font-variant-numeric: tabular-nums; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
@media print { details > * { display: block; } section { break-inside: avoid; } }
"""
