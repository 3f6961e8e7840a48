"""A plan said in other words: as one flat deploy file, for another system, or for a cluster.

Belongs here: one file per form, each a pure function from a plan to text, and their list in
`formats.py`. Does not belong here: text for people (`render.py`) and the plan's own form
(`save.py`).
"""
