"""Write models and the parameters of their members as arrays, and read them back.

The shape, data type and range of every array are checked when it is read, and a StorageError names one that is invalid.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import jax
import numpy as np

from anchored import trees
from anchored.estimators.bounds import check_outputs
from anchored.inference.posterior import MemberPosterior
from anchored.model.bayesian_model import BayesianModel
from anchored.model.likelihoods import Likelihood
from anchored.model.networks import MLP, Network
from anchored.model.predictive import Predictive
from anchored.model.priors import Prior
from anchored.storage.arrays import Arrays
from anchored.storage.headers import StorageError
from anchored.types import Params

MIN_POSITIVE = 1e-45  # about the smallest positive number of float32
MAX_PARAMETER = 1e15  # largest absolute parameter; two parameters times an input of 1e6 still fit in float32
MAX_HYPERPARAMETER = 1e31  # largest value of a likelihood's field, or of a row's weight; the smallest is its inverse


def model_arrays(name: str, model: BayesianModel) -> dict[str, np.ndarray]:
    """Return the prior of `model` and the fields of its likelihood as arrays, whose names start with `name`."""
    arrays = arrays_by_path(f"{name}/prior_mean", model.prior.mean)
    arrays |= arrays_by_path(f"{name}/prior_scale", model.prior.scale)
    likelihood = model.likelihood
    values = {field: getattr(likelihood, field) for field in likelihood.field_names()}
    return arrays | {f"{name}/likelihood/{field}": np.asarray(value) for field, value in values.items()}


def arrays_by_path(prefix: str, tree: Params) -> dict[str, np.ndarray]:
    """Return the leaves of `tree` as arrays, by name.

    The name of a leaf is `prefix` followed by the keys that lead to it in `tree`, joined by slashes.
    """
    names = ["/".join((prefix, *path)) for path in trees.paths(tree)]
    return {name: np.asarray(leaf) for name, leaf in zip(names, jax.tree.leaves(tree), strict=True)}


def read_model(
    name: str,
    network: Network,
    likelihood_class: type[Likelihood],
    arrays: Arrays,
    n_features: int,
    n_outputs: int,
    is_custom: bool,
) -> BayesianModel:
    """Return a model whose prior and likelihood are stored in arrays.

    Parameters
    ----------
    name : str
        Start of the names of the arrays.
    network : Network
        The network of the model.
    likelihood_class : type
        The class of the likelihood.
    arrays : Arrays
        The arrays of the file.
    n_features, n_outputs : int
        Numbers of columns of the inputs and of the targets.
    is_custom : bool
        Whether the network is the user's. Arrays that do not fit it then raise an error about the network.
    """
    scalars = jax.tree.map(lambda _: np.zeros(()), parameter_template(network, n_features))
    with _explain_mismatch(is_custom):
        mean = _read_tree(f"{name}/prior_mean", scalars, arrays)
        scale = _read_tree(f"{name}/prior_scale", scalars, arrays, least=MIN_POSITIVE)
    values = {}
    is_regression = likelihood_class.predictive is Predictive
    for field in likelihood_class.field_names():
        array_name = f"{name}/likelihood/{field}"
        shape = (n_outputs,) if is_regression and arrays.shape(array_name) else ()
        values[field] = arrays.take(array_name, shape, least=1 / MAX_HYPERPARAMETER, most=MAX_HYPERPARAMETER)
    model = BayesianModel(network, Prior(mean, scale), likelihood_class(**values))
    check_same_precision(name, model)
    return model


def read_noise_model(
    network: MLP, likelihood_class: type[Likelihood], arrays: Arrays, n_features: int
) -> MemberPosterior:
    """Return the noise model: the ensemble that predicts how the noise varies with x.

    Parameters
    ----------
    network : MLP
        The network of its members.
    likelihood_class : type
        The class of its likelihood.
    arrays : Arrays
        The arrays of the file.
    n_features : int
        Number of columns of the inputs.
    """
    model = read_model("noise", network, likelihood_class, arrays, n_features, network.n_outputs, is_custom=False)
    members = read_members("noise/members", parameter_template(network, n_features), arrays, None)
    check_outputs("noise/members", network, members)
    return MemberPosterior(model, members)


def parameter_template(network: Network, n_features: int) -> Params:
    """Return parameters of `network` for `n_features` features, with the structure and shapes of stored ones."""
    initialise = partial(network.init, jax.random.key(0), np.zeros((1, n_features), np.float32))
    if isinstance(network, MLP):
        return initialise()
    try:
        return initialise()
    except Exception as error:  # the user's code may raise anything for a wrong number of columns
        raise StorageError(f"network: cannot be applied to rows of {n_features} columns: {error}") from error


@contextmanager
def _explain_mismatch(is_custom: bool) -> Iterator[None]:
    """Context manager for reading parameters: explains a StorageError that is due to the wrong custom network.

    If the network `is_custom`, parameters that do not fit it were stored with another network, and the error says so.
    """
    try:
        yield
    except StorageError as error:
        if not is_custom:
            raise
        raise StorageError(f"network: the model was fitted with another network: {error}") from error


def read_members(name: str, template: Params, arrays: Arrays, n_members: int | None, is_custom: bool = False) -> Params:
    """Return stored members, in the structure of `template`.

    Parameters
    ----------
    name : str
        Start of the names of the arrays.
    template : pytree
        Parameters of one member.
    arrays : Arrays
        The arrays of the file.
    n_members : int or None
        Number of members that there must be; None for any number.
    is_custom : bool
        Whether the network is the user's. The data types of its parameters may then differ from each other.
    """
    with _explain_mismatch(is_custom):
        if n_members is None:
            first = "/".join((name, *trees.paths(template)[0]))
            n_members = (arrays.shape(first) or (0,))[0]
            if n_members == 0:
                arrays.refuse(first, "must have an entry for each member")
        members = _read_tree(name, template, arrays, n_members)
    if not is_custom:
        check_same_precision(name, members)
    return members


def _read_tree(prefix: str, template: Params, arrays: Arrays, *leading: int, least: float = -MAX_PARAMETER) -> Params:
    """Return stored arrays, whose names start with `prefix`, in the structure of `template`.

    An array has the axes of its leaf in `template`, preceded by axes of the lengths `leading`. Its entries must lie
    between `least` and MAX_PARAMETER.
    """
    leaves = [
        arrays.take("/".join((prefix, *path)), (*leading, *np.shape(leaf)), least=least, most=MAX_PARAMETER)
        for path, leaf in zip(trees.paths(template), jax.tree.leaves(template), strict=True)
    ]
    return jax.tree.unflatten(jax.tree.structure(template), leaves)


def check_same_precision(name: str, tree: Params) -> None:
    """Raise a StorageError unless all leaves of `tree` have the same data type.

    The names of their arrays start with `name`.
    """
    types = {leaf.dtype.name for leaf in jax.tree.leaves(tree)}
    if len(types) > 1:
        raise StorageError(f"arrays {name + '/'!r} must be of one type, not of {' and '.join(sorted(types))}")
