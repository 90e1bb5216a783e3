"""Certificates of three fits to the same data: exact samples, anchors from the prior, and regularised towards zero."""

from dataclasses import dataclass

import numpy as np

from anchored.certification.certificate import Certificate, certify
from anchored.estimators.regressors import AnchoredRegressor
from anchored.paper.findings import Claim, Figure, Progress, Table, Verdict, no_progress
from anchored.plots import as_png

# By title: `trainable` and `anchoring` of the estimator, and the finding that theory predicts
FITS: dict[str, tuple[str, str | float, str]] = {
    "last layer, noisy targets": ("last_layer", "randomized", "bayesian"),
    "last layer, anchors from the prior": ("last_layer", "prior", "too narrow"),
    "regularised towards zero": ("all", 0.0, "collapsed"),
}


@dataclass(frozen=True)
class Config:
    """Data and ensembles."""

    n_rows: int = 150  # number of training rows
    noise_std: float = 0.3  # standard deviation of the noise on the targets
    n_estimators: int = 50  # number of members
    width: int = 500  # number of hidden units
    max_iter: int = 800  # number of epochs if all layers are trained
    seed: int = 0  # random seed of data and members


FULL = Config()
QUICK = Config(n_rows=40, n_estimators=20, width=50, max_iter=200)


def run(config: Config, on_progress: Progress = no_progress) -> dict[str, Certificate]:
    """Fit and certify each of FITS with the sizes of `config`; return the certificates by title.

    `on_progress` is called with fractions of the work.
    """
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(-2, 2, size=(config.n_rows, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + config.noise_std * rng.normal(size=config.n_rows)
    certificates = {}
    for name, (trainable, anchoring, _) in FITS.items():
        model = AnchoredRegressor(
            config.n_estimators,
            (config.width,),
            activation="relu",
            learning_rate_init=0.03,
            trainable=trainable,
            anchoring=anchoring,
            max_iter=config.max_iter,
            noise_variance=config.noise_std**2,
            prior_scale=2.0,
            random_state=config.seed,
        )
        certificates[name] = certify(model.fit(X, y), X, y)
        on_progress(1 / len(FITS))
    return certificates


def figures(config: Config, certificates: dict[str, Certificate]) -> tuple[Figure, ...]:
    """Return one figure with all `certificates` of a run with `config`."""
    return (
        Figure(
            name="certificates",
            title="How Bayesian is a fit? Three certificates",
            paper="This is not in the paper. The function certify compares a fit with the exact posterior under the "
            "same prior, noise and data, and names the main cause of the difference. Here certify is applied to three "
            f"fits to {config.n_rows} rows, for which theory predicts the finding.",
            picture=draw(certificates),
            description="For each fit, the ensemble's standard deviations against the posterior's, point by point: "
            "inside the band of exact draws, below it, and near zero.",
            claims=claims(certificates),
            tables=(table(certificates),),
            ours=True,
        ),
    )


def claims(certificates: dict[str, Certificate]) -> tuple[Claim, ...]:
    """Return the claims that the finding of each of `certificates` is the one that theory predicts.

    They are never undecided, since a finding takes the Monte-Carlo error into account.
    """
    tested = []
    for name, certificate in certificates.items():
        expected, interval = FITS[name][2], certificate.distances_of_exact_draws["std_ratio"]
        tested.append(
            Claim(
                f"{name}: the certificate says “{expected}”.",
                Verdict.HOLDS if certificate.finding == expected else Verdict.FAILS,
                f"“{certificate.finding}”: the s.d. is {certificate.distances['std_ratio']:.3f} times the posterior's; "
                f"for 95% of ensembles of {certificate.n_members} exact draws, this ratio is between "
                f"{interval.low:.2f} and {interval.high:.2f}",
            )
        )
    return tuple(tested)


def table(certificates: dict[str, Certificate]) -> Table:
    """Return a table of the distances to the exact posterior, one row for each of `certificates` and each distance."""
    names = {"mean_gap": "mean gap, s.d.", "std_ratio": "s.d. ratio", "kl": "KL, nats", "wasserstein": "2-Wasserstein"}
    rows = []
    for fit, certificate in certificates.items():
        for name, title in names.items():
            interval = certificate.distances_of_exact_draws[name]
            theory = "" if certificate.predicted is None else f"{certificate.predicted[name]:.3f}"
            span = f"{interval.mean:.3f} ({interval.low:.3f} – {interval.high:.3f})"
            rows.append((fit, title, f"{certificate.distances[name]:.3f}", span, theory))
    header = ("fit", "distance", "measured", "as many exact draws (95%)", "theory, infinitely many members")
    return Table(header, tuple(rows), "Distances to the exact posterior")


def draw(certificates: dict[str, Certificate]) -> bytes:
    """Return the picture as PNG, with one panel for each of `certificates`."""
    import matplotlib.pyplot as plt

    from anchored.plots import CertificateDisplay

    figure, axes = plt.subplots(1, len(certificates), figsize=(12.5, 4), layout="constrained")
    for ax, (name, certificate) in zip(axes, certificates.items(), strict=True):
        CertificateDisplay.from_certificate(certificate, ax=ax)
        ax.set_title(f"{name}\n{ax.get_title()}", fontsize=10)
    return as_png(figure)
