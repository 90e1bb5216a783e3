"""Generate the reference of the command line from the help texts of the commands, when mkdocs builds the site."""

import re
from typing import Any

from typer.main import get_command

from anchored.cli import app

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page `markdown` with MARK replaced by the reference; called by mkdocs."""
    return markdown.replace(MARK, reference()) if MARK in markdown else markdown


def reference() -> str:
    """Return the reference, with a section for each command."""
    group: Any = get_command(app)
    return "\n\n".join(section(name, command) for name, command in group.commands.items())


def section(name: str, command: Any) -> str:
    """Return the section about the `command` called `name`: what it does, examples, arguments and options."""
    description, _, examples = re.sub(r"\[/?bold\]", "", command.help).partition("\nExample")
    lines = [f"## anchored {name}", *(paragraph.replace("\n", " ") for paragraph in description.strip().split("\n\n"))]
    shown = re.findall(r"^anchored .*$", examples, re.M)
    lines += ["```sh\n" + "\n".join(shown) + "\n```"] if shown else []
    rows = [row(parameter) for parameter in command.params]
    return "\n\n".join([*lines, "\n".join(["| | | default |", "| --- | --- | --- |", *rows])])


def row(parameter: Any) -> str:
    """Return the row of a table that describes `parameter`, an argument or an option: name, help text, default."""
    is_option = parameter.param_type_name == "option"
    names = ", ".join(f"`{name}`" for name in parameter.opts) if is_option else f"`{parameter.name.upper()}`"
    default = "required" if parameter.required else parameter.default
    unset = default is None or default is False or default == "" or callable(default)
    default = "" if unset else str(getattr(default, "value", default))
    text = re.sub(r"\[/?bold\]", "", parameter.help or "")
    return f"| {names} | {text} | {default} |"
