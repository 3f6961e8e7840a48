"""Families x meshes, as a run of them measures it: the table of the reference.

python -m tests.parallel.matrix
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from stagemesh.spec.frozen import frozen
from tests.models.diffusers.tiny import TINY
from tests.parallel.pool import close_pools, pool_of
from tests.parallel.walk_cases import plan_of

FILE: Final = Path(__file__).parents[2] / "docs" / "reference" / "parallel_matrix.md"
MESHES: Final = (
    ("tp", 2, "tp 2"),
    ("ulysses", 2, "sp_ulysses 2"),
    ("ring", 2, "sp_ring 2"),
    ("tp", 4, "tp 4"),
    ("ulysses", 4, "sp_ulysses 4"),
    ("ring", 4, "sp_ring 4"),
    ("usp", 4, "sp_ring 2 x sp_ulysses 2"),
    ("tp_ulysses", 4, "sp_ulysses 2 x tp 2"),
    ("tp_ring", 4, "sp_ring 2 x tp 2"),
)
_HEAD: Final = """# Networks x meshes, measured

Each network is the class as its library publishes it, tiny and with random weights, in float32 on
CPU ranks of one host, bound by its plan. A cell has the largest difference from the network on one
rank, relative to the largest number of the result; then collectives and bytes that the busiest rank
sends in one forward. Collectives and bytes are those of the formulas: the first forward fails where
they are not. Streams are 35 and 11 tokens long, so parts are uneven. `python -m
tests.parallel.matrix` writes this table anew; `make nightly` holds every cell against it.

"""


@frozen
class Cell:
    """What was measured of one network under one mesh."""

    error: float
    """Largest relative difference."""
    calls: int
    """Collectives of the busiest rank in a forward."""
    sent_bytes: int
    """Bytes that it sends."""

    @property
    def cost(self) -> str:
        """What does not depend on the machine."""
        return f"{self.calls}, {self.sent_bytes:,} B"

    def __str__(self) -> str:
        """As the table has it."""
        return f"{self.error:.0e}: {self.cost}"


def measured(short: str, cell: str, size: int) -> Cell | None:
    """Run one network under one mesh; `None` where its plan cuts no tokens."""
    if cell != "tp" and not plan_of(short).splits:
        return None
    told = pool_of(size).run("walk_cases.error", short=short, cell=cell)
    errors, calls, sent = zip(*told, strict=True)
    return Cell(error=max(errors), calls=max(calls), sent_bytes=max(sent))


def table() -> Iterator[str]:
    """Measure everything, a line for each network."""
    yield f"| network | {' | '.join(name for _, _, name in MESHES)} |"
    yield f"|{'---|' * (len(MESHES) + 1)}"
    for short, tiny in TINY.items():
        cells = [measured(short, cell, size) for cell, size, _ in MESHES]
        shown = ("-" if each is None else str(each) for each in cells)
        yield f"| `{tiny.name}` ({short}) | {' | '.join(shown)} |"


def main() -> None:
    """Write the table."""
    FILE.write_text(_HEAD + "\n".join(table()) + "\n", encoding="utf-8")
    close_pools()


if __name__ == "__main__":
    main()
