"""State machines without I/O: router and request life cycle. Events in, actions out."""
