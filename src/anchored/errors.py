"""Errors that carry facts: what is wrong, why, and what to do. A message is made of them where it is shown."""

from collections.abc import Iterable


class ArgumentError(ValueError):
    """An argument that cannot be used.

    Attributes
    ----------
    argument : str
        Its name, or several names with commas between them, as the function that was called spells them.
    reason : str
        What is wrong, as the rest of a sentence that begins with the argument: "must be positive, got -1".
    remedy : str
        What to do, as an imperative without a full stop; empty where the reason says it already.
    """

    def __init__(self, argument: str, reason: str, remedy: str = ""):
        super().__init__(argument, reason, remedy)  # all three, so that the error survives pickling
        self.argument, self.reason, self.remedy = argument, reason, remedy

    def message(self, argument: str) -> str:
        """The message, with the argument spelt as given here: a command line spells it as an option."""
        return f"{argument} {self.reason}" + (f"; {self.remedy}" if self.remedy else "")

    def __str__(self) -> str:
        return self.message(self.argument)


class OtherDataError(ArgumentError):
    """The data given are not those that the model was fitted to."""


class TableError(ValueError):
    """A table or a model's file that cannot be used.

    Attributes
    ----------
    where : str
        The file, and the row and column where these are known: "data.csv, row 3, column 'x'".
    problem : str
        What is wrong there, without a full stop.
    remedy : str
        What to do, as a sentence without a full stop; may be empty.
    settings : tuple of (str, str)
        Arguments of `fit` and values for them that would help instead, such as ("task", "regression").
    """

    def __init__(self, where: str, problem: str, remedy: str = "", settings: tuple[tuple[str, str], ...] = ()):
        super().__init__(where, problem, remedy, settings)  # all of them, so that the error survives pickling
        self.where, self.problem, self.remedy, self.settings = where, problem, remedy, settings

    def message(self, settings: Iterable[str]) -> str:
        """The message, with the settings spelt as given here: a command line spells them as options."""
        parts = [f"{self.where}: {self.problem}", self.remedy]
        helpful = " or ".join(settings)
        if helpful:
            parts.append(f"{'Or use' if self.remedy else 'Use'} {helpful}")
        return ". ".join(part for part in parts if part)

    def __str__(self) -> str:
        return self.message(f"{argument}={value!r}" for argument, value in self.settings)
