"""The command line, as `python -m anchored`."""

from importlib import import_module

if __name__ == "__main__":
    import_module("anchored.cli").app(prog_name="anchored")
