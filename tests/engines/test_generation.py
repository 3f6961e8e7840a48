"""The generation engine: buckets, fairness, and whose fault a failure is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stagemesh.engines._generation import GenerationEngine
from stagemesh.engines.generation import ENGINE, GenerationOptions
from stagemesh.spec.engine import EngineOutput, EngineRequest, FaultKind, MemoryInput
from stagemesh.spec.facts import StageFacts
from stagemesh.spec.generation import ModuleContext
from stagemesh.spec.pipeline import NoOptions
from stagemesh.testing.engine_context import engine_context
from tests.engines import tiny
from tests.engines.counting import SpellingModule, SpellingParams

pytestmark = pytest.mark.slow

CONTEXT = engine_context(
    GenerationOptions(max_num_seqs=2), stage="talker", loader="tests.engines.counting:load"
)


@pytest.fixture
def engine() -> GenerationEngine:
    """A loaded engine that spells."""
    made = GenerationEngine(CONTEXT)
    made.load()
    return made


def batches(engine: GenerationEngine) -> list[list[str]]:
    """Return who was run together so far."""
    assert isinstance(engine._module, SpellingModule)
    return engine._module.batches


def start(engine: GenerationEngine, **words: str) -> None:
    """Give the engine whole words."""
    for name, word in words.items():
        engine.add(EngineRequest(request_id=name))
        engine.append(name, tiny.text_payload(word), last=True)


def finish(engine: GenerationEngine) -> list[EngineOutput]:
    """Step until nothing is left."""
    outputs = []
    while engine.has_work():
        outputs += engine.step()
    return outputs


def test_a_session_wants_its_next_input_when_it_has_no_unit(engine: GenerationEngine) -> None:
    """The last letter is kept back until the input is whole."""
    engine.add(EngineRequest(request_id="a"))
    engine.append("a", tiny.text_payload("no"), last=False)
    assert not engine.wants_input("a")
    engine.step()
    assert engine.wants_input("a")


def test_equal_buckets_run_together_up_to_the_limit(engine: GenerationEngine) -> None:
    """Two of three vowels share a step; the consonant in front is run first and alone."""
    start(engine, a="t", b="e", c="o", d="i")
    finish(engine)
    assert batches(engine) == [["a"], ["b", "c"], ["d"]]


def test_no_bucket_starves(engine: GenerationEngine) -> None:
    """A lone consonant gets its turn between vowels that always have more to say."""
    start(engine, a="aeio", b="aeio", c="aeio", d="t")
    finish(engine)
    assert batches(engine)[:3] == [["a", "b"], ["c", "a"], ["d"]]


def test_units_are_passed_on(engine: GenerationEngine) -> None:
    """What a module counted comes out."""
    start(engine, a="ab")
    assert [output.units for output in finish(engine)] == [{"letters": 1}, {"letters": 1}]


def test_a_broken_batch_fails_its_requests_only(engine: GenerationEngine) -> None:
    """All in the batch fail, since their sessions may be half changed; others go on."""
    start(engine, a="!", b="t", c="e")
    outputs = {output.request_id: output for output in finish(engine)}
    for name in "ab":
        fault = outputs[name].error
        assert fault is not None
        assert (fault.kind, fault.message) == (FaultKind.INTERNAL, "RuntimeError: broken batch")
    assert outputs["c"].finish is not None


@pytest.mark.parametrize(
    ("word", "kind", "message"),
    [
        ("1", FaultKind.INVALID_REQUEST, "digits cannot be spelled"),
        ("?", FaultKind.INTERNAL, "RuntimeError: broken"),
        ("", FaultKind.INTERNAL, "RuntimeError: the module wants more input after the last"),
        ("#", FaultKind.INTERNAL, "RuntimeError: module gave 0 outputs for 1 sessions"),
    ],
)
def test_failures_say_whose_fault_they_are(
    engine: GenerationEngine, word: str, kind: FaultKind, message: str
) -> None:
    """A refused input is the request's fault; what breaks in the module, or is missing, is ours."""
    start(engine, a=word)
    (output,) = finish(engine)
    assert output.error is not None
    assert (output.error.kind, output.error.message) == (kind, message)


def test_a_failure_after_a_unit_comes_with_what_it_gave(engine: GenerationEngine) -> None:
    """When the next unit cannot be named, the last output carries payload and failure together."""
    start(engine, a="e*")
    (output,) = finish(engine)
    assert output.payloads[0].meta == {"text": "E"}
    assert output.error is not None
    assert output.error.message == "RuntimeError: no bucket"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"speed": 1}, "unknown key `speed` in `params`"),
        ({"tempo": 3}, "`params.tempo` must be text, got `3`"),
        ({"tempo": "sleepy"}, "nobody spells in their sleep"),
    ],
)
def test_a_refused_parameter_fails_the_request(params: dict[str, object], message: str) -> None:
    """They must be what the model declares, and the module's `open` may refuse them then."""
    engine = GenerationEngine(replace(CONTEXT, model_params=SpellingParams))
    engine.load()
    engine.add(EngineRequest(request_id="a", params=params))
    engine.append("a", tiny.text_payload("word"), last=True)
    (output,) = finish(engine)
    assert output.error is not None
    assert (output.error.kind, output.error.message) == (FaultKind.INVALID_REQUEST, message)


def test_the_module_is_told_where_it_is() -> None:
    """Folder of the stage, device, the stage's own options, and whether chunks are wanted."""
    engine = GenerationEngine(
        replace(CONTEXT, checkpoint=Path("/model"), model_subdir="voice", device="meta")
    )
    engine.load()
    assert isinstance(engine._module, SpellingModule)
    assert engine._module.context == ModuleContext(
        folder=Path("/model/voice"), device="meta", args=NoOptions(), async_chunk=True
    )


def test_a_stage_without_a_loader_is_refused() -> None:
    """The engine cannot guess a network."""
    with pytest.raises(ValueError, match="stage `talker` names no loader"):
        GenerationEngine(replace(CONTEXT, loader=None)).load()


def test_memory_is_that_of_the_weights() -> None:
    """Without their size there is no estimate."""
    args = GenerationOptions()
    known = ENGINE.memory(
        MemoryInput(facts=StageFacts(weight_bytes=5), sizes={}, args=args, device_kind="cpu")
    )
    assert known is not None
    assert (known.weights, known.cache) == (5, 0)
    assert (
        ENGINE.memory(MemoryInput(facts=StageFacts(), sizes={}, args=args, device_kind="cpu"))
        is None
    )
