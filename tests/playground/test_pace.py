"""A film keeps the pace of the browser."""

import time

import pytest

from anchored.playground import page as pages
from anchored.playground.pace import MAX_ON_THE_WAY, Pace


def test_few_pictures_are_on_their_way():
    pace = Pace()
    for number in range(1, MAX_ON_THE_WAY):
        assert pace.send() == number and not pace.is_ahead()
    pace.send()
    assert pace.is_ahead()
    pace.see(1)
    assert not pace.is_ahead()
    pace.send()
    assert pace.is_ahead()
    pace.see(MAX_ON_THE_WAY + 1)
    assert not pace.is_ahead()


@pytest.mark.parametrize("number", ["1", None, 1.5, -1, 2, [1]])
def test_what_is_no_number_of_a_picture_is_refused(number):
    pace = Pace()
    pace.send()
    with pytest.raises(ValueError, match="number of a picture"):
        pace.see(number)


def test_a_film_waits_for_the_browser_and_not_for_ever(monkeypatch):
    """A slow browser is waited for, and meanwhile a newer request is noticed; one that is silent is not waited for."""
    monkeypatch.setattr(pages, "SECONDS", 0.3)
    page = pages.Page.__new__(pages.Page)
    page._pace = Pace()
    for _ in range(MAX_ON_THE_WAY - 1):
        assert len(list(page.frame(pages.nothing))) == 1
    last = page.frame(pages.nothing)
    next(last)
    assert next(last) is pages.nothing  # waiting
    page._pace.see(1)
    assert list(last) == []
    started = time.monotonic()
    assert len(list(page.frame(pages.nothing))) > 2
    assert 0.2 < time.monotonic() - started < 5
