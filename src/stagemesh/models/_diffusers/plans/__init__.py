"""Plans of the networks in checkpoints of `diffusers`, one file for each family.

Belongs here: plans of denoisers, text encoders and VAEs, and `imported.json`: what the libraries
themselves declare, written by `make plans`. Files are loaded when a class of theirs is asked for.
"""
