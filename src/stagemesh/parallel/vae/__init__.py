"""Several ranks encode or decode one picture: in tiles, or in bands that know of their neighbours.

Belongs here: what is done with a VAE by its `VaePlan`. Does not belong here: which plans there are.
"""
