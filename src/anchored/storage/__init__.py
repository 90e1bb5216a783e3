"""Saved files: written completely or not at all, and read with every field checked."""
