"""The torch half of the axes: meshes and collectives, and what plans of networks are bound to.

Belongs here: what runs on the ranks of one stage whatever its engine and its model are. Does not
belong here: what a plan is and says (`spec`), which plans there are (`models`), loops over steps.
"""
