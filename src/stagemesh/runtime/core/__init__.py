"""State machines without I/O, tasks or clocks: events and the time go in, actions come out.

What decides lives here and is run twice: by the processes of a system, and by the deterministic
simulator in `stagemesh.testing.simulator`, under faults that no machine would show often enough.
Nothing here may import asyncio, sockets, or a wire format.
"""
