"""Solvers, which minimise losses and do not depend on the ensemble method."""
