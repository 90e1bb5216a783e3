"""The warning that training ended before it had converged."""

from sklearn.exceptions import ConvergenceWarning


class ShortTrainingWarning(ConvergenceWarning):
    """Warning that training ended before it had converged.

    Attributes
    ----------
    reason : str
        What was observed, as a sentence without a full stop.
    arguments : tuple of str
        Names of the arguments to increase, the most effective first.
    """

    def __init__(self, reason: str, *arguments: str):
        super().__init__(reason, *arguments)
        self.reason, self.arguments = reason, arguments

    def __str__(self) -> str:
        return f"{self.reason}. Raise {', or '.join(self.arguments)}."
