"""Supervisor, stage processes, frontends: runs exactly what a plan says."""
