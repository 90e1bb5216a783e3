"""Candidates for the model, compared by cross-validation with successive halving.

A candidate is a network, the encoding of its inputs, a noise and a prior scale. Networks with all layers trained are
compared first. If they predict nearly all of the variance, a wide network whose last layer is solved in closed form is
compared too: gradient descent would take too long to fit a function without noise that closely. On such data, members
are also trained for longer.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from anchored.estimators.encoding import PiecewiseLinearEncoding
from anchored.model.bayesian_model import BayesianModel
from anchored.types import OnProgress

PriorScale = float | tuple[float, ...]  # of the first layer, or of each layer
Setting = tuple[PriorScale, float]  # prior scale and noise

# (settings, share of the epochs of the fit, function that is told of progress) -> a score for each setting
ScoreSettings = Callable[[list[Setting], float, OnProgress | None], list[float]]

FIRST_SHARE, FINAL_SHARE = 0.2, 0.8  # of the epochs of the fit, in the first two rounds and in the last
NOISE_FREE_SCORE = -1.25  # a better score means that residuals have less than a fifth of the standard deviation of y
MAX_GAP = 0.25  # networks whose score exceeds the best by more are dropped after the first round
NOISE_STEP = 3.0  # factor between neighbouring noises of the second round


@dataclass(frozen=True)
class NetworkOption:
    """A network, which of its layers are trained, and how its inputs are encoded; `choose` compares several."""

    hidden_layer_sizes: tuple[int, ...] | None  # None for a custom network
    trainable: str  # "all" or "last_layer"
    encoding: PiecewiseLinearEncoding | None  # of the inputs
    make_model: Callable[[PriorScale, float], BayesianModel]  # from a prior scale, and a noise
    score: ScoreSettings  # of pilot members with this network
    n_epochs: Callable[[float], int]  # of pilot members, from the share of those of the fit
    noises: tuple[float, ...]  # noise variances or temperatures to choose from
    handicap: float = 0.0  # added to its scores while pilot members of other networks are trained for a short time only


class Candidate(NamedTuple):
    """A setting that was tried, and its score on rows left out."""

    hidden_layer_sizes: tuple[int, ...] | None  # None for a custom network
    trainable: str  # "all" or "last_layer"
    input_encoding: str  # "standard" or "piecewise_linear"
    prior_scale: PriorScale
    noise: float  # noise variance of standardised targets in training; for classes, the temperature
    n_epochs: int  # for which its pilot members were trained; 0 if there was nothing to compare
    score: float  # in nats per row, up to a constant; lower is better; NaN if there was nothing to compare

    @property
    def network_in_words(self) -> str:
        """The network, how it is trained and how its inputs are encoded, in words."""
        sizes = "custom network" if self.hidden_layer_sizes is None else " × ".join(map(str, self.hidden_layer_sizes))
        last_layer = ", last layer in closed form" if self.trainable == "last_layer" else ""
        inputs = "standardised" if self.input_encoding == "standard" else self.input_encoding.replace("_", " ")
        return f"{sizes}{last_layer}, {inputs} inputs"


class Choice(NamedTuple):
    """What `choose` returns."""

    option: NetworkOption  # the network of the best candidate
    candidates: list[Candidate]  # those trained for longest first, and of these the best first
    is_noise_free: bool  # whether the data have hardly any noise


def choose(
    options: list[NetworkOption],
    make_wide: Callable[[], NetworkOption] | None,
    prior_scales: tuple[PriorScale, ...],
    noise_free_factor: float,
    on_progress: OnProgress | None = None,
) -> Choice:
    """Choose a network, a noise and a prior scale in three rounds.

    In the first, each network is tried with each of its noises, at the first prior scale. In the second, networks whose
    score is close to the best are tried with neighbouring noises and other prior scales. If several networks remain,
    their best candidates are trained nearly as long as the fit: networks that learn fast are not always the best.

    Parameters
    ----------
    options : list of NetworkOption
        Networks to choose from.
    make_wide : function or None
        Makes the wide network with a last layer in closed form, which is compared only if another candidate scores
        below NOISE_FREE_SCORE; None to leave it out.
    prior_scales : tuple of float
        Prior scales to choose from.
    noise_free_factor : float
        How many times as long members are trained on data with hardly any noise.
    on_progress : function or None
        Called with the fraction of the work done since the last call, and the loss.

    Returns
    -------
    Choice
        The network of the best candidate, and all candidates; a single one is not trained.
    """
    if sum(len(option.noises) for option in options) * len(prior_scales) == 1:
        setting = prior_scales[0], options[0].noises[0]
        return Choice(options[0], [_candidate(options[0], setting, 0, np.nan)], is_noise_free=False)
    n_stages = 2 * len(options) + (len(options) > 1)

    def scored(option: NetworkOption, settings: list[Setting], share: float = FIRST_SHARE) -> list[Candidate]:
        """Candidates with this network, whose pilot members are trained for this share of the epochs of the fit."""
        if not settings:
            return []
        # A network that is solved in closed form takes no time
        report = None if option.trainable == "last_layer" or on_progress is None else on_stage_progress
        handicap = option.handicap if share == FIRST_SHARE else 0.0
        scores = [score + handicap for score in option.score(settings, share, report)]
        n_epochs = option.n_epochs(share)
        return [_candidate(option, setting, n_epochs, score) for setting, score in zip(settings, scores, strict=True)]

    def on_stage_progress(share: float, loss: float) -> None:
        assert on_progress is not None
        on_progress(share / n_stages, loss)

    def first_round(option: NetworkOption) -> tuple[NetworkOption, list[Candidate]]:
        return option, scored(option, [(prior_scales[0], noise) for noise in option.noises])

    tried = [first_round(option) for option in options]
    best_score = min(_best(candidates).score for _, candidates in tried)
    is_noise_free = best_score < NOISE_FREE_SCORE
    if make_wide is not None and is_noise_free:
        tried.append(first_round(make_wide()))
        best_score = min(_best(candidates).score for _, candidates in tried)
    remaining = [(option, found) for option, found in tried if _best(found).score <= best_score + MAX_GAP]
    for option, found in remaining:
        found += scored(option, _neighbours(_best(found), prior_scales, option.noises))
    finals = [_best(found) for _, found in remaining]
    if len(remaining) > 1:
        share = FINAL_SHARE * (noise_free_factor if is_noise_free else 1)
        for (option, found), best in zip(remaining, finals, strict=True):
            found += scored(option, [(best.prior_scale, best.noise)], share)
        finals = [found[-1] for _, found in remaining]
    chosen = remaining[int(np.argmin([candidate.score for candidate in finals]))][0]
    candidates = sorted(chain(*(found for _, found in tried)), key=lambda found: (-found.n_epochs, found.score))
    return Choice(chosen, candidates, is_noise_free)


def _best(candidates: list[Candidate]) -> Candidate:
    """Return the candidate with the lowest score."""
    return min(candidates, key=lambda candidate: candidate.score)


def _neighbours(best: Candidate, prior_scales: tuple[PriorScale, ...], noises: tuple[float, ...]) -> list[Setting]:
    """Return settings near that of `best`: prior scales, each with its noise and, unless that is given, nearby ones."""
    factors = (1.0, 1 / NOISE_STEP, NOISE_STEP) if len(noises) > 1 else (1.0,)
    near = [(scale, factor) for scale in prior_scales for factor in factors]
    return [(scale, best.noise * factor) for scale, factor in near if (scale, factor) != (best.prior_scale, 1.0)]


def _candidate(option: NetworkOption, setting: Setting, n_epochs: int, score: float) -> Candidate:
    """Return the candidate with this network and `setting`."""
    encoding = "standard" if option.encoding is None else "piecewise_linear"
    return Candidate(option.hidden_layer_sizes, option.trainable, encoding, *setting, n_epochs, score)


def summary(candidates: list[Candidate]) -> str:
    """Return a sentence that says which of `candidates`, the first, was chosen, and by how much."""
    best = candidates[0]
    noise = "" if np.isnan(best.noise) else f", training noise {best.noise:g}"  # NaN if it is given
    chosen = f"chosen: {best.network_in_words}; prior scale {best.prior_scale}{noise}"
    others = [candidate for candidate in candidates if candidate.network_in_words != best.network_in_words]
    if not others:
        return chosen
    gap = others[0].score - min(c.score for c in candidates if _is_comparable(c, best, others[0].n_epochs))
    return f"{chosen}; next: {others[0].network_in_words}, whose score on rows left out is {gap:.3f} nats per row worse"


def _is_comparable(candidate: Candidate, best: Candidate, n_epochs: int) -> bool:
    """Whether `candidate` has the network of `best`, and was trained for `n_epochs`."""
    return candidate.network_in_words == best.network_in_words and candidate.n_epochs == n_epochs
