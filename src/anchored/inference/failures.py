"""Errors for fits that diverged, and warnings for fits that ended before they had converged."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

CLEAR_GAIN = 0.1  # a gain is clear if it exceeds this fraction of the final objective, and of the gain before


class DivergenceError(FloatingPointError):
    """Raised if training diverged at every learning rate that was tried: parameters or objective are not finite."""


def describe_members(numbers: np.ndarray) -> str:
    """Return "member 3" or "members 0, 1, …" for the member numbers `numbers`. At most ten are listed."""
    listed = ", ".join(str(number) for number in numbers[:10]) + (", …" if len(numbers) > 10 else "")
    return f"member {listed}" if len(numbers) == 1 else f"members {listed}"


def warn_if_improving(curve: np.ndarray, method: str, setting: str) -> None:
    """Warn if the objective of a method was still clearly improving when the fit ended; raise if it diverged.

    The gain is the difference between the objective at the end and after 30 % of the steps, both averaged over a tenth
    of the steps. The last steps alone would say little, since their learning rate is close to zero, and the first steps
    are ignored, since the start may be arbitrarily bad. The gain is clear if it exceeds all of these: 10 % of the final
    average, 10 % of the gain since the second tenth of the steps, and three times its standard error.

    Parameters
    ----------
    curve : (steps,) array
        The objective, which the method maximises, after each step.
    method : str
        Name of the method, for the message.
    setting : str
        Name of the argument that sets the number of steps.

    Raises
    ------
    DivergenceError
        If the last value of the curve is not finite.
    """
    if not np.isfinite(curve[-1]):
        raise DivergenceError(
            f"{method} has diverged. Lower learning_rate, or check X, y, sample_weight and noise_variance for extreme "
            "values."
        )
    tenth = max(1, len(curve) // 10)
    early, middle = (curve[int(fraction * len(curve)) :][:tenth] for fraction in (0.1, 0.3))
    last = curve[-tenth:]
    gain, gain_since_early = last.mean() - middle.mean(), last.mean() - early.mean()
    standard_error = np.hypot(middle.std(), last.std()) / np.sqrt(tenth)
    rounding = np.finfo(np.float32).eps * max(abs(middle.mean()), abs(last.mean()))
    if gain > max(CLEAR_GAIN * max(abs(last.mean()), gain_since_early), 3 * standard_error, rounding):
        warnings.warn(
            f"{method} was still improving after {setting}={len(curve)} steps, by {gain:.3g} over the last 70 % of "
            f"them. Raise {setting} or learning_rate.",
            ConvergenceWarning,
            stacklevel=3,
        )
