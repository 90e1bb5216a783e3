"""Whether a fit was over when it ended: errors for what diverged, warnings for what was cut short."""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

CLEAR_GAIN = 0.1  # of where a curve stands, and of what it gained since a tenth of the steps


class DivergenceError(FloatingPointError):
    """A loss left the finite numbers, at every step size tried."""


def warn_if_improving(curve: np.ndarray, method: str, setting: str) -> None:
    """Warn that a fit was cut short while its noisy, rising curve still rose.

    What counts is the gain after 30 % of the steps: by the end the learning rate has gone down to zero. The first steps
    do not count, since their start may be arbitrarily bad.

    Args:
        curve: (steps,) what the method maximises, after each step.
        method: Its name, for the message.
        setting: The name of the argument that sets the number of steps.

    Raises:
        DivergenceError: If the curve ends outside the finite numbers.
    """
    if not np.isfinite(curve[-1]):
        raise DivergenceError(
            f"{method} has diverged. Lower learning_rate, or look for extreme values in X, y, sample_weight or "
            "noise_variance."
        )
    tenth = max(1, len(curve) // 10)
    early, middle = (curve[int(share * len(curve)) :][:tenth] for share in (0.1, 0.3))
    last = curve[-tenth:]
    gain, since_early = last.mean() - middle.mean(), last.mean() - early.mean()
    noise = np.hypot(middle.std(), last.std()) / np.sqrt(tenth)
    rounding = np.finfo(np.float32).eps * np.abs(curve).max()
    if gain > max(CLEAR_GAIN * max(abs(last.mean()), since_early), 3 * noise, rounding):
        warnings.warn(
            f"{method} was still improving after {setting}={len(curve)} steps, by {gain:.3g} over the last 70 % of "
            f"them. Raise {setting} or learning_rate.",
            ConvergenceWarning,
            stacklevel=3,
        )
