"""The anchored loss, the training of ensemble members, and the posteriors that they represent."""
