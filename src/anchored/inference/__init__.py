"""Anchoring, and how members are trained."""
