"""Anchoring, and the training of ensemble members."""
