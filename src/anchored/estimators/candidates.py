"""Choose a network and its hyperparameters among candidates, by cross-validation with successive halving.

A candidate is a network, an encoding of its inputs, a prior scale and a noise. The noise is the noise variance of the
training loss or, for a classifier, the temperature of the likelihood. Candidates are scored by pilot members: members
that are trained for a fraction of the epochs of the final fit, each without one cross-validation fold.

Networks with all layers trained are compared first. If they predict nearly all of the variance, the data have hardly
any noise, and gradient descent needs many epochs to fit them that closely. Two things then change: members are trained
for longer, and a wide network whose last layer is solved in closed form is compared too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from anchored.estimators.encoding import PiecewiseLinearEncoding
from anchored.inference.solvers import blocks
from anchored.model.bayesian_model import BayesianModel
from anchored.types import OnProgress

PriorScale = float | tuple[float, ...]  # prior scale of the first layer, or one for each layer
Hyperparameters = tuple[PriorScale, float]  # prior scale and noise

# (hyperparameters to score, fraction of the epochs of the fit, progress callback) -> a score for each
ScoreFunction = Callable[[list[Hyperparameters], float, OnProgress | None], list[float]]

FIRST_FRACTION = 0.2  # pilot members are trained for this fraction of the epochs of the fit in the first two rounds
LAST_FRACTION = 0.8  # pilot members are trained for this fraction of the epochs of the fit in the last round
NOISE_FREE_SCORE = -1.25  # below it, the standard deviation of residuals is less than a fifth of that of y
MAX_GAP = 0.25  # without noise, networks whose score exceeds the lowest by more are dropped after the first round
NOISE_STEP = 3.0  # factor between neighbouring noises in the second round

# Where networks predict hardly better than a constant does, they need a prior that keeps them closer to a constant
MIN_GAIN = 0.1  # nats per row that networks must gain over the constant
CAUTIOUS_PRIOR_SCALES = (1.0, 0.5, 0.25)


@dataclass(frozen=True)
class NetworkOption:
    """A network to choose from: which of its layers are trained, how its inputs are encoded, and how it is scored."""

    hidden_layer_sizes: tuple[int, ...] | None  # None for a custom network
    trainable: str  # "all" or "last_layer"
    encoding: PiecewiseLinearEncoding | None  # of the inputs; None if they are only standardised
    make_model: Callable[[PriorScale, float], BayesianModel]  # makes a model from a prior scale and a noise
    score: ScoreFunction  # scores hyperparameters of this network
    n_epochs: Callable[[float], int]  # number of epochs of pilot members, from the fraction of the fit's epochs
    noises: tuple[float, ...]  # noises to choose from
    score_penalty: float = 0.0  # added to the scores of the first two rounds, in which other networks train briefly
    score_of_constant: float = np.inf  # score of the best prediction that does not depend on the inputs


class Candidate(NamedTuple):
    """A network and hyperparameters that were tried, and their score on held-out rows."""

    hidden_layer_sizes: tuple[int, ...] | None  # None for a custom network
    trainable: str  # "all" or "last_layer"
    input_encoding: str  # "standard" or "piecewise_linear"
    prior_scale: PriorScale
    noise: float  # noise variance of standardised targets in the training loss; for a classifier, the temperature
    n_epochs: int  # number of epochs that its pilot members were trained for; 0 if it was the only candidate
    score: float  # in nats per row, up to a constant; lower is better; NaN if it was the only candidate

    @property
    def network_in_words(self) -> str:
        """A description of the network, of how it is trained and of how its inputs are encoded."""
        sizes = "custom network" if self.hidden_layer_sizes is None else " × ".join(map(str, self.hidden_layer_sizes))
        last_layer = ", last layer in closed form" if self.trainable == "last_layer" else ""
        inputs = "standardised" if self.input_encoding == "standard" else self.input_encoding.replace("_", " ")
        return f"{sizes}{last_layer}, {inputs} inputs"


class Choice(NamedTuple):
    """What `choose` returns."""

    option: NetworkOption  # the network of the best candidate
    candidates: list[Candidate]  # the best one first, then sorted by decreasing number of epochs, then by score
    is_nearly_noise_free: bool  # whether the data have hardly any noise


@dataclass
class _TriedNetwork:
    """A network and its candidates so far."""

    option: NetworkOption
    candidates: list[Candidate]

    @property
    def best(self) -> Candidate:
        """The candidate with the lowest score."""
        return min(self.candidates, key=lambda candidate: candidate.score)


def choose(
    options: list[NetworkOption],
    make_wide: Callable[[], NetworkOption] | None,
    prior_scales: tuple[PriorScale, ...],
    noise_free_factor: float,
    on_progress: OnProgress | None = None,
) -> Choice:
    """Choose a network, a noise and a prior scale in two or three rounds.

    In the first round, each network is tried with each of its noises, at the first prior scale. In the second, the best
    network is tried with the other prior scales.

    Data with hardly any noise are treated with more care, since members fit them better the longer they are trained.
    All networks whose score is close to the lowest reach the second round, in which neighbouring noises are tried too.
    If there are several, the best candidate of each is trained nearly as long as in the fit, in a third round. On
    other data these steps made the choice worse: members that are trained briefly need a smaller noise.

    If the first round finds networks that predict hardly better than a constant does, narrower priors are tried too,
    together with the largest noise. The best candidate with a narrower prior, and the best of the other candidates, are
    then trained nearly as long as in the fit.

    Parameters
    ----------
    options : list of NetworkOption
        Networks to choose from.
    make_wide : function or None
        Makes the wide network whose last layer is solved in closed form. It is called only if the data have hardly any
        noise: if another candidate has a score below NOISE_FREE_SCORE. None if there is no such network.
    prior_scales : tuple of float
        Prior scales to choose from.
    noise_free_factor : float
        Factor by which the number of epochs is increased for data with hardly any noise.
    on_progress : function or None
        Called with the fraction of the work done since the last call, and the loss.

    Returns
    -------
    Choice
        The network of the best candidate, and all candidates. If there is only one candidate, nothing is trained.
    """
    if sum(len(option.noises) for option in options) * len(prior_scales) == 1:
        only = _candidate(options[0], (prior_scales[0], options[0].noises[0]), n_epochs=0, score=np.nan)
        return Choice(options[0], [only], is_nearly_noise_free=False)
    n_stages = 2 * len(options) + (len(options) > 1)

    def on_stage_progress(fraction: float, loss: float) -> None:
        assert on_progress is not None
        on_progress(fraction / n_stages, loss)

    report = None if on_progress is None else on_stage_progress

    def first_hyperparameters(network: _TriedNetwork) -> list[Hyperparameters]:
        return [(prior_scales[0], noise) for noise in network.option.noises]

    tried = [_TriedNetwork(option, []) for option in options]
    _try(tried, first_hyperparameters, FIRST_FRACTION, report)
    is_nearly_noise_free = min(network.best.score for network in tried) < NOISE_FREE_SCORE
    if make_wide is not None and is_nearly_noise_free:
        wide = _TriedNetwork(make_wide(), [])
        _try([wide], first_hyperparameters, FIRST_FRACTION, report)
        tried.append(wide)

    max_gap = MAX_GAP if is_nearly_noise_free else 0.0
    highest = min(network.best.score for network in tried) + max_gap
    remaining = [network for network in tried if network.best.score <= highest]

    has_signal = remaining[0].best.score < remaining[0].option.score_of_constant - MIN_GAIN
    _try(remaining, lambda network: _neighbours(network, prior_scales, is_nearly_noise_free), FIRST_FRACTION, report)

    chosen = remaining[0]
    if len(remaining) > 1:
        fraction = LAST_FRACTION * (noise_free_factor if is_nearly_noise_free else 1)
        _try(remaining, lambda network: [(network.best.prior_scale, network.best.noise)], fraction, report)
        chosen = min(remaining, key=lambda network: network.candidates[-1].score)
    elif not has_signal and len(prior_scales) > 1:
        n_first = len(chosen.candidates)
        _try(remaining, _cautious_hyperparameters, FIRST_FRACTION, report)
        # Members that are trained briefly may not have found the signal yet
        _try(remaining, lambda network: _finalists(network, n_first), LAST_FRACTION, report)
    candidates = [candidate for network in tried for candidate in network.candidates]
    candidates.sort(key=lambda candidate: (-candidate.n_epochs, candidate.score))
    return Choice(chosen.option, candidates, is_nearly_noise_free)


def _try(
    networks: list[_TriedNetwork],
    hyperparameters: Callable[[_TriedNetwork], list[Hyperparameters]],
    fraction: float,
    on_progress: OnProgress | None,
) -> None:
    """Score the `hyperparameters(network)` of each network, and append them to its candidates.

    Pilot members are trained for this `fraction` of the epochs of the fit. The program of one network is compiled while
    the members of another are trained.
    """

    def candidates(index: int) -> list[Candidate]:
        return _score(networks[index].option, hyperparameters(networks[index]), fraction, on_progress)

    for network, found in zip(networks, blocks.run(candidates, range(len(networks))), strict=True):
        network.candidates += found


def _score(
    option: NetworkOption, hyperparameters: list[Hyperparameters], fraction: float, on_progress: OnProgress | None
) -> list[Candidate]:
    """Return candidates with this network, one for each of `hyperparameters`.

    Their pilot members are trained for this `fraction` of the epochs of the fit.
    """
    if not hyperparameters:
        return []
    report = None if option.trainable == "last_layer" else on_progress  # a closed form takes hardly any time
    penalty = option.score_penalty if fraction == FIRST_FRACTION else 0.0
    scores = option.score(hyperparameters, fraction, report)
    n_epochs = option.n_epochs(fraction)
    return [
        _candidate(option, values, n_epochs, score + penalty)
        for values, score in zip(hyperparameters, scores, strict=True)
    ]


def _neighbours(
    network: _TriedNetwork, prior_scales: tuple[PriorScale, ...], is_nearly_noise_free: bool
) -> list[Hyperparameters]:
    """Return the hyperparameters to try in the second round, without those of the network's best candidate.

    Each prior scale is combined with the noise of the best candidate. On data with hardly any noise, it is also
    combined with the two neighbours of that noise, unless the noise is given.
    """
    best = network.best
    vary_noise = is_nearly_noise_free and len(network.option.noises) > 1
    factors = (1.0, 1 / NOISE_STEP, NOISE_STEP) if vary_noise else (1.0,)
    near = [(scale, factor) for scale in prior_scales for factor in factors]
    return [(scale, best.noise * factor) for scale, factor in near if (scale, factor) != (best.prior_scale, 1.0)]


def _cautious_hyperparameters(network: _TriedNetwork) -> list[Hyperparameters]:
    """Return the hyperparameters with narrow priors and the largest noise that have not been tried."""
    known = [(candidate.prior_scale, candidate.noise) for candidate in network.candidates]
    narrow = [(scale, max(network.option.noises)) for scale in CAUTIOUS_PRIOR_SCALES]
    return [values for values in narrow if values not in known]


def _finalists(network: _TriedNetwork, n_first: int) -> list[Hyperparameters]:
    """Return the hyperparameters of the best of the first `n_first` candidates, and of the best of the later ones."""
    parts = network.candidates[:n_first], network.candidates[n_first:]
    best = [min(part, key=lambda candidate: candidate.score) for part in parts if part]
    return [(candidate.prior_scale, candidate.noise) for candidate in best]


def _candidate(option: NetworkOption, hyperparameters: Hyperparameters, n_epochs: int, score: float) -> Candidate:
    """Return the candidate with this network and these `hyperparameters`."""
    encoding = "standard" if option.encoding is None else "piecewise_linear"
    return Candidate(option.hidden_layer_sizes, option.trainable, encoding, *hyperparameters, n_epochs, score)


def summary(candidates: list[Candidate]) -> str:
    """Describe the chosen candidate, the first of `candidates`, and its lead over the next network, in one line."""
    best = candidates[0]
    noise = "" if np.isnan(best.noise) else f", training noise {best.noise:g}"  # NaN if it is given
    chosen = f"chosen: {best.network_in_words}; prior scale {best.prior_scale}{noise}"
    others = [candidate for candidate in candidates if candidate.network_in_words != best.network_in_words]
    if not others:
        return chosen
    gap = others[0].score - min(c.score for c in candidates if _is_comparable(c, best, others[0].n_epochs))
    return f"{chosen}; next: {others[0].network_in_words}, whose score on held-out rows is {gap:.3f} nats per row worse"


def _is_comparable(candidate: Candidate, best: Candidate, n_epochs: int) -> bool:
    """Return whether `candidate` has the network of `best` and was trained for `n_epochs` epochs."""
    return candidate.network_in_words == best.network_in_words and candidate.n_epochs == n_epochs
