"""The experiments of a reproduction, and the modules that they share."""
