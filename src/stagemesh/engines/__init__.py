"""Engines: what runs one stage, step by step.

Belongs here: one declaration per engine (`<name>.py`, or a package whose `__init__` declares), free
of torch, and its implementation in `_<name>.py` or inside the package, found by reference. Does not
belong here: networks (`models`), layer hooks and collectives (`parallel`), processes and streams
(`runtime`).
"""
