"""What a Bayesian neural network is before it has seen data."""
