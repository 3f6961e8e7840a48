"""Which layouts of one stage are worth looking at together with those of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from stagemesh.plan.cost.speed import StageTime
from stagemesh.plan.fit.candidates import Candidate

_WORTH: Final = 0.8
"""Share of the time of fewer ranks that more ranks have to reach to be worth a try."""

_Timed: TypeAlias = tuple[Candidate, StageTime]


def worthwhile(allowed: Sequence[Candidate], each: int, *, by_latency: bool) -> list[Candidate]:
    """Choose at most `each` layouts of a stage.

    For short answers those that are clearly faster than any with fewer ranks, for many answers
    those that make most of their ranks. A stage of unknown speed keeps the layout that it has.
    """
    timed = [(found, found.time) for found in allowed if found.time is not None]
    if len(timed) < len(allowed):
        return list(allowed[:1])
    timed = [pair for pair in timed if not _is_beaten(pair, timed)]
    if len(timed) <= each:
        return [found for found, _ in timed]
    if not by_latency:
        best = _best_of_world(timed, lambda time: time.busy)
        best.sort(key=lambda pair: (pair[1].busy * pair[0].world, pair[0].world))
        return [found for found, _ in best[:each]]
    chain: list[_Timed] = []
    for pair in _best_of_world(timed, lambda time: time.latency):
        if not chain or pair[1].latency < _WORTH * chain[-1][1].latency:
            chain.append(pair)
    return [found for found, _ in (*chain[:1], *chain[1:][-(each - 1) :])]


def lightest(allowed: Sequence[Candidate], each: int) -> list[Candidate]:
    """Choose at most `each` layouts of a stage: for every number of ranks that of least memory."""
    light: dict[int, Candidate] = {}
    for found in allowed:
        if found.world not in light or found.rank_bytes < light[found.world].rank_bytes:
            light[found.world] = found
    return [light[world] for world in sorted(light)][:each]


def _is_beaten(pair: _Timed, others: Sequence[_Timed]) -> bool:
    """Whether fewer ranks are at least as fast."""
    found, time = pair
    return any(
        other.world < found.world and its.latency <= time.latency and its.busy <= time.busy
        for other, its in others
    )


def _best_of_world(timed: Sequence[_Timed], seconds: Callable[[StageTime], float]) -> list[_Timed]:
    """Return the fastest layout of each number of ranks, few ranks first."""
    best: dict[int, _Timed] = {}
    for pair in timed:
        known = best.get(pair[0].world)
        if known is None or seconds(pair[1]) < seconds(known[1]):
            best[pair[0].world] = pair
    return [best[world] for world in sorted(best)]
