"""Archives are read as they were written, and damage is detected."""

import os

import hypothesis.extra.numpy as numpy_strategies
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchored import StorageError
from anchored.storage import archive

SHAPES = numpy_strategies.array_shapes(min_dims=0, min_side=0)
DTYPES = st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_, np.float16])
ARRAYS = DTYPES.flatmap(lambda dtype: numpy_strategies.arrays(dtype, SHAPES))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | FINITE | st.text(), st.lists)


def content(header):
    """Return all fields of a header."""
    return {name: header.value(name) for name in header}


@given(st.dictionaries(st.text(min_size=1), ARRAYS), st.dictionaries(st.text(), JSON), st.booleans())
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_file_is_read_as_it_was_written(tmp_path, arrays, header, transpose):
    arrays.pop("__metadata__", None)  # the only name that safetensors reserves
    if transpose:
        arrays = {name: array.T for name, array in arrays.items()}
    archive.write(tmp_path / "file", header, arrays)
    read_header, read_arrays = archive.read(tmp_path / "file")
    assert content(read_header) == {**header, "format": archive.FORMAT}
    assert set(read_arrays) == set(arrays)
    for name, array in arrays.items():
        found = read_arrays[name]
        assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert os.listdir(tmp_path) == ["file"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A small archive, copies of which are damaged."""
    path = tmp_path_factory.mktemp("archive") / "file"
    archive.write(path, {"kind": "test", "numbers": [1, 2.5]}, {"a": np.arange(5.0), "b": np.ones((2, 3), np.int32)})
    return path


def test_every_changed_byte_is_detected(file, tmp_path):
    """Only changes of the at most eight blanks after the header raise no error, and they have no effect."""
    original, (header, arrays) = file.read_bytes(), archive.read(file)
    damaged = tmp_path / "damaged"
    n_without_error = 0
    for i in range(len(original)):
        damaged.write_bytes(original[:i] + bytes([original[i] ^ 1]) + original[i + 1 :])
        try:
            read_header, read_arrays = archive.read(damaged)
        except StorageError as error:
            assert error.path == str(damaged) and str(damaged) in str(error)
        else:
            n_without_error += 1
            assert content(read_header) == content(header)
            assert all(np.array_equal(read_arrays[name], arrays[name]) for name in arrays)
    assert n_without_error <= 8


def test_every_truncation_is_detected(file, tmp_path):
    original = file.read_bytes()
    for length in range(len(original)):
        (tmp_path / "truncated").write_bytes(original[:length])
        with pytest.raises(StorageError, match="not a saved model, or is truncated"):
            archive.read(tmp_path / "truncated")
