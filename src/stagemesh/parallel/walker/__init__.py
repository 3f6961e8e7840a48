"""Binds a plan onto a live network: weights that are cut, tokens that are shared, attention.

Belongs here: what is bound, where and in which order, and whether all of it ran. Does not belong
here: what attention over a cut sequence is (`sequence`), which parts a plan cuts (`tp_cuts`).
"""
