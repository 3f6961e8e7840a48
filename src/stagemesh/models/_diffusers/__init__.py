"""Facts about networks of `diffusers`, read from the configuration of one component.

Belongs here: what follows from the numbers in the file of a denoiser, a text encoder or a VAE, by
the class that the file names. Does not belong here: pipelines (`models.diffusers`).
"""
