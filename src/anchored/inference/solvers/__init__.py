"""Solvers: minimise losses; they know nothing of ensembles."""
