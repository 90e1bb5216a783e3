"""Which observations are images."""

import numpy as np
from numpy.typing import DTypeLike

MIN_EXTENT = 3  # smallest height and width of an image


def is_image(shape: tuple[int, ...], dtype: DTypeLike) -> bool:
    """Return whether observations of this shape and dtype are images of bytes, at least MIN_EXTENT high and wide."""
    return np.dtype(dtype) == np.uint8 and len(shape) in (2, 3) and min(extent(shape)) >= MIN_EXTENT


def is_channels_first(shape: tuple[int, ...]) -> bool:
    """Return whether the first axis of an image of this shape is the axis of channels: it is shorter than the last."""
    return len(shape) == 3 and shape[0] < shape[-1]


def extent(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return height and width of an image of this shape."""
    return shape[1:] if is_channels_first(shape) else shape[:2]
