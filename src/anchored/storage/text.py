"""Make text from files safe to print: it must not move the cursor, change colours or reverse the order of letters."""

import re

# Control characters (C0, delete, C1), line and paragraph separators, bidirectional controls, lone surrogates.
UNPRINTABLE = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return `text` with control characters, also newlines and tabs, shown as Python's escapes.

    >>> print(printable("Größe \x1b[31m\r\u202e"))
    Größe \x1b[31m\r\u202e
    """
    return UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
