"""Several frontends on one port: the parent that keeps them, and the process of each one.

Groups of replicas that share one have one owner, so every replica belongs to exactly one frontend:
each is a system of its own over its share of the plan. Nothing is shared but the port.
"""
