"""`--fit`: from what the user gave to the best few layouts for other devices, and the strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Final, cast

from stagemesh.config.catalog import Catalog
from stagemesh.config.document import Document
from stagemesh.config.host import Host
from stagemesh.config.inputs import PlanInputs, opened_once
from stagemesh.config.plain import plain, plain_fields
from stagemesh.plan.build import PlanRequest, build
from stagemesh.plan.export.dump import comments, yaml_text
from stagemesh.plan.fit.layout import shared_by
from stagemesh.plan.fit.search import Choice, Found, has_layouts, search
from stagemesh.plan.fit.suggest import (
    Overrides,
    is_about_layout,
    offer_text,
    set_values,
    suggest,
    with_suggestion,
)
from stagemesh.plan.offers import Offers
from stagemesh.plan.pins import bound_devices
from stagemesh.plan.prepare import prepare
from stagemesh.plan.values import AxisPlan, Plan, StagePlan
from stagemesh.spec.axis import Axis
from stagemesh.spec.diagnostic import Diagnostic, Note, Severity
from stagemesh.spec.frozen import frozen
from stagemesh.spec.origin import Layer, Origin
from stagemesh.spec.unset import UNSET

_FLAG: Final = "--fit"
_OF_AXES: Final = "AX"
"""Beginning of the codes about axes; those that were given stay."""
_LITTLE_ROOM: Final = "give more or larger devices, or change how much the engines may keep of them"
_ORIGIN: Final = Origin(layer=Layer.GLOBAL, source=_FLAG)


@frozen
class StageProposal:
    """What is proposed for one stage."""

    name: str
    """The stage."""
    axes: Mapping[str, int]
    """Sizes of its axes, and of options that are numbers of ranks as `axis.option`."""
    ranks: int
    """Ranks of one replica."""
    replicas: int
    """Replicas."""
    memory_bytes: int | None
    """Memory of one rank."""
    sent_bytes: int | None
    """Bytes that the busiest rank sends in one forward; `None` where an axis cannot tell."""
    cuts: Mapping[str, int]
    """What is cut into how many pieces."""


@frozen
class Proposal:
    """One layout of all stages."""

    latency_gain: float
    """Estimated latency of the layout as it was given, over that of this one."""
    throughput_gain: float
    """Estimated requests a second of this one, over those of the layout as it was given."""
    stages: tuple[StageProposal, ...]
    """Its stages."""
    strategy: Mapping[str, object]
    """The strategy file that leads to it."""
    plan: Plan
    """The plan that it gives."""


@frozen
class Fitted:
    """What `--fit` found, or what stands against it."""

    proposals: tuple[Proposal, ...]
    """The best first; empty when a diagnostic is an error."""
    by_latency: bool
    """Whether they are ranked by the latency of a request, rather than by requests a second."""
    tried: int
    """Layouts of single stages that were compared."""
    diagnostics: tuple[Diagnostic, ...]
    """Everything found."""
    documents: tuple[Document, ...]
    """What was read."""


@frozen
class FitRequest:
    """What layouts are wanted for."""

    inputs: PlanInputs
    """The model and everything that was said about how it should run, but for its devices."""
    devices: str
    """How many devices, or an imaginary set such as `8xH200`."""
    best: int = 3
    """Most layouts to propose."""


def fit(asked: FitRequest, host: Host, catalog: Catalog | None = None) -> Fitted:
    """Propose layouts for other devices; what the user fixed stays."""
    catalog = Catalog.installed() if catalog is None else catalog
    inputs = opened_once(replace(asked.inputs, devices=asked.devices))
    prepared = prepare(inputs, host, catalog, flag=_FLAG)
    twice = () if asked.inputs.devices is UNSET else (_given_twice(asked.inputs),)
    nothing = Fitted(
        proposals=(),
        by_latency=False,
        tried=0,
        diagnostics=(*twice, *prepared.diagnostics),
        documents=prepared.documents,
    )
    if prepared.request is None or any(each.is_error for each in nothing.diagnostics):
        return nothing
    request = prepared.request
    found = search(request, catalog, asked.best)
    problems = tuple(_problems(found, request, Offers(inputs, host, catalog)))
    refused = any(each.is_error for each in problems)
    return replace(
        nothing,
        proposals=()
        if refused
        else tuple(_proposal(choice, found, catalog) for choice in found.choices),
        by_latency=found.by_latency,
        tried=found.tried,
        diagnostics=(*prepared.diagnostics, *problems),
    )


def _given_twice(inputs: PlanInputs) -> Diagnostic:
    return Diagnostic(
        code="PL134",
        message="`--devices` and `--fit` both give devices",
        origin=_ORIGIN,
        help=f"leave `--devices {inputs.devices}` out: layouts are proposed for those of `--fit`",
    )


def _problems(found: Found, request: PlanRequest, offers: Offers) -> Iterator[Diagnostic]:
    """Say why there is nothing to propose, or what was left as it is."""
    if not found.choices:
        yield from _obstacles(request, offers)
    elif len(found.unknown) == len(request.pipeline.stages):
        yield Diagnostic(
            code="PL132",
            message=f"layouts of `{request.pipeline.model_type}` cannot be compared",
            origin=_ORIGIN,
            help="the checkpoint gives neither weight files nor the number of weights",
        )
    else:
        for name in found.unknown:
            yield Diagnostic(
                code="PL133",
                severity=Severity.WARNING,
                message=f"`{name}` stays as it was given and counts in no speed:"
                " nothing tells how fast it is",
                origin=_ORIGIN,
            )


def _obstacles(request: PlanRequest, offers: Offers) -> Iterable[Diagnostic]:
    """Say why nothing fits: axes that were given and can never be, or else too little room."""

    def works(offer: Overrides) -> bool:
        return offers.work(set_values(offer))

    catalog = offers.catalog
    wrong = [each for each in build(request, catalog).diagnostics if each.is_error]
    staying = [each for each in wrong if not is_about_layout(each)]
    of_axes = [each for each in wrong if each.code.startswith(_OF_AXES)]
    if staying or (of_axes and not has_layouts(request, catalog)):
        lasting = [each for each in wrong if each in staying or each in of_axes]
        return with_suggestion(lasting, request, catalog, works)
    offer = suggest(request, catalog, works)
    return (
        Diagnostic(
            code="PL131",
            message=f"no layout of `{request.pipeline.model_type}` fits"
            f" `{request.devices.count}` `{request.devices.kind}` devices",
            origin=_ORIGIN,
            notes=tuple(Note(message=each.message, origin=each.origin) for each in wrong),
            help=f"not as it was given; {offer_text(offer)}" if offer else _more_room(request),
        ),
    )


def _more_room(request: PlanRequest) -> str:
    """Say what would help; idle devices come before further ones."""
    bound = [f"`{stage.name}`" for stage in request.settings.stages if bound_devices(stage)]
    if not bound:
        return _LITTLE_ROOM
    return f"list no devices for {', '.join(bound)}, {_LITTLE_ROOM}"


# --- what is proposed -----------------------------------------------------------------------------


def _proposal(choice: Choice, found: Found, catalog: Catalog) -> Proposal:
    return Proposal(
        latency_gain=_ratio(found.baseline.latency, choice.speed.latency),
        throughput_gain=_ratio(found.baseline.busy, choice.speed.busy),
        stages=tuple(_stage(stage, choice, catalog) for stage in choice.plan.stages),
        strategy={
            "strategies": {
                stage.name: [_entry(axis, catalog.axes[axis.axis]) for axis in stage.axes]
                for stage in choice.plan.stages
                if stage.axes
            }
        },
        plan=choice.plan,
    )


def _ratio(before: float, after: float) -> float:
    return before / after if after else 1.0


def _stage(stage: StagePlan, choice: Choice, catalog: Catalog) -> StageProposal:
    cost = choice.candidates[stage.stage_id].cost
    sent = [each.sent_bytes for each in cost.axes.values() if not each.per_request]
    return StageProposal(
        name=stage.name,
        axes={name: size for axis in stage.axes for name, size in _sizes(axis, catalog)},
        ranks=stage.world_size,
        replicas=len(stage.replicas),
        memory_bytes=None if cost.memory is None else cost.memory.total,
        sent_bytes=None if cost.unknown else sum(sent),
        cuts={part.value: count for part, count in cost.pieces.items() if count > 1},
    )


def _sizes(axis: AxisPlan, catalog: Catalog) -> Iterator[tuple[str, int]]:
    """Yield the size of an axis, and of its options that are numbers of ranks if they are above 1.

    An axis of 1 that is there for such an option alone is not shown by itself.
    """
    shared = [
        (shared_by(axis.axis, option), size)
        for option in sorted(catalog.axes[axis.axis].sharing)
        if (size := cast("int", axis.options[option])) > 1
    ]
    if axis.size > 1 or not shared:
        yield axis.axis, axis.size
    yield from shared


def _entry(axis: AxisPlan, declared: Axis) -> Mapping[str, object]:
    """Write one axis as a strategy file has it, without what holds anyway."""
    entry: dict[str, object] = {"axis": axis.axis, "size": axis.size}
    usual = {item.name: plain(item.default) for item in fields(declared.options)}
    entry |= {name: value for name, value in axis.options.items() if value != usual[name]}
    policy = axis.routing.args.get("policy")
    if declared.policies and policy != plain_fields(declared.routing).get("policy"):
        entry["routing"] = policy
    if axis.label != axis.axis:
        entry["name"] = axis.label
    return entry


def strategy_text(proposal: Proposal, comment: Iterable[str]) -> str:
    """Write the strategy file of a proposal, under lines of comment."""
    return comments(comment) + yaml_text(proposal.strategy)
