"""Proposals as text for people, and as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stagemesh.config.plain import plain
from stagemesh.plan.fit.propose import Fitted, Proposal, StageProposal
from stagemesh.plan.table import table, wrapped
from stagemesh.plan.words import plural, size_text

_INDENT = "   "
_ESTIMATE = "Speeds are estimates for ranking, from stated numbers of the device; none is measured."


def fit_text(fitted: Fitted, width: int | None = None) -> str:
    """Render all proposals, the best first; there is at least one."""
    blocks = [wrapped(_headline(fitted), width)]
    for number, proposal in enumerate(fitted.proposals, 1):
        title = wrapped(f"{number}. {speed_text(proposal)}", width, _INDENT)
        blocks.append([*title, *_stages(proposal, width)])
    blocks.append(wrapped(_ESTIMATE, width))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def fit_data(fitted: Fitted) -> Mapping[str, object]:
    """Return all proposals as plain values, without the plans that they give."""
    return {
        "ranked_by": "latency" if fitted.by_latency else "throughput",
        "layouts_tried": fitted.tried,
        "proposals": [
            {
                "latency_gain": round(proposal.latency_gain, 3),
                "throughput_gain": round(proposal.throughput_gain, 3),
                "stages": plain(proposal.stages),
                "strategy": proposal.strategy,
            }
            for proposal in fitted.proposals
        ],
    }


def speed_text(proposal: Proposal) -> str:
    """Say what a proposal brings over the layout as it was given."""
    latency, requests = proposal.latency_gain, proposal.throughput_gain
    return f"{latency:.2f} x as fast an answer, {requests:.2f} x as many of them (estimate)"


def _headline(fitted: Fitted) -> str:
    plan = fitted.proposals[0].plan
    imaginary = "imaginary " if plan.devices.imaginary else ""
    order = "how fast an answer is" if fitted.by_latency else "how many answers there are"
    return (
        f"{plural(len(fitted.proposals), 'layout')} for {plan.pipeline} on {plan.devices.count}"
        f" {imaginary}{plan.devices.kind} {'device' if plan.devices.count == 1 else 'devices'},"
        f" ranked by {order}; {plural(fitted.tried, 'layout')} of stages tried"
    )


def _stages(proposal: Proposal, width: int | None) -> Iterator[str]:
    rows = [("stage", "axes", "ranks x replicas", "a rank holds", "sends a forward", "why")]
    rows += [
        (
            stage.name,
            " ".join(f"{axis}={size}" for axis, size in stage.axes.items()) or "-",
            f"{stage.ranks} x {stage.replicas}",
            "?" if stage.memory_bytes is None else size_text(stage.memory_bytes),
            "?" if stage.sent_bytes is None else size_text(stage.sent_bytes),
            _why(stage),
        )
        for stage in proposal.stages
    ]
    room = None if width is None else width - len(_INDENT)
    return (f"{_INDENT}{line}" for line in table(rows, room, headed=True))


def _why(stage: StageProposal) -> str:
    cuts = [f"{part} in {count}" for part, count in stage.cuts.items()]
    if stage.replicas > 1:
        cuts.append(f"requests over {stage.replicas} copies")
    return f"cuts {', '.join(cuts)}" if cuts else "fits as it is"
