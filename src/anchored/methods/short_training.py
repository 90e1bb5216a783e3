"""The warning that training ended before it had converged."""

from sklearn.exceptions import ConvergenceWarning


class ShortTrainingWarning(ConvergenceWarning):
    """Training ended while it still helped.

    Attributes
    ----------
    reason : str
        What was seen, as a sentence without a full stop.
    arguments : tuple of str
        The arguments to raise, the first of them first.
    """

    def __init__(self, reason: str, *arguments: str):
        super().__init__(reason, *arguments)
        self.reason, self.arguments = reason, arguments

    def __str__(self) -> str:
        return f"{self.reason}. Raise {', or '.join(self.arguments)}."
