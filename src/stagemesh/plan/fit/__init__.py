"""Layouts that fit: the best few for the devices at hand, and the nearest one to what was asked.

Belongs here: making candidates, ranking them, saying them as a strategy file or as overrides. Every
candidate is judged by the planner itself, so nothing is proposed that planning would refuse.
"""
