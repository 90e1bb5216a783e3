"""The rounds of `candidates.choose`, with scores that are known functions of the hyperparameters."""

import numpy as np

from anchored.estimators.candidates import FIRST_FRACTION, LAST_FRACTION, MAX_GAP, NetworkOption, choose, summary

SCALES, NOISES = (2.0, 1.0, 4.0), (1.0, 0.1, 0.01)


class Scores:
    """A score function with its minimum at a given prior scale and noise.

    Training for all epochs of the fit lowers the minimum by `gain`. Calls are recorded in `calls`.
    """

    def __init__(self, minimum, gain=0.0, scale=1.0, noise=0.03):
        self.minimum, self.gain, self.best = minimum, gain, np.log([scale, noise])
        self.calls = []

    def __call__(self, hyperparameters, fraction, on_progress):
        self.calls += [(*values, fraction) for values in hyperparameters]
        distance = np.abs(np.log(hyperparameters) - self.best).sum(1)
        return (self.minimum + 0.01 * distance - self.gain * fraction).tolist()


def option(scores, sizes=(50, 50), **fields):
    """A network option with these scores; a fit has 100 epochs."""
    return NetworkOption(
        sizes, "all", None, lambda *_: None, scores, lambda fraction: round(100 * fraction), NOISES, **fields
    )


def test_the_best_hyperparameters_of_one_network_are_found():
    scores = Scores(-2.0)
    found = choose([option(scores)], None, SCALES, 4.0)
    assert found.candidates[0].prior_scale == 1.0
    assert np.isclose(found.candidates[0].noise, 0.03)
    assert found.is_nearly_noise_free
    assert {fraction for *_, fraction in scores.calls} == {FIRST_FRACTION}  # there is no last round
    assert len(scores.calls) == len(NOISES) + 3 * len(SCALES) - 1


def test_data_with_noise():
    """The best network of the first round is tried with the other prior scales; nothing is trained for longer."""
    best, close = Scores(0.5), Scores(0.51, gain=1.0)
    close.minimum += close.gain * FIRST_FRACTION
    found = choose([option(best), option(close, (100,))], None, SCALES, 4.0)
    assert not found.is_nearly_noise_free
    chosen = found.candidates[0]
    assert (chosen.hidden_layer_sizes, chosen.prior_scale) == ((50, 50), 1.0)
    assert len(close.calls) == len(NOISES)
    noises = {noise for _, noise, _ in best.calls}
    assert noises == set(NOISES)
    assert len(best.calls) == len(NOISES) + len(SCALES) - 1


def test_networks_that_predict_hardly_better_than_a_constant():
    """Narrower priors are tried with the largest noise; the best of both kinds are compared once more."""
    weak, strong, given = (Scores(minimum, scale=0.25, noise=1.0) for minimum in (0.4, 0.3, 0.4))
    found = choose([option(weak, score_of_constant=0.5)], None, SCALES, 4.0)
    assert found.candidates[0][3:5] == (0.25, 1.0)
    assert {(0.5, 1.0, FIRST_FRACTION), (0.25, 1.0, FIRST_FRACTION)} < set(weak.calls)
    assert [call[:2] for call in weak.calls if call[2] == LAST_FRACTION] == [(1.0, 1.0), (0.25, 1.0)]
    assert len(set(weak.calls)) == len(weak.calls) == len(NOISES) + len(SCALES) - 1 + 2 + 2
    choose([option(strong, score_of_constant=0.5)], None, SCALES, 4.0)
    assert len(strong.calls) == len(NOISES) + len(SCALES) - 1
    choose([option(given, score_of_constant=0.5)], None, (2.0,), 4.0)
    assert {scale for scale, *_ in given.calls} == {2.0}


def test_a_network_that_learns_slowly_wins_the_last_round():
    fast, slow = option(Scores(-2.0, gain=0.0)), option(Scores(-1.9, gain=1.0), (100,))
    found = choose([fast, slow], None, SCALES, 1.0)
    assert found.option is slow
    assert [candidate.n_epochs for candidate in found.candidates[:3]] == [80, 80, 20]
    gap = -2.0 - (-1.9 - LAST_FRACTION)  # both were trained for LAST_FRACTION of the epochs, at the minimum
    assert f"{gap:.3f} nats per row worse" in summary(found.candidates)


def test_a_network_far_behind_is_dropped_after_the_first_round():
    best, far = Scores(-2.0), Scores(MAX_GAP - 1.8, gain=10 * MAX_GAP / LAST_FRACTION, noise=0.1, scale=2.0)
    far.minimum += far.gain * FIRST_FRACTION  # behind in the first round, although it would win the last
    assert choose([option(best), option(far)], None, SCALES, 4.0).candidates[0].hidden_layer_sizes == (50, 50)
    assert len(far.calls) == len(NOISES)


def test_data_without_noise():
    """Members are trained for longer, and the scores of the wide network are penalised only in the first two rounds."""
    trained, wide = Scores(-2.0, gain=0.1), Scores(-3.0)
    wide_option = option(wide, (1000,), score_penalty=1.0)
    found = choose([option(trained)], lambda: wide_option, SCALES, 4.0)
    assert found.is_nearly_noise_free
    assert found.option is wide_option
    assert {fraction for *_, fraction in trained.calls} == {FIRST_FRACTION, 4 * LAST_FRACTION}
    behind = option(Scores(-2.2), (1000,), score_penalty=1.0)
    assert choose([option(trained)], lambda: behind, SCALES, 4.0).option is not behind
    noisy = Scores(0.0)
    assert not choose([option(noisy)], lambda: wide_option, SCALES, 4.0).is_nearly_noise_free


def test_one_candidate_is_not_trained():
    scores = Scores(0.0)
    given = NetworkOption((50,), "all", None, lambda *_: None, scores, lambda fraction: 1, (np.nan,))
    found = choose([given], None, (2.0,), 4.0)
    assert (len(found.candidates), scores.calls) == (1, [])
