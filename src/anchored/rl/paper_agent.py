"""The agent of figure 4 of the paper, with the settings of the author's script."""

from dataclasses import replace

import jax
import jax.numpy as jnp

from anchored.model.priors import Prior
from anchored.rl.config import QLearningConfig
from anchored.types import Params

PRIOR_SCALES = 7.0, 0.18  # of the first layer; of the output weights, which is divided by the square root of the width
PENALTIES = 1e-6, 0.1  # strengths of the penalty on the first layer and on the output weights
ARGUMENTS: dict[str, object] = {  # of `QEnsembleAgent`, except the environment and the seed
    "n_estimators": 10,
    "exploration": "thompson",
    "hidden_layer_sizes": [1000],
    "activation": "tanh",
    "network": None,
    "prior_scale": list(PRIOR_SCALES),  # `with_script_prior` replaces the prior
    "noise_variance": 0.0,  # PENALTIES are used instead
    "gamma": 0.98,
    "learning_rate": 0.0015,
    "optimizer": "sgd",
    "batch_size": 300,
    "buffer_size": 200_000,
    "learning_starts": 10,
    "train_freq": "episode",
    "gradient_steps": 1,
    "target_update_interval": None,
    "double_q": False,
    "n_step": 1,
    "replay": "uniform",
    "averaged_share": None,
    "reward_scale": 1 / 20,
    "rescale_observations": False,
}


def with_script_prior(learning: QLearningConfig) -> QLearningConfig:
    """Return `learning` with the prior and the penalty of the script; its network must have one hidden layer.

    Weights and biases of the first layer have the same prior scale, output biases start at 0 and have no penalty, the
    penalty is divided by the size of a batch, and members share each batch.
    """
    width = learning.network.hidden_layer_sizes[0]  # type: ignore[attr-defined]
    prior = Prior(_by_leaf(0.0, 0.0), _by_leaf(PRIOR_SCALES[0], PRIOR_SCALES[1] / width**0.5))
    return replace(
        learning,
        prior=prior,
        anchor_strength=_by_leaf(*PENALTIES),
        anchor_size=float(learning.batch_size),
        own_batches=False,
    )


def _by_leaf(first: float, output: float) -> Params:
    """Return one number for each leaf of the parameters: for the first layer and for the output weights."""
    numbers = {"layer_0": {"weights": first, "bias": first}, "layer_1": {"weights": output, "bias": 0.0}}
    return jax.tree.map(jnp.result_type(float).type, numbers)
