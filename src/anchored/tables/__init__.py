"""Tables in files: what their columns mean, and models fitted to them. The command line's substance."""
