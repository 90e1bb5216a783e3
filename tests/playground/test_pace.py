"""A film keeps the pace of the browser."""

import time

import pytest

from anchored.playground import page as pages
from anchored.playground.pace import Pace


def test_at_most_two_pictures_are_on_their_way():
    pace = Pace()
    assert pace.send() == 1 and not pace.is_ahead()
    assert pace.send() == 2 and pace.is_ahead()
    pace.see(1)
    assert not pace.is_ahead()
    pace.send()
    pace.see(3)
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
    assert len(list(page.frame(pages.nothing))) == 1  # the first picture is waited for by the second only
    second = page.frame(pages.nothing)
    next(second)
    assert next(second) is pages.nothing  # waiting
    page._pace.see(1)
    assert list(second) == []
    started = time.monotonic()
    assert len(list(page.frame(pages.nothing))) > 2
    assert 0.2 < time.monotonic() - started < 5
