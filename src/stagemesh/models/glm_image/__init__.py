"""GLM-Image: a language model that writes the tokens of a picture, and a denoiser."""
