"""What an agent has lived through, episode by episode."""

from dataclasses import dataclass, field

import numpy as np


@dataclass
class History:
    """Finished episodes, and the one under way."""

    returns: list[float] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    explored: list[int] = field(default_factory=list)  # steps of each episode that counted as exploration
    under_way: list[float] = field(default_factory=lambda: [0.0, 0, 0])  # return, length, explored so far

    def record(self, reward: np.ndarray, last: np.ndarray, explored: np.ndarray) -> None:
        """Steps in order, each with its reward, whether it was its episode's last, and whether it explored."""
        ends = np.flatnonzero(last) + 1
        starts = np.concatenate([[0], ends]).astype(int)
        for start, end in zip(starts, [*ends, len(reward)], strict=True):
            self.under_way[0] += float(reward[start:end].sum(dtype=np.float64))
            self.under_way[1] += int(end - start)
            self.under_way[2] += int(explored[start:end].sum())
            if end > start and last[end - 1]:
                for kept, value in zip((self.returns, self.lengths, self.explored), self.under_way, strict=True):
                    kept.append(value)  # type: ignore[attr-defined]
                self.begin_again()

    def begin_again(self) -> None:
        """Forget the episode under way."""
        self.under_way = [0.0, 0, 0]
