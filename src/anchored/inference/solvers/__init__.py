"""Solvers, which minimise the losses of ensemble members."""
