"""Bayesian neural networks: networks, priors, likelihoods and predictive distributions."""
