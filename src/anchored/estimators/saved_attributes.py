"""Write fitted attributes of an estimator as arrays and JSON, and read them back.

The attributes are the standardisations of X and y, the encoding of the inputs, the shape of the predictive
distribution, the candidates and the guarantee. Every array and field is checked when it is read, and a StorageError
names one that is invalid.
"""

import numpy as np

from anchored.estimators.candidates import Candidate
from anchored.estimators.encoding import MIN_WIDTH, N_BINS, PiecewiseLinearEncoding
from anchored.estimators.guarantee import Guarantee, checked_rank
from anchored.estimators.settings import INPUT_ENCODINGS
from anchored.estimators.standardisation import MAX_DISTANCE, Standardisation
from anchored.model.predictive import SHAPE_RANGES, Shape
from anchored.storage.arrays import Arrays
from anchored.storage.headers import Header, as_storage_errors

MAX_MARGIN = 1e31  # largest absolute margin of a guarantee; intervals are then finite


def standardisation_arrays(name: str, standardisation: Standardisation) -> dict[str, np.ndarray]:
    """Return the arrays of `standardisation`, whose names start with `name`."""
    return {f"{name}/{field}": getattr(standardisation, field) for field in ("mean", "scale", "lower", "upper")}


def read_standardisation(arrays: Arrays, name: str, scale_range: tuple[float, float]) -> Standardisation:
    """Return the standardisation whose arrays' names start with `name`; its scales must lie within `scale_range`."""
    mean = arrays.take(f"{name}/mean", (None,), ("float64",))
    if len(mean) == 0:
        arrays.refuse(f"{name}/mean", "must have an entry for each column, but is empty")
    scale = arrays.take(f"{name}/scale", mean.shape, ("float64",), *scale_range)
    if np.max(np.abs(mean) / MAX_DISTANCE - scale) > 0:  # float64 could not distinguish the values of such a column
        arrays.refuse(f"{name}/mean", f"must be at most {MAX_DISTANCE:g} times the scale")
    lower = arrays.take(f"{name}/lower", mean.shape, ("float64",), -np.inf, 0)
    upper = arrays.take(f"{name}/upper", mean.shape, ("float64",), 0, np.inf)
    return Standardisation(mean, scale, lower, upper)


def encoding_arrays(encoding: PiecewiseLinearEncoding | None) -> dict[str, np.ndarray]:
    """Return the arrays of the encoding of the inputs; none if the inputs are not encoded."""
    if encoding is None:
        return {}
    return {f"encoding/{field}": getattr(encoding, field) for field in ("column", "lower", "upper")}


def read_encoding(arrays: Arrays, n_columns: int) -> PiecewiseLinearEncoding | None:
    """Return the encoding of `n_columns` standardised inputs from the file's `arrays`, or None if it has none."""
    if "encoding/column" not in arrays:
        return None
    column = arrays.take("encoding/column", (None,), ("int64",), 0, n_columns - 1)
    if len(column) > N_BINS * n_columns:
        arrays.refuse("encoding/column", f"must hold at most {N_BINS} bins for each of {n_columns} columns")
    lower = arrays.take("encoding/lower", column.shape, ("float64",), -MAX_DISTANCE, MAX_DISTANCE)
    upper = arrays.take("encoding/upper", column.shape, ("float64",), -MAX_DISTANCE, MAX_DISTANCE)
    if np.any(upper - lower < MIN_WIDTH):
        arrays.refuse("encoding/upper", f"must exceed encoding/lower by at least {MIN_WIDTH:g}")
    return PiecewiseLinearEncoding(n_columns, column, lower, upper)


def shape_arrays(shape: Shape, n_outputs: int) -> dict[str, np.ndarray]:
    """Return the fields of `shape` as arrays with one entry for each of `n_outputs` outputs."""
    fields = {name: np.broadcast_to(getattr(shape, name), n_outputs) for name in SHAPE_RANGES}
    return {f"noise_shape/{name}": np.array(values, np.float64) for name, values in fields.items()}


def read_shape(arrays: Arrays, n_outputs: int) -> Shape:
    """Return the shape of the predictive distribution of each of `n_outputs` outputs from the file's `arrays`."""

    def read(name: str) -> np.ndarray:
        return arrays.take(f"noise_shape/{name}", (n_outputs,), ("float64",), *SHAPE_RANGES[name])

    return Shape(**{name: read(name) for name in SHAPE_RANGES})


def candidate_to_json(candidate: Candidate) -> dict[str, object]:
    """Return the fields of `candidate`, with None in place of NaN, which JSON cannot hold."""
    numbers = {"noise": candidate.noise, "score": candidate.score}
    return candidate._asdict() | {name: None if np.isnan(value) else value for name, value in numbers.items()}


def read_candidate(header: Header) -> Candidate:
    """Return the candidate that `candidate_to_json` wrote to `header`."""
    header.require_only(Candidate._fields)
    number = float | tuple[float, ...] | None
    scale, noise, score = (header.typed(name, number) for name in ("prior_scale", "noise", "score"))
    for name, value in (("noise", noise), ("score", score)):
        if isinstance(value, tuple):
            header.refuse("must be a number or null", name)
    sizes = header.typed("hidden_layer_sizes", tuple[int, ...] | None)
    return Candidate(
        sizes,
        header.text("trainable", ("all", "last_layer")),
        header.text("input_encoding", INPUT_ENCODINGS),
        scale,
        np.nan if noise is None else noise,
        header.whole("n_epochs"),
        np.nan if score is None else score,
    )


def read_guarantee(header: Header, n_margins: int) -> Guarantee:
    """Return the guarantee whose fields are in `header`; it must have `n_margins` margins."""
    guarantee = header.as_dataclass(Guarantee)
    if len(guarantee.margin) != n_margins or np.max(np.abs(guarantee.margin)) > MAX_MARGIN:
        header.refuse(f"must be {n_margins} numbers of at most {MAX_MARGIN:g}", "margin")
    with as_storage_errors("guarantee."):
        checked_rank(guarantee.coverage, header.whole("n_rows", 1))
    return guarantee
