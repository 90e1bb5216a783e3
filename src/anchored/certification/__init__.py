"""Certificates, which say how far a fit is from the exact posterior, and why."""
