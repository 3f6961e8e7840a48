"""Ranks of one stage, the groups they form, and what carries bytes between them.

Belongs here: meshes, communicators and their back ends. Does not belong here: what is said over
them (attention, layers), which groups there are (`plan`), who starts the ranks (`runtime`).
"""
