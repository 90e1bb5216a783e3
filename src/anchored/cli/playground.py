"""The command that opens the playground."""

import webbrowser
from pathlib import Path
from typing import Annotated

from typer import Option

from anchored.cli.console import command_output


def playground(
    port: Annotated[int, Option(help="Port to listen on; 0 for any free port.")] = 5100,
    address: Annotated[
        str,
        Option(help="Address to listen on. Everyone who can reach this address can use the page."),
    ] = "127.0.0.1",
    browser: Annotated[bool, Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    agent: Annotated[
        Path | None,
        Option(help="A saved agent for CartPole, to start the CartPole page with.", show_default=False),
    ] = None,
) -> None:
    """Open an interactive page that compares anchored ensembles with the exact posterior.

    The server accepts connections from this machine only, unless --address is
    given. Stop it with Ctrl+C.

    [bold]Examples[/bold]
    anchored playground
    anchored playground --port 0 --no-browser
    anchored playground --address 0.0.0.0
    anchored playground --agent cartpole.agent
    """
    with command_output(False) as output:
        from anchored import checks

        checks.installed("bokeh", "the playground", "playground")
        from anchored.playground.running import run

        def on_start(url: str) -> None:
            output.info(f"playground at {url}; stop it with Ctrl+C")
            if browser:
                webbrowser.open(url)

        run(port, address, agent, on_start)
