"""What a layout costs: memory of a rank, bytes that ranks send, and how layouts compare in speed.

Belongs here: adding up what engines and axes declare, the table of devices, the comparison. Does
not belong here: the formula of an axis (its own file in `axes`) or of an engine (`engines`).
"""
