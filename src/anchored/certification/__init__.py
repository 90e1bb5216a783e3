"""How far a fit is from the exact posterior."""
