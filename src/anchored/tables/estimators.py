"""Estimators for data frames: columns of numbers, text, categories, truth values, dates and missing values."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, TransformerMixin, clone
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, column_or_1d

from anchored.errors import ArgumentError, TableError
from anchored.estimators.classifiers import AnchoredClassifier
from anchored.estimators.regressors import AnchoredRegressor
from anchored.model.predictive import CategoricalPredictive, Predictive
from anchored.tables import saved_model
from anchored.tables.formats import Format, ReadingOptions
from anchored.tables.frames import as_rows
from anchored.tables.model import TableModel
from anchored.tables.rows import RowBatch
from anchored.tables.schema import Schema
from anchored.tables.target import Target, Task, decimals


class _FrameReader(BaseEstimator):
    """What the transformer and the estimators share: the arguments that say how a table is written."""

    schema_: Schema  # set by `fit`

    def _infer(self, X: Any) -> tuple[RowBatch, Schema]:
        """Return the rows of `X`, and the schema inferred from them; remember the columns as scikit-learn does."""
        rows = as_rows(X)
        if len(rows) < 2:
            raise ArgumentError("X", "must have at least two rows, got n_samples = 1")
        options = ReadingOptions(
            tuple(self.ignore), self.types, self.decimal, self.thousands, tuple(self.na_values), self.date_format
        )
        for argument, names in (("ignore", options.ignore), ("types", options.types or ())):
            unknown = [name for name in names if name not in rows.columns]
            if unknown:
                raise ArgumentError(argument, f"names the column {unknown[0]!r}, which X does not have")
        schema = Schema.infer(rows, options)
        self.n_features_in_ = len(rows.columns)
        self.__dict__.pop("feature_names_in_", None)
        if hasattr(X, "columns"):
            self.feature_names_in_ = np.array(list(rows.columns), object)
        return rows, schema

    def _rows(self, X: Any) -> RowBatch:
        """Return the rows of `X`, which must have the columns of the fit, in any order; other columns are not used.

        An array must have all columns of the fit, in the same order; scikit-learn passes polars data frames as arrays.
        """
        check_is_fitted(self)
        rows = as_rows(X)
        if not hasattr(X, "columns") and len(rows.columns) != self.n_features_in_:
            raise ValueError(
                f"X has {len(rows.columns)} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        if not hasattr(X, "columns") and hasattr(self, "feature_names_in_"):
            rows = replace(rows, columns=dict(zip(self.feature_names_in_, rows.columns.values(), strict=True)))
        missing = [name for name in self.schema_.names if name not in rows.columns]
        if missing:
            raise TableError("X", f"it has no column {missing[0]!r}, which the model reads")
        return rows

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.categorical = tags.input_tags.allow_nan = True
        return tags


class TableEncoder(TransformerMixin, _FrameReader):
    """Encode a data frame as a matrix of numbers, as `anchored fit` does.

    Each column is read as numbers, categories or dates, depending on its values; numbers and dates may be written as
    text. Missing values are filled in and marked; text that is different in most rows is left out.

    Parameters
    ----------
    ignore : sequence of str
        Names of columns to leave out.
    types : dict or None
        What columns are read as, by name: "number", "category" or "date". The others are inferred.
    decimal : str or None
        The decimal mark of numbers written as text, "." or ","; None infers it for each column.
    thousands : str or None
        The mark between groups of digits in numbers written as text; None infers it for each column.
    na_values : sequence of str
        Text that means a missing value, besides the usual words.
    date_format : str or None
        A format of strptime, preferred to others that fit a column equally well; None infers it for each column.

    Attributes
    ----------
    schema_ : Schema
        How each column is read and encoded; `schema_.left_out` says why a column is left out.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from anchored.tables import TableEncoder
    >>> table = pa.table({"area": ["141.9 m²", "80 m²", "95.5 m²"] * 2, "garden": ["yes", "N", "no"] * 2})
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.transform(table)[0].tolist()
    [141.9, 0.0, 1.0, 0.0]
    >>> encoder.get_feature_names_out().tolist()
    ['area', 'garden = no', 'garden = yes', 'number of unknown values']
    """

    def __init__(self, ignore=(), types=None, decimal=None, thousands=None, na_values=(), date_format=None):
        self.ignore = ignore
        self.types = types
        self.decimal = decimal
        self.thousands = thousands
        self.na_values = na_values
        self.date_format = date_format

    def fit(self, X: Any, y: object = None) -> Self:
        """Learn how to read and encode the columns of `X`, (rows, columns): a data frame or an array."""
        _, self.schema_ = self._infer(X)
        return self

    def transform(self, X: Any) -> np.ndarray:
        """Return the features of `X`, (rows, features)."""
        rows = self._rows(X)
        return self.schema_.encode(rows)[0]

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """Return the names of the features, (features,)."""
        check_is_fitted(self)
        return np.array(self.schema_.feature_names, object)


class _TableEstimator(_FrameReader):
    """What the regressor and the classifier share."""

    def __init__(
        self, estimator=None, ignore=(), types=None, decimal=None, thousands=None, na_values=(), date_format=None
    ):
        self.estimator = estimator
        self.ignore = ignore
        self.types = types
        self.decimal = decimal
        self.thousands = thousands
        self.na_values = na_values
        self.date_format = date_format

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        checkpoint: Path | str | None = None,
    ) -> Self:
        """Fit the model to a data frame.

        Parameters
        ----------
        X : data frame of pandas or polars, Arrow table, or array, (rows, columns)
            Inputs: numbers, text, categories, truth values, dates and missing values.
        y : (rows,)
            Targets: numbers, or labels of classes, without missing values.
        sample_weight : (rows,) or None
            The factor of each row's log-likelihood; None means 1 for every row. A row of weight 0 only has an effect on
            the inferred format of columns.
        checkpoint : path or None
            A new folder, in which the progress of training is stored. After an interruption, the same call continues
            the fit.

        Returns
        -------
        self
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        labels = column_or_1d(y, warn=True)
        rows, schema = self._infer(X)
        if len(labels) != len(rows):
            raise ArgumentError("y", f"has {len(labels)} values, but X has {len(rows)} rows")
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, labels)
            used = np.flatnonzero(weights)
            if 2 <= len(used) < len(rows):  # with fewer, the estimator raises an error
                rows, labels, sample_weight = rows.take(used), labels[used], weights[used]
                schema = schema.refitted(rows)
        self.target_name_ = str(getattr(y, "name", None) or "y")
        estimator = self._default_estimator() if self.estimator is None else clone(self.estimator)
        self.schema_ = schema
        options = {} if checkpoint is None else {"checkpoint": checkpoint}  # BayesianRegressor.fit has no such argument
        self.estimator_ = estimator.fit(schema.encode(rows)[0], _as_text(labels), sample_weight, **options)
        return self

    def predict_dist(self, X: Any) -> Predictive | CategoricalPredictive:
        """Return the predictive distribution of each row of `X`, as the estimator's `predict_dist` does."""
        rows = self._rows(X)
        return self.estimator_.predict_dist(self.schema_.encode(rows)[0])

    def conformalize(self, X: Any, y: ArrayLike, coverage: float = 0.95) -> Self:
        """Calibrate a guaranteed coverage with rows that the model was not fitted to, as the estimator's method does.

        Parameters
        ----------
        X : data frame, Arrow table or array, (rows, columns)
            Inputs of the calibration rows, at least coverage/(1 − coverage) of them.
        y : (rows,)
            Targets of the calibration rows.
        coverage : float
            The probability to guarantee, between 0 and 1.

        Returns
        -------
        self
        """
        rows = self._rows(X)
        self.estimator_.conformalize(self.schema_.encode(rows)[0], _as_text(column_or_1d(y, warn=True)), coverage)
        return self

    def save(self, path: Path | str) -> None:
        """Save the model to one file, without pickle, which `anchored.tables.load` and `anchored predict` read."""
        check_is_fitted(self)
        saved_model.save(TableModel(self.schema_, self._target(), self.estimator_, None), Path(path))

    def _default_estimator(self) -> Any:
        """Return the estimator that is used if none is given."""
        raise NotImplementedError

    def _target(self) -> Target:
        """Return the description of the target that is saved with the model."""
        raise NotImplementedError

    def _free_name(self) -> str:
        """Return the name of the target, or another if a column has this name."""
        name = getattr(self, "target_name_", "y")
        return name if name not in self.schema_.names else f"{name} (target)"


class TableRegressor(RegressorMixin, _TableEstimator):
    """Regression on a data frame, with the uncertainty of every prediction.

    It reads columns as `TableEncoder` does, and fits an estimator to their features. `save` writes the same files as
    `anchored fit`.

    Parameters
    ----------
    estimator : AnchoredRegressor, BayesianRegressor or None
        The estimator of the encoded columns; None is `AnchoredRegressor()`.
    ignore, types, decimal, thousands, na_values, date_format
        How the table is written, as in `TableEncoder`.

    Attributes
    ----------
    schema_ : Schema
        How each column is read and encoded.
    estimator_ : AnchoredRegressor or BayesianRegressor
        The fitted estimator.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from anchored import AnchoredRegressor
    >>> from anchored.tables import TableRegressor
    >>> table = pa.table({"size": [str(i) for i in range(40)], "kind": ["flat", "house"] * 20})
    >>> y = [3.0 * i + 20 * (i % 2) for i in range(40)]
    >>> estimator = AnchoredRegressor(3, (20,), noise_variance=1.0, prior_scale=2.0, random_state=0)
    >>> model = TableRegressor(estimator).fit(table, y)
    >>> lower, upper = model.predict_interval(table, coverage=0.95)
    >>> bool((lower < upper).all())
    True
    """

    def predict(self, X: Any, return_std: bool = False) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the predicted mean of each row of `X`, (rows,), in units of y.

        If `return_std`, return also the standard deviation of an observation, noise included.
        """
        predictive = self.predict_dist(X)
        assert isinstance(predictive, Predictive)
        return (predictive.mean, predictive.std) if return_std else predictive.mean

    def predict_interval(self, X: Any, coverage: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends, (rows,) each, of intervals that contain an observation with probability
        `coverage`, in units of y.
        """
        if not 0 < coverage < 1:
            raise ArgumentError("coverage", f"must lie between 0 and 1, got {coverage!r}")
        predictive = self.predict_dist(X)
        assert isinstance(predictive, Predictive)
        return predictive.interval(coverage)

    def predict_guaranteed_interval(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the lower and upper ends, (rows,) each, of the intervals that `conformalize` has calibrated."""
        rows = self._rows(X)
        return self.estimator_.predict_guaranteed_interval(self.schema_.encode(rows)[0])

    def _default_estimator(self) -> AnchoredRegressor:
        """Return the estimator that is used if none is given."""
        return AnchoredRegressor()

    def _target(self) -> Target:
        """Return the description of the target that is saved with the model."""
        scale = float(self.estimator_.y_standardisation_.scale[0])
        return Target(self._free_name(), str(Task.REGRESSION), True, 3, decimals(scale), Format())


class TableClassifier(ClassifierMixin, _TableEstimator):
    """Classification of the rows of a data frame, with the uncertainty of every prediction.

    Parameters
    ----------
    estimator : AnchoredClassifier, BayesianClassifier or None
        The estimator of the encoded columns; None is `AnchoredClassifier()`.
    ignore, types, decimal, thousands, na_values, date_format
        How the table is written, as in `TableEncoder`.

    Attributes
    ----------
    schema_ : Schema
        How each column is read and encoded.
    estimator_ : AnchoredClassifier or BayesianClassifier
        The fitted estimator.
    classes_ : (classes,)
        The labels, in the order of the predicted probabilities.
    """

    @property
    def classes_(self) -> np.ndarray:
        """The labels, in the order of the predicted probabilities."""
        return self.estimator_.classes_

    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each label for each row of `X`, (rows, classes)."""
        predictive = self.predict_dist(X)
        assert isinstance(predictive, CategoricalPredictive)
        return predictive.probabilities

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable label of each row of `X`, (rows,)."""
        probabilities = self.predict_proba(X)
        return self.classes_[probabilities.argmax(axis=1)]

    def predict_guaranteed_set(self, X: Any) -> np.ndarray:
        """Return a mask, (rows, classes), of the classes in the set that `conformalize` has calibrated for each row."""
        rows = self._rows(X)
        return self.estimator_.predict_guaranteed_set(self.schema_.encode(rows)[0])

    def _default_estimator(self) -> AnchoredClassifier:
        """Return the estimator that is used if none is given."""
        return AnchoredClassifier()

    def _target(self) -> Target:
        """Return the description of the target; labels must be text or whole numbers, or an ArgumentError is raised."""
        kind = self.classes_.dtype.kind
        if kind not in "iU":
            raise ArgumentError("y", f"has labels of type {self.classes_.dtype}", "use text or whole numbers as labels")
        return Target(self._free_name(), str(Task.CLASSIFICATION), kind == "i", len(self.classes_), 7, Format())


def load(path: Path | str) -> TableRegressor | TableClassifier:
    """Return the model that `save` or `anchored fit` wrote to the file `path`; raises a TableError if that fails."""
    model = saved_model.load(path)
    estimator: Any = model.estimator
    loaded = TableRegressor(estimator) if model.classes is None else TableClassifier(estimator)
    loaded.schema_, loaded.estimator_, loaded.target_name_ = model.schema, estimator, model.target.name
    loaded.n_features_in_ = len(model.schema.names) + len(model.schema.left_out)
    return loaded


def _as_text(labels: np.ndarray) -> np.ndarray:
    """Return labels that are Python strings as an array of text, which can be saved; others stay as they are."""
    is_text = labels.dtype == object and all(isinstance(label, str) for label in labels)
    return labels.astype(str) if is_text else labels
