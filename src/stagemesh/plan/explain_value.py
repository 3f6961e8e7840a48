"""One value of a plan: what it is, every layer that had a word, what it needs, where it goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Final

from stagemesh.config.catalog import Catalog
from stagemesh.config.kind_fields import Recovery
from stagemesh.config.load import Loaded
from stagemesh.plan.checks import rule_findings
from stagemesh.plan.colocate import FIELD
from stagemesh.plan.declared import MODEL_ARGS, SAMPLING
from stagemesh.plan.explain_edited import SAVED, as_it_holds, held_at, is_unrecorded, speaker_of
from stagemesh.plan.explain_field import Declaration, FieldDoc, explain_field
from stagemesh.plan.explain_wide import WideDoc, is_of_connector, wide_doc
from stagemesh.plan.make import Made
from stagemesh.plan.pins import DEVICES
from stagemesh.plan.provenance import AXES, PLACEMENT
from stagemesh.plan.render import devices_text
from stagemesh.plan.runnable import is_window
from stagemesh.plan.stack import Stack, implied_size, stack_of
from stagemesh.plan.subject import STAGES, Record, Subject
from stagemesh.plan.table import table, wrapped
from stagemesh.plan.values import StagePlan, ValuePlan
from stagemesh.plan.words import value_text
from stagemesh.spec.axis import SIZE, Axis, WorldRole
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.frozen import frozen
from stagemesh.spec.unset import UNSET

_MOST: Final = 64
"""Sizes of an axis that are tried."""
_WINS: Final = "wins"
_OVERRIDDEN: Final = "overridden"
_CLEARS: Final = "clears"
_DEFAULT: Final = "default"
_GIVES_WAY: Final = "gives way"
NO_PLAN: Final = "there is no plan"
"""Why nothing can be said but what was given."""
_LAYERS: Final[Mapping[str, str]] = {
    _DEFAULT: _DEFAULT,
    "pipeline": "the model's pipeline",
    "pipeline_wide": "root of a deploy file",
    "deploy": "deploy file",
    "overlay": "deploy file, over its base",
    "platform": "platform section of a deploy file",
    "strategy": "strategy file",
    "global": "flag for all stages",
    "stage": "flag for the stage",
    SAVED: "saved plan",
}
_PLANNED: Final[Mapping[str, str]] = {
    "engine": "the choice of the engine",
    DEVICES: "the ranks of the stage, in their order",
    "env": "the environment of the stage's processes",
    "input_connectors": "the edges into the stage",
    "output_connectors": "the edges out of the stage",
    SAMPLING: "every request that does not give it",
    MODEL_ARGS: "the model",
    FIELD: "the processes of the stage, which are those of its host",
    **dict.fromkeys(
        (item.name for item in fields(Recovery)), "whoever starts the processes of the stage"
    ),
}


@frozen
class Word:
    """What one layer says about a value."""

    layer: str
    """The layer."""
    place: str
    """Where it was written."""
    value: object
    """What it says."""
    verdict: str = _OVERRIDDEN
    """`wins`, `overridden`, `clears` for a `null` that takes back what lower layers say, or
    `gives way` for devices that ship with the model and leave the stage to the planner."""


@frozen
class ValueStory:
    """One value and all that led to it."""

    path: str
    """The value, as people write it."""
    topic: str
    """The field or axis, as `explain` takes it without a model."""
    value: object
    """What holds."""
    type: str
    """The values it takes, in words."""
    doc: str
    """What it is."""
    words: tuple[Word, ...]
    """What the layers say, highest first."""
    needs: tuple[str, ...]
    """What it has to meet."""
    goes_to: str
    """Who acts on it; empty for a value of a stage without a plan, whose engine is not known."""
    is_planned: bool = True
    """Whether it is known what holds; else there is no plan, and this is what was given for it."""


def explain_value(
    subject: Subject, record: Record, made: Made, catalog: Catalog
) -> ValueStory | None:
    """Tell the story of one value; `None` when there is no such value.

    Without a plan that is what was given for it: what holds instead of it is not decided yet.
    """
    value = record.values(subject.stage).get(subject.path)
    axis = _axis(subject, catalog)
    written = subject.path.removeprefix(f"{AXES}.").removesuffix(f".{SIZE}")
    wide = None
    if subject.stage is None:
        wide = wide_doc(subject.path, record, made, catalog)
        doc = None if wide is None else wide.doc
    else:
        doc = explain_field(written, catalog, {})
        doc = None if doc is None or doc.path != written else doc
    stage = record.stages.get(subject.stage or "")
    said = [] if value is None else [value, *value.superseded]
    held = held_at(subject, record, said, made)
    if value is None and held is UNSET and (doc is None or not _is_here(doc, subject, record)):
        return None
    own = None if doc is None else _own(doc.declarations, stage)
    is_known = _is_known(subject, record)
    if own is not None and is_unrecorded(subject, held, own.default, record):
        said = []  # what nobody gave would else be taken for the default
    layer, place = speaker_of(subject, held, said, made)
    beyond = Word(layer=_LAYERS[layer], place=place, value=held)
    words = tuple(_words(said, own if is_known else None, stage, subject.path, beyond))
    return ValueStory(
        path=subject.shown,
        topic=_topic(subject.path, axis) or (written if doc is None else doc.path),
        value=next((word.value for word in words if word.verdict == _WINS), None),
        type="" if own is None else own.type.removesuffix(" or null"),
        doc="" if own is None else own.doc,
        words=words,
        needs=() if axis is None else tuple(_needs(axis, subject, made, catalog)),
        goes_to=_wide_to(wide) if subject.stage is None else _goes_to(subject.path, stage, catalog),
        is_planned=is_known,
    )


def members_of(subject: Subject, record: Record, made: Made) -> Mapping[str, ValuePlan]:
    """Return the values below a path, as people write theirs: of a mapping, a stage, all stages."""
    start = f"{subject.path}." if subject.path else ""
    stages: Iterable[str | None] = [subject.stage]
    if subject == Subject(stage=None, path=STAGES):
        start, stages = "", dict.fromkeys(record.names.values())
    found = (
        (Subject(stage=stage, path=path), value)
        for stage in stages
        for path, value in record.values(stage).items()
        if path.startswith(start)
    )
    return {each.shown: as_it_holds(each, value, record, made) for each, value in found}


def story_text(story: ValueStory, width: int | None = None) -> str:
    """Render the story of a value."""
    kind = f"   ({story.type})" if story.type else ""
    is_known = not story.words or any(word.verdict == _WINS for word in story.words)
    holds = f" = {value_text(story.value)}" if is_known else ""
    blocks = [
        wrapped(f"{story.path}{holds}{kind}", width),
        wrapped(story.doc, width),
    ]
    rows = [("layer", "place", "value", "")]
    rows += [(word.layer, word.place, value_text(word.value), word.verdict) for word in story.words]
    blocks.append(list(table(rows, width, headed=True)) if story.words else ["nobody gives it"])
    facts = [("needs", need) for need in story.needs]
    facts += [("goes to", story.goes_to)] if story.goes_to else []
    facts += [] if story.is_planned else [("holds", f"not yet: {NO_PLAN}, this is what was given")]
    blocks.append(list(table(facts, width)))
    return "\n\n".join("\n".join(block) for block in blocks if block != [""]) + "\n"


def _is_here(doc: FieldDoc, subject: Subject, record: Record) -> bool:
    """Whether the stage, or the pipeline, has a field that nobody gives.

    A plan has every value of the pipeline; and a mapping with free names has what was given alone.
    """
    if doc.is_member or not _is_known(subject, record):
        return False
    if subject.stage is None:
        return doc.is_common and is_of_connector(subject.path, record)
    return record.stages[subject.stage].execution_type in doc.kinds


def _is_known(subject: Subject, record: Record) -> bool:
    """Whether it is known what holds: by the plan, or by the connector that a file names."""
    return record.is_planned or (subject.stage is None and is_of_connector(subject.path, record))


def _wide_to(wide: WideDoc | None) -> str:
    return "every stage" if wide is None else wide.goes_to


def _axis(subject: Subject, catalog: Catalog) -> Axis | None:
    first, _, rest = subject.path.partition(".")
    return catalog.axes.get(rest.partition(".")[0]) if first == AXES else None


def _topic(path: str, axis: Axis | None) -> str | None:
    is_size = axis is not None and path.endswith(f".{SIZE}")
    return f"axis {axis.name}" if axis is not None and is_size else None


def _own(declarations: tuple[Declaration, ...], stage: StagePlan | None) -> Declaration:
    """Choose what the engine of the stage says, where several say something."""
    wanted = "" if stage is None else f"engine `{stage.engine}`"
    return next((each for each in declarations if each.owner == wanted), declarations[0])


def _words(
    said: Sequence[ValuePlan],
    own: Declaration | None,
    stage: StagePlan | None,
    path: str,
    beyond: Word,
) -> Iterator[Word]:
    """What the layers say, highest first; the field's own default is the last word.

    `beyond` holds where it is other than what they say; its value is `UNSET` where nothing is. The
    first of all wins; where that is a `null` that takes back the others, a default does.
    """
    default = [Word(layer=_DEFAULT, place=_DEFAULT, value=own.default)] if own is not None else []
    if own is not None and (own.required or _DEFAULT in [each.layer for each in said]):
        default = []
    given = [said[0].value] if _is_given(said) else [word.value for word in default]
    above = [] if beyond.value in (UNSET, *given) else [beyond]
    if stage is not None and path == DEVICES and not _is_given(said):
        above = [_placed(said, stage)]
    words = [*above, *_below(said), *default]
    is_cleared = bool(said) and said[0].clears and not above
    for number, word in enumerate(words):
        wins = word.layer == _DEFAULT if is_cleared else number == 0
        yield replace(word, verdict=_WINS) if wins else word


def _is_given(said: Sequence[ValuePlan]) -> bool:
    return bool(said) and not said[0].clears


def _placed(said: Sequence[ValuePlan], stage: StagePlan) -> Word:
    """Where a stage lies that nobody placed."""
    why = f": {said[0].origin}" if _gives_way(said) else ""
    return Word(layer=PLACEMENT, place=f"automatic{why}", value=devices_text(stage))


def _gives_way(said: Sequence[ValuePlan]) -> bool:
    return bool(said) and said[0].layer == PLACEMENT


def _below(said: Sequence[ValuePlan]) -> Iterator[Word]:
    """What was given; of devices that give way, the planner's word is told by where they lie."""
    if _gives_way(said):
        yield replace(_word(said[1]), verdict=_GIVES_WAY)
        said = said[2:]
    yield from map(_word, said)


def _word(said: ValuePlan) -> Word:
    shipped = ", as the model ships it" if said.is_default and said.layer != _DEFAULT else ""
    return Word(
        layer=_LAYERS[said.layer] + shipped,
        place=said.origin,
        value=said.value,
        verdict=_CLEARS if said.clears else _OVERRIDDEN,
    )


def _needs(axis: Axis, subject: Subject, made: Made, catalog: Catalog) -> Iterator[str]:
    yield from axis.needs
    stack = _stack(subject.stage, made.loaded, catalog)
    if stack is None or not subject.path.endswith(f".{SIZE}"):
        return
    implied = implied_size(axis, stack.stage, stack.sizes)
    if implied is not None:
        yield f"it follows from the other axes here: {implied}"
        return
    fitting = [size for size in range(1, _MOST + 1) if _fits(axis, size, stack)]
    if fitting and len(fitting) < _MOST:
        listed = ", ".join(map(str, fitting))
        yield f"sizes up to {_MOST} that fit `{subject.stage}`: {listed}"


def _stack(stage: str | None, loaded: Loaded | None, catalog: Catalog) -> Stack | None:
    """Put the axes of a stage together again, to ask them about other sizes."""
    if loaded is None or loaded.pipeline is None or loaded.settings is None:
        return None
    said = next(each for each in loaded.settings.stages if each.name == stage)
    declared = loaded.pipeline.stage(said.name)
    assert declared is not None
    facts = {} if loaded.checkpoint is None else loaded.checkpoint.facts
    return stack_of(declared, said, facts.get(said.name, StageFacts()), catalog.axes)


def _fits(axis: Axis, size: int, stack: Stack) -> bool:
    """Whether an axis of a stack has nothing against another size of itself."""
    tried = tuple(replace(item, size=size) if item.axis is axis else item for item in stack.axes)
    other = replace(stack, axes=tried)
    return all(not list(rule_findings(other, item, _ignore)) for item in tried if item.axis is axis)


def _ignore(_sentence: str) -> None:
    """A check that cannot be made is none against a size."""


def _goes_to(path: str, stage: StagePlan | None, catalog: Catalog) -> str:
    if stage is None:
        return ""
    first, _, rest = path.partition(".")
    engine = f"engine `{stage.engine}`"
    if first == AXES:
        return _carried_by(catalog.axes[rest.partition(".")[0]], stage, catalog)
    if first in stage.engine_args:
        return f"{engine}, as its argument `{first}`"
    return _PLANNED.get(first, f"nothing yet: {engine} does not act on it")


def _carried_by(axis: Axis, stage: StagePlan, catalog: Catalog) -> str:
    spec = catalog.engines.get(stage.engine)
    if axis.role is WorldRole.MULTIPLIES_REPLICAS:
        return "the runtime, which starts as many copies and chooses between them"
    if is_window(axis):
        return "the runtime, which bounds what is in flight on every edge that leaves the stage"
    if spec is not None and axis.name in spec.executes:
        return f"engine `{stage.engine}`, which executes the axis"
    who = "the runtime" if axis.role is WorldRole.NO_RANKS else f"engine `{stage.engine}`"
    return f"the plan alone: {who} does not execute the axis yet"
