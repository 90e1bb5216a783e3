"""Saved files, which are written completely or not at all. Every field is checked when they are read."""
