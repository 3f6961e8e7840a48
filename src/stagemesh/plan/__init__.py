"""Pipeline + settings + devices -> one immutable plan, with every mistake found and explained.

Belongs here: placement, process groups, checks of the effective layout, whether a plan can run,
rendering to text and JSON, reading a saved plan. Planning itself is pure: no I/O, no device query,
no torch.
"""
