"""Calibrate class probabilities by rows that were left out.

The average over members of their class probabilities is less certain than each member, and often less certain than it
is right. Temperature scaling (Guo et al. 2017) divides all logits by one number, which is fitted to rows left out.
"""

import numpy as np
from scipy import optimize, special

from anchored.estimators.selection import SELECTION_FOLDS, Pilots
from anchored.model.bayesian_model import BayesianModel
from anchored.types import OnProgress

N_MEMBERS = 4  # pilot members per fold: the average of few members is nearly as uncertain as that of many
SHARE = 0.4  # of the epochs of the fit
RANGE = (0.5, 2.0)  # of the temperature


def predictive_temperature(pilots: Pilots, model: BayesianModel, on_progress: OnProgress | None = None) -> float:
    """Return the temperature that divides the logits of members in predictions, fitted to rows left out.

    Parameters
    ----------
    pilots : Pilots
        Members that predict the rows they were not trained on.
    model : BayesianModel
        The model of the fit.
    on_progress : function or None
        Called with the fraction of the work done since the last call, and the loss.

    Returns
    -------
    float
        The temperature with the least log loss; 1 if the gain is not larger than chance explains.
    """
    logits = pilots.out_of_fold([model], SELECTION_FOLDS, SHARE, N_MEMBERS, on_progress=on_progress)[0].astype(
        np.float64
    )
    targets, weights = np.asarray(pilots.data.targets), np.asarray(pilots.data.weights, np.float64)[:, 0]
    rows = np.arange(len(targets))

    def log_loss(log_temperature: float) -> float:
        probabilities = special.softmax(logits / np.exp(log_temperature), axis=-1).mean(0)
        return float(-np.average(np.log(probabilities[rows, targets] + 1e-300), weights=weights))

    found = optimize.minimize_scalar(log_loss, bounds=np.log(RANGE), method="bounded", options={"xatol": 1e-3})
    gain = len(targets) * (log_loss(0.0) - found.fun)
    return float(np.exp(found.x)) if gain > 1 else 1.0  # Akaike's criterion: one parameter costs one nat
