"""Rules over the effective configuration, one file per topic.

A rule is a pure function from `RuleContext` to `Ruling`: what it has against the configuration,
what it could not check, and the values it decides. `every.py` lists them. Rules never ask which
plug-in or model they look at; what differs between those is declared. Rules of an axis, an engine
or a connector live in its declaration.
"""
