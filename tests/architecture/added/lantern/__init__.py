"""A third party's distribution: one plug-in of each kind, none of which stagemesh knows.

`test_added_plugins.py` copies it into a temporary folder, beside metadata with its entry points.
"""
