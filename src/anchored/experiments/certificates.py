"""Certificates of three fits to the same data: exact draws, anchors from the prior, and regularised to zero.

python -m anchored.experiments.certificates --out report
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anchored.certificate import Certificate, certify
from anchored.estimators import AnchoredRegressor

FITS: dict[str, dict[str, Any]] = {
    "last layer, noisy targets": {"trainable": "last_layer", "anchoring": "randomized"},
    "last layer, anchors from the prior": {"trainable": "last_layer"},
    "regularised to zero": {"anchoring": 0.0},
}


@dataclass(frozen=True)
class Config:
    """What is fitted."""

    n_rows: int = 150
    noise_std: float = 0.3
    n_estimators: int = 50
    width: int = 500
    seed: int = 0


def run(config: Config) -> dict[str, Certificate]:
    """A certificate for each way of fitting."""
    rng = np.random.default_rng(config.seed)
    X = rng.uniform(-2, 2, size=(config.n_rows, 2))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + config.noise_std * rng.normal(size=config.n_rows)
    given: dict[str, Any] = {"noise_variance": config.noise_std**2, "prior_scale": 2.0, "random_state": config.seed}
    certificates = {}
    for name, settings in FITS.items():
        model = AnchoredRegressor(config.n_estimators, (config.width,), **settings, **given).fit(X, y)
        certificates[name] = certify(model, X, y)
    return certificates


def draw(certificates: dict[str, Certificate], path: Path) -> None:
    """One panel for each."""
    import matplotlib.pyplot as plt

    from anchored.plots import CertificateDisplay

    figure, axes = plt.subplots(1, len(certificates), figsize=(14, 4.2), layout="constrained")
    for ax, (name, certificate) in zip(axes, certificates.items(), strict=True):
        CertificateDisplay.from_certificate(certificate, ax=ax)
        ax.set_title(f"{name}\n{ax.get_title()}", fontsize=10)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    """Run, print the certificates, save the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("report"), help="folder for the picture")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    certificates = run(Config(seed=arguments.seed))
    for name, certificate in certificates.items():
        print(f"# {name}\n{certificate}\n")
    path = arguments.out / "certificates.png"
    draw(certificates, path)
    print(f"picture {path}")


if __name__ == "__main__":
    main()
