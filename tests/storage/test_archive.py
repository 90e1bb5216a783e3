"""Archives: reading undoes writing, and every damage is noticed."""

import os

import hypothesis.extra.numpy as arrays_of
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anchored import StorageError
from anchored.storage import archive

DTYPES = st.sampled_from([np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_, np.float16])


ARRAYS = DTYPES.flatmap(lambda dtype: arrays_of.arrays(dtype, arrays_of.array_shapes(min_dims=0, min_side=0)))


FINITE = st.floats(allow_nan=False, allow_infinity=False)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | FINITE | st.text(), st.lists)


def content(header):
    return {name: header.value(name) for name in header}


@given(st.dictionaries(st.text(min_size=1), ARRAYS), st.dictionaries(st.text(), JSON), st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_reading_undoes_writing(tmp_path, arrays, header, transpose):
    arrays.pop("__metadata__", None)  # the one name that the format keeps for itself
    if transpose:
        arrays = {name: array.T for name, array in arrays.items()}
    archive.write(tmp_path / "file", header, arrays)
    header_again, arrays_again = archive.read(tmp_path / "file")
    assert content(header_again) == {**header, "format": archive.FORMAT}
    assert set(arrays_again) == set(arrays)
    for name, array in arrays.items():
        again = arrays_again[name]
        assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert os.listdir(tmp_path) == ["file"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A small archive, for the tests that damage it."""
    path = tmp_path_factory.mktemp("archive") / "file"
    archive.write(path, {"kind": "test", "numbers": [1, 2.5]}, {"a": np.arange(5.0), "b": np.ones((2, 3), np.int32)})
    return path


def test_every_changed_byte_is_noticed(file, tmp_path):
    """In the length, the header or the data: an error, or (blanks that pad the header) nothing lost."""
    whole, (header, arrays) = file.read_bytes(), archive.read(file)
    damaged = tmp_path / "damaged"
    unharmed = 0
    for place in range(len(whole)):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            header_again, arrays_again = archive.read(damaged)
        except StorageError as error:
            assert error.path == str(damaged) and str(damaged) in str(error)
        else:
            unharmed += 1
            assert content(header_again) == content(header)
            assert all(np.array_equal(arrays_again[name], arrays[name]) for name in arrays)
    assert unharmed <= 8


def test_every_truncation_is_noticed(file, tmp_path):
    whole = file.read_bytes()
    for length in range(len(whole)):
        (tmp_path / "short").write_bytes(whole[:length])
        with pytest.raises(StorageError, match="not a saved model, or is truncated"):
            archive.read(tmp_path / "short")
