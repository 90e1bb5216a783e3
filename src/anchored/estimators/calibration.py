"""Calibrate class probabilities on held-out rows, by temperature scaling (Guo et al. 2017).

Class probabilities averaged over members are less confident than those of each member, and often underconfident.
Temperature scaling divides all logits by one number, which is fitted to held-out rows.
"""

import numpy as np
from scipy import optimize, special

from anchored.estimators.selection import SELECTION_FOLDS, PilotTrainer
from anchored.model.bayesian_model import BayesianModel
from anchored.types import OnProgress

N_MEMBERS = 4  # pilot members per fold: the average over a few members is nearly as uncertain as that over many
EPOCH_FRACTION = 0.4  # pilot members are trained for this fraction of the epochs of the fit
TEMPERATURE_RANGE = (0.5, 2.0)


def predictive_temperature(trainer: PilotTrainer, model: BayesianModel, on_progress: OnProgress | None = None) -> float:
    """Return the temperature that the members' logits are divided by in predictions, fitted to held-out rows.

    Parameters
    ----------
    trainer : PilotTrainer
        Trains pilot members, each of which predicts the rows that it was not trained on.
    model : BayesianModel
        The model that is to be fitted.
    on_progress : function or None
        Called with the fraction of the work done since the last call, and the loss.

    Returns
    -------
    float
        The temperature with the smallest log loss; 1 if this loss is lower by no more than chance explains.
    """
    outputs = trainer.out_of_fold([model], SELECTION_FOLDS, EPOCH_FRACTION, N_MEMBERS, on_progress=on_progress)
    logits = outputs[0].astype(np.float64)
    targets, weights = np.asarray(trainer.data.targets), np.asarray(trainer.data.weights, np.float64)[:, 0]
    rows = np.arange(len(targets))

    def log_loss(log_temperature: float) -> float:
        probabilities = special.softmax(logits / np.exp(log_temperature), axis=-1).mean(0)
        return float(-np.average(np.log(probabilities[rows, targets] + 1e-300), weights=weights))

    bounds = np.log(TEMPERATURE_RANGE)
    best = optimize.minimize_scalar(log_loss, bounds=bounds, method="bounded", options={"xatol": 1e-3})
    gain = len(targets) * (log_loss(0.0) - best.fun)
    return float(np.exp(best.x)) if gain > 1 else 1.0  # Akaike's criterion: one parameter costs one nat
