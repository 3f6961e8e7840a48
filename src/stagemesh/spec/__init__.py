"""The words of the system: frozen values and protocols that every other room speaks in.

Belongs here: pipeline and stage descriptions, axis declarations, routing and aggregation patterns,
layer hooks and kernels, payloads, diagnostics and origins, the protocol of each plug-in kind, and
the registry that finds plug-ins. Does not belong here: reading files, merging, planning, anything
with torch.
"""
