"""How the values of a column are written: marks in numbers, the format of dates, and words for "missing"."""

from dataclasses import asdict, dataclass

from anchored.errors import ArgumentError
from anchored.storage.headers import Header
from anchored.storage.json_values import JsonObject

MISSING = (  # text that means "missing" in every column
    "", "?", "NA", "na", "N/A", "n/a", "N.A.", "n.a.", "<NA>", "#N/A", "#NA", "NaN", "nan", "NAN", "Nan", "-nan",
    "-NaN", "null", "NULL", "Null", "(null)", "None", "none", "NONE", "NaT", r"\N", "#DIV/0!", "#VALUE!", "#REF!",
    "#NUM!", "#NAME?", "0000-00-00", "0000-00-00 00:00:00",
)  # fmt: skip
DASHES = ("-", "--", "---", "–", "—", ".", "..", "…")  # "missing" too, unless "+" is another value of the column
DECIMAL = (".", ",")
THOUSANDS = ("", ",", ".", " ", "'", "_")  # " " stands for every kind of space, and "'" for both apostrophes
KINDS = ("number", "category", "date")
# Pairs of words that mean yes and no. In a column of such words only, they are read as the first or the last pair.
YES_AND_NO = (("true", "false"), ("t", "f"), ("1", "0"), ("y", "n"), ("yes", "no"))


@dataclass(frozen=True)
class Format:
    """How the values of a column are written as text. Columns that are not text, as in Parquet files, do not need it.

    Attributes
    ----------
    missing : tuple of str
        Text that means "missing" in this column, besides MISSING.
    decimal : str
        The decimal mark of numbers, one of DECIMAL.
    thousands : str
        The mark between groups of digits, one of THOUSANDS.
    prefix, suffix : str
        Text before and after numbers, such as "$" and "m²"; a value without it is read too.
    date : str
        Format of dates: `dates.ISO` or a format of strptime; empty if the values are not dates.
    yes : str
        "yes" or "true" if all values are words for yes and no: Y, N, True and so on are then read as this label and its
        opposite. Otherwise empty.
    """

    missing: tuple[str, ...] = DASHES
    decimal: str = "."
    thousands: str = ""
    prefix: str = ""
    suffix: str = ""
    date: str = ""
    yes: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether numbers are written in plain form, such as 1234.5, and no number means "missing"."""
        has_marks = (self.decimal, self.thousands, self.prefix, self.suffix) != (".", "", "", "")
        return not has_marks and not self.codes

    @property
    def codes(self) -> list[str]:
        """Text in `missing` that has digits, which means "missing" even if it looks like a number."""
        return [word for word in self.missing if any(character.isdigit() for character in word)]

    def __str__(self) -> str:
        parts = ["decimal comma"] if self.decimal == "," else []
        parts += [f"thousands mark {self.thousands!r}"] if self.thousands else []
        parts += [f"unit {unit!r}" for unit in (self.prefix, self.suffix) if unit not in ("", "'")]
        return ", ".join(parts)

    def to_json(self) -> JsonObject:
        """Return the fields that differ from their defaults, in JSON's types."""
        default = asdict(Format())
        return {name: value for name, value in asdict(self).items() if value != default[name]}

    @classmethod
    def from_json(cls, header: Header) -> "Format":
        """Return the format that `to_json` wrote to `header`; raises a StorageError that names an invalid field."""
        default = asdict(cls())
        header.require_only((), tuple(default))
        given = {name: header.typed(name, tuple[str, ...] if name == "missing" else str) for name in header}
        known = {"decimal": DECIMAL, "thousands": THOUSANDS, "yes": ("", "yes", "true")}
        for name in given:
            if name in known:
                header.text(name, known[name])
        return cls(**given)


@dataclass(frozen=True)
class ReadingOptions:
    """What the user specifies about the format of a table; the rest is inferred from whole columns.

    Attributes
    ----------
    ignore : tuple of str
        Names of columns to leave out.
    types : dict of str to str
        What columns are read as, by name: "number", "category" or "date". The others are inferred.
    decimal : str or None
        The decimal mark of all numbers, "." or ","; None infers it for each column.
    thousands : str or None
        The mark between groups of digits, one of THOUSANDS; None infers it for each column.
    na_values : tuple of str
        More text that means "missing".
    date_format : str or None
        A format of strptime, such as "%d/%m/%Y", which is preferred to all others that fit a column equally well.
    """

    ignore: tuple[str, ...] = ()
    types: dict[str, str] | None = None
    decimal: str | None = None
    thousands: str | None = None
    na_values: tuple[str, ...] = ()
    date_format: str | None = None

    def check(self) -> None:
        """Raise an ArgumentError if an option has an invalid value."""
        if self.decimal is not None and self.decimal not in DECIMAL:
            raise ArgumentError("decimal", f"must be a point or a comma, got {self.decimal!r}")
        if self.thousands is not None and self.thousands not in THOUSANDS:
            raise ArgumentError(
                "thousands", f"must be one of {', '.join(map(repr, THOUSANDS))}, got {self.thousands!r}"
            )
        if self.thousands and self.thousands == self.decimal:
            raise ArgumentError("thousands", f"must differ from the decimal mark, which is {self.decimal!r} too")
        for name, kind in (self.types or {}).items():
            if kind not in KINDS:
                raise ArgumentError("types", f"must give {name!r} one of {', '.join(KINDS)}, got {kind!r}")
        if self.date_format is not None and "%" not in self.date_format:
            raise ArgumentError("date_format", f"must be like %d/%m/%Y, got {self.date_format!r}")

    @property
    def missing(self) -> tuple[str, ...]:
        """Text that means "missing" in columns of numbers and dates, besides MISSING."""
        return tuple(dict.fromkeys([*DASHES, *self.na_values]))
