"""The optimisers of optax that can be chosen by name, and checks of optimisers that users pass."""

from collections.abc import Callable

import jax
import numpy as np
import optax

from anchored.types import Number

OptimizerFactory = Callable[[Number], optax.GradientTransformation]  # learning rate -> transformation
# Optimisers that need only a learning rate and gradients. A name may come from a file, so no others are allowed. Early
# versions of optax do not have all of them.
OPTIMIZERS: dict[str, OptimizerFactory] = {
    name: getattr(optax, name)
    for name in (
        "adabelief", "adadelta", "adafactor", "adagrad", "adam", "adamax", "adamaxw", "adamw", "adan", "amsgrad",
        "fromage", "lamb", "lars", "lion", "nadam", "nadamw", "novograd", "optimistic_adam_v2",
        "optimistic_gradient_descent", "radam", "rmsprop", "rprop", "sgd", "sign_sgd", "sm3", "yogi",
    )
    if hasattr(optax, name)
}  # fmt: skip


def check_optimizer(value: object) -> None:
    """Raise a ValueError unless `value` is the name of an optimiser, or a factory that takes a learning rate."""
    remedy = 'Pass a name ("adam") or a factory that takes a learning rate (optax.adam).'
    if value is None:
        raise ValueError(f"optimizer is None: a saved model does not contain custom optimisers. {remedy}")
    if isinstance(value, optax.GradientTransformation):
        raise ValueError(f"optimizer: got an optax transformation, whose learning rate is already fixed. {remedy}")
    if isinstance(value, str):
        if value not in OPTIMIZERS:
            raise ValueError(
                f"optimizer: {value!r} is not a known name; known are {sorted(OPTIMIZERS)}. Pass any other optimiser "
                "as a factory that takes a learning rate (optax.noisy_sgd)."
            )
        return
    if not callable(value):
        raise ValueError(f"optimizer: {value!r} is not callable. {remedy}")
    try:
        transformation = value(0.1)
    except Exception as error:
        raise ValueError(f"optimizer: {value!r} failed when called with a learning rate: {error}. {remedy}") from error
    if not isinstance(transformation, optax.GradientTransformation):
        raise ValueError(f"optimizer: {value!r} does not return an optax transformation. {remedy}")
    try:
        jax.eval_shape(
            lambda params: transformation.update(params, transformation.init(params), params), np.zeros(1, np.float32)
        )
    except TypeError as error:
        raise ValueError(f"optimizer: {value!r} needs more than gradients: {error}") from error
