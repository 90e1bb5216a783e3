"""Python programs that compute what a page shows."""

import html
import textwrap

from anchored.playground.points import Points


def curve_code(arguments: dict[str, object], points: Points) -> str:
    """Return, as HTML, a program that fits `points`, (rows, 2), with these `arguments` of AnchoredRegressor."""
    x, y = (", ".join(f"{value:.6g}" for value in column) for column in points.T)
    lines = "".join(f"    {name}={value!r},\n" for name, value in arguments.items())
    program = (
        "import numpy as np\n"
        "from anchored import AnchoredRegressor, certify\n\n"
        f"{_wrapped(f'x = np.array([{x}])')}\n"
        f"{_wrapped(f'y = np.array([{y}])')}\n"
        f"model = AnchoredRegressor(\n{lines}).fit(x[:, None], y)\n"
        "mean, std = model.predict(np.linspace(-3, 3, 161)[:, None], return_std=True)\n"
        "print(certify(model, x[:, None], y))"
    )
    return _shown(program)


def plane_code(arguments: dict[str, object], points: Points) -> str:
    """Return, as HTML, a program that fits `points`, (rows, 3), with these `arguments` of AnchoredClassifier."""
    rows = ", ".join(f"[{x:.6g}, {y:.6g}]" for x, y in points[:, :2])
    labels = [int(label) + 1 for label in points[:, 2]]  # classes begin with 1 on the page
    lines = "".join(f"    {name}={value!r},\n" for name, value in arguments.items())
    program = (
        "import numpy as np\n"
        "from anchored import AnchoredClassifier\n\n"
        f"{_wrapped(f'X = np.array([{rows}])')}\n"
        f"{_wrapped(f'y = np.array({labels})')}\n"
        f"model = AnchoredClassifier(\n{lines}).fit(X, y)\n"
        "predicted = model.predict_dist(X)\n"
        "print(predicted.probabilities, predicted.epistemic_entropy)"
    )
    return _shown(program)


def _wrapped(line: str) -> str:
    """Return a long line of numbers, broken into several lines."""
    return textwrap.fill(line, 100, subsequent_indent="    ", break_long_words=False)


def _shown(program: str) -> str:
    """Return a program as HTML, below a heading."""
    return f"<h2>Code</h2><p>This program makes the same fit.</p><pre tabindex='0'>{html.escape(program)}</pre>"
