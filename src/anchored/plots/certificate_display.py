"""A plot of a certificate: the standard deviations of an ensemble and of the exact posterior."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

from anchored.plots.display import BAND_SHADES, REFERENCE, Display, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(eq=False)
class CertificateDisplay(Display):
    """A plot of the standard deviation of an ensemble against that of the exact posterior, at each point.

    The band contains 95 % of the standard deviations of ensembles of as many exact draws from the posterior as there
    are members. Crosses show the standard deviation that theory predicts for the kind of anchoring. The colour of a
    point shows the difference between means, in posterior standard deviations.
    """

    exact_std: np.ndarray  # (points,), standard deviation of the exact posterior, in units of y
    std: np.ndarray  # (points,), standard deviation of the ensemble, in units of y
    mean_gap: np.ndarray  # (points,), signed difference between means, in posterior standard deviations
    n_members: int  # effective number of independent members
    finding: str  # the certificate's finding, shown in the title
    predicted_std: np.ndarray | None = None  # (points,), standard deviation that theory predicts, in units of y

    @classmethod
    def from_certificate(cls, certificate: Any, *, ax: "Axes | None" = None, **kwargs: Any) -> "CertificateDisplay":
        """Plot the `certificate` that `anchored.certify` returned; `ax` and `kwargs` are passed to `plot`."""
        c = certificate
        gap = np.ravel((c.mean - c.exact_mean) / c.exact_std)
        predicted = None if c.predicted_std is None else np.ravel(c.predicted_std)
        display = cls(np.ravel(c.exact_std), np.ravel(c.std), gap, c.n_members, c.finding, predicted)
        return display.plot(ax, **kwargs)

    def plot(self, ax: "Axes | None" = None, **kwargs: Any) -> "CertificateDisplay":
        """Plot into `ax`, or into new axes, and return the display; `kwargs` are passed to `Axes.scatter`."""
        ax = self.set_axes(ax)
        largest = 1.05 * max(np.max(std) for std in (self.exact_std, self.std, self.predicted_std) if std is not None)
        ends = np.array([0.0, largest])
        if self.n_members > 1:
            degrees_of_freedom = self.n_members - 1
            low, high = np.sqrt(stats.chi2.ppf([0.025, 0.975], degrees_of_freedom) / degrees_of_freedom)
            label = f"95 % of s.d. of {self.n_members} exact draws"
            ax.fill_between(ends, low * ends, high * ends, color=BAND_SHADES[2], linewidth=0, label=label)
        ax.plot(ends, ends, **REFERENCE, label="exact")
        if self.predicted_std is not None:
            ax.plot(self.exact_std, self.predicted_std, "+", color="#d9722e", markersize=4, alpha=0.6, label="theory")
        style = {"c": np.abs(self.mean_gap), "s": 14, "cmap": "viridis_r", "vmin": 0, "label": "ensemble"}
        points = ax.scatter(self.exact_std, self.std, **{**style, **kwargs})
        self.figure_.colorbar(points, ax=ax, label="difference of means, posterior s.d.")
        ax.set(
            xlabel="posterior s.d.", ylabel="ensemble s.d.", xlim=(0, 1.05 * self.exact_std.max()), ylim=(0, largest)
        )
        ax.set_title(f"{self.finding}: s.d. ratio {np.mean(self.std / self.exact_std):.2f}")
        return finish(self, loc="upper left")
