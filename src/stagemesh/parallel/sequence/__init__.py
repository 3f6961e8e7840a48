"""Attention over a sequence that several ranks share, exact for every length and count of heads.

Belongs here: Ulysses, ring and both stacked, how sequences are cut, and what that costs by formula.
Does not belong here: what carries the bytes (`mesh`), which module of a network is cut (`plan`).
"""
