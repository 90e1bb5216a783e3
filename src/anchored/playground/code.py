"""The Python that makes what a page shows."""

import html

from anchored.playground.points import Points


def curve_code(arguments: dict[str, object], points: Points) -> str:
    """Return, as HTML, a program that fits `points`, (rows, 2), with these `arguments` of AnchoredRegressor."""
    x, y = (", ".join(f"{value:.6g}" for value in column) for column in points.T)
    lines = "".join(f"    {name}={value!r},\n" for name, value in arguments.items())
    program = (
        "import numpy as np\n"
        "from anchored import AnchoredRegressor, certify\n\n"
        f"x = np.array([{x}])\n"
        f"y = np.array([{y}])\n"
        f"model = AnchoredRegressor(\n{lines}).fit(x[:, None], y)\n"
        f"mean, std = model.predict(np.linspace(-3, 3, 161)[:, None], return_std=True)\n"
        "print(certify(model, x[:, None], y))"
    )
    return f"<h2>Code</h2><p>This makes the fit, ready to paste.</p><pre tabindex='0'>{html.escape(program)}</pre>"
