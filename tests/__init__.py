"""Tests, in folders that mirror the rooms.

Only this file makes a package: it keeps `tests.` from meaning the folder of that name which some
distributions leave in site-packages. Helpers of a folder are imported as `tests.<folder>.<module>`.
"""
