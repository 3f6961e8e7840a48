"""Request parameters that several models add to those of their engines."""

from __future__ import annotations

from stagemesh.spec.frozen import frozen


@frozen
class TokenParams:
    """Parameters of a stage whose tokens need not be text."""

    detokenize: bool = True
    """Whether its tokens are turned into text."""
