"""Rounds of candidates, with scores that are known functions of the settings."""

import numpy as np

from anchored.estimators.candidates import FINAL_SHARE, FIRST_SHARE, MAX_GAP, NetworkOption, choose, summary

SCALES, NOISES = (2.0, 1.0, 4.0), (1.0, 0.1, 0.01)


class Scores:
    """Scores with a minimum at a prior scale and a noise, which training for longer lowers; keeps what was asked."""

    def __init__(self, least, gain=0.0, scale=1.0, noise=0.03):
        self.least, self.gain, self.best = least, gain, np.log([scale, noise])
        self.asked = []

    def __call__(self, settings, share, on_progress):
        self.asked += [(*setting, share) for setting in settings]
        distance = np.abs(np.log(settings) - self.best).sum(1)
        return (self.least + 0.01 * distance - self.gain * share).tolist()


def option(scores, sizes=(50, 50), **fields):
    return NetworkOption(
        sizes, "all", None, lambda *_: None, scores, lambda share: round(100 * share), NOISES, **fields
    )


def test_the_best_setting_of_one_network_is_found():
    scores = Scores(0.5)
    found = choose([option(scores)], None, SCALES, 4.0)
    assert found.candidates[0].prior_scale == 1.0
    assert np.isclose(found.candidates[0].noise, 0.03)
    assert not found.is_noise_free
    assert {share for *_, share in scores.asked} == {FIRST_SHARE}  # nothing to decide in a last round
    assert len(scores.asked) == len(NOISES) + 3 * len(SCALES) - 1


def test_a_network_that_learns_slowly_wins_the_last_round():
    fast, slow = option(Scores(0.0, gain=0.0)), option(Scores(0.1, gain=1.0), (100,))
    found = choose([fast, slow], None, SCALES, 4.0)
    assert found.option is slow
    assert [candidate.n_epochs for candidate in found.candidates[:3]] == [80, 80, 20]
    gap = 0.0 - (0.1 - FINAL_SHARE) + 0.01 * (np.log(1.0) + 0)
    assert f"{gap:.3f} nats per row worse" in summary(found.candidates)


def test_a_network_far_behind_is_dropped_after_the_first_round():
    best, far = Scores(0.0), Scores(MAX_GAP + 0.2, gain=10 * MAX_GAP / FINAL_SHARE, noise=0.1, scale=2.0)
    far.least += far.gain * FIRST_SHARE  # behind at first, although it would win
    assert choose([option(best), option(far)], None, SCALES, 4.0).candidates[0].hidden_layer_sizes == (50, 50)
    assert len(far.asked) == len(NOISES)


def test_data_without_noise():
    """Members are trained for longer, and the wide network has a handicap only while they are not."""
    trained, wide = Scores(-2.0, gain=0.1), Scores(-3.0)
    wide_option = option(wide, (1000,), handicap=1.0)
    found = choose([option(trained)], lambda: wide_option, SCALES, 4.0)
    assert found.is_noise_free
    assert found.option is wide_option
    assert {share for *_, share in trained.asked} == {FIRST_SHARE, 4 * FINAL_SHARE}
    behind = option(Scores(-2.2), (1000,), handicap=1.0)
    assert choose([option(trained)], lambda: behind, SCALES, 4.0).option is not behind
    noisy = Scores(0.0)
    assert not choose([option(noisy)], lambda: wide_option, SCALES, 4.0).is_noise_free


def test_one_candidate_is_not_trained():
    scores = Scores(0.0)
    given = NetworkOption((50,), "all", None, lambda *_: None, scores, lambda share: 1, (np.nan,))
    found = choose([given], None, (2.0,), 4.0)
    assert (len(found.candidates), scores.asked) == (1, [])
