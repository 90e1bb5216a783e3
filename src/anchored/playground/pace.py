"""The pace of a film, which is that of the browser."""

import threading

MAX_ON_THE_WAY = 6  # pictures: a quarter of a second of CartPole
SECONDS = 2.0  # after which a picture is no longer waited for, such as one of a page in the background


class Pace:
    """Counts the pictures of a film that have been sent, and those that the browser has seen.

    A browser that draws more slowly than pictures are sent would fall further and further behind, and would show what
    was clicked only after all earlier pictures. So only a few pictures are on their way: enough that the server
    does not wait for each message.
    """

    def __init__(self) -> None:
        self._n_sent = self._n_seen = 0
        self._was_seen = threading.Event()

    def send(self) -> int:
        """Return the number of the next picture."""
        self._n_sent += 1
        return self._n_sent

    def see(self, number: object) -> None:
        """Take note that the browser has seen the picture with this number, which the browser says."""
        if not isinstance(number, int) or not 0 <= number <= self._n_sent:
            raise ValueError("the number of a picture must be that of one that was sent")
        self._n_seen = number
        self._was_seen.set()

    def is_ahead(self) -> bool:
        """Return whether as many pictures as allowed are on their way."""
        return self._n_sent - self._n_seen >= MAX_ON_THE_WAY

    def wait(self, seconds: float) -> None:
        """Wait until the browser has seen another picture, at most for `seconds`."""
        self._was_seen.clear()
        if self.is_ahead():
            self._was_seen.wait(seconds)
