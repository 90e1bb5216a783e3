"""Errors that say what is wrong and what to do."""

from collections.abc import Iterable


class ArgumentError(ValueError):
    """Raised if an argument cannot be used.

    Attributes
    ----------
    argument : str
        Name of the argument, or several names separated by commas.
    reason : str
        What is wrong, as the rest of a sentence that begins with the argument: "must be positive, got -1".
    remedy : str
        What to do, as an imperative without a full stop. Empty if the reason makes it clear.
    """

    def __init__(self, argument: str, reason: str, remedy: str = ""):
        super().__init__(argument, reason, remedy)  # pickle rebuilds the error from these arguments
        self.argument, self.reason, self.remedy = argument, reason, remedy

    def message(self, argument: str) -> str:
        """Return the message with `argument`, such as a command-line option, in place of the argument's name."""
        return f"{argument} {self.reason}" + (f"; {self.remedy}" if self.remedy else "")

    def __str__(self) -> str:
        return self.message(self.argument)


class DataMismatchError(ArgumentError):
    """Raised if the data are not those that the model was fitted to."""


class MissingPackageError(ImportError):
    """Raised if an optional package is not installed.

    Parameters
    ----------
    feature : str
        What needs the package, such as "plots" or the name of a class.
    package : str
        Name of the package.
    extra : str
        The optional dependency group of anchored that installs it, as in `pip install 'anchored[extra]'`.
    """

    def __init__(self, feature: str, package: str, extra: str):
        message = f"{package} is needed for {feature}, but is not installed: pip install 'anchored[{extra}]'"
        super().__init__(message, name=package)
        self._arguments = feature, package, extra

    def __reduce__(self) -> tuple:
        return type(self), self._arguments  # ImportError would be rebuilt from its message alone


class ClusterError(RuntimeError):
    """Raised if processes or a cluster cannot train or predict, or would compute something else; says what to do."""


class TableError(ValueError):
    """Raised if a table, or the saved file of a model of tables, cannot be used.

    Attributes
    ----------
    where : str
        The file, with the row and column if they are known: "data.csv, row 3, column 'x'".
    problem : str
        What is wrong there, without a full stop.
    remedy : str
        What to do, as a sentence without a full stop. May be empty.
    settings : tuple of (str, str)
        Pairs of an argument of `fit` and a value that would also solve the problem, such as ("task", "regression").
    """

    def __init__(self, where: str, problem: str, remedy: str = "", settings: tuple[tuple[str, str], ...] = ()):
        super().__init__(where, problem, remedy, settings)  # pickle rebuilds the error from these arguments
        self.where, self.problem, self.remedy, self.settings = where, problem, remedy, settings

    def message(self, alternatives: Iterable[str]) -> str:
        """Return the message. `alternatives` are the pairs of `settings` as text, such as command-line options."""
        parts = [f"{self.where}: {self.problem}", self.remedy]
        joined = " or ".join(alternatives)
        if joined:
            parts.append(f"{'Or use' if self.remedy else 'Use'} {joined}")
        return ". ".join(part for part in parts if part)

    def __str__(self) -> str:
        return self.message(f"{argument}={value!r}" for argument, value in self.settings)
