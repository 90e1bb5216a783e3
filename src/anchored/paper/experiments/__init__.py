"""Experiments: each file makes one figure by one command."""
