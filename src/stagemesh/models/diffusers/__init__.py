"""Checkpoints of `diffusers`: any that has a `model_index.json`, whole or split into its parts."""
