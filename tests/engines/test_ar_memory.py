"""What the `ar` engine tells the planner: memory of a rank, limits, and one step."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

import pytest

from stagemesh.engines.ar import ENGINE
from stagemesh.engines.ar.memory import cache_blocks, served_length
from stagemesh.engines.ar.options import ArOptions
from stagemesh.plan.words import size_text
from stagemesh.spec.axis import Finding
from stagemesh.spec.cost import Forward, Part, Pieces
from stagemesh.spec.engine import MemoryEstimate, MemoryInput
from stagemesh.spec.facts import StageFacts

GIB: Final = 2**30
PROCESS: Final = 256 * 2**20
DENSE: Final = StageFacts(
    num_attention_heads=8,
    num_kv_heads=2,
    num_layers=4,
    num_experts=0,
    hidden_size=64,
    intermediate_size=256,
    head_dim=8,
    vocab_size=1000,
    max_model_len=4096,
    weight_dtype="bfloat16",
    weight_bytes=10_000_000,
)
MIXTURE: Final = replace(
    DENSE, num_experts=8, moe_intermediate_size=32, num_experts_per_tok=2, intermediate_size=None
)
TABLE: Final = 1000 * 64 * 2
EXPERTS: Final = 3 * 64 * 32 * 8 * 4 * 2
TOKEN: Final = 4 * 2 * 2 * 8 * 2
"""Bytes of one token in the whole cache."""
NARROW: Final = ArOptions(max_num_seqs=4, max_num_batched_tokens=512)


def given(
    facts: StageFacts = DENSE,
    args: ArOptions = NARROW,
    pieces: Pieces | None = None,
    memory: int | None = None,
    **fields: object,
) -> MemoryInput:
    """All that a model of the engine is given."""
    return MemoryInput(
        facts=facts,
        sizes={},
        args=args,
        device_kind="cuda",
        device_memory_bytes=memory,
        pieces=pieces or {},
        stage_args=fields,
    )


def memory(asked: MemoryInput) -> MemoryEstimate:
    """Estimate what can be told."""
    found = ENGINE.memory(asked)
    assert found is not None
    return found


def step(asked: MemoryInput) -> Forward:
    """Describe one step."""
    assert ENGINE.forward is not None
    found = ENGINE.forward(asked)
    assert found is not None
    return found


def findings(asked: MemoryInput) -> list[Finding]:
    """Check the arguments."""
    return list(ENGINE.check(asked))


def test_every_rank_of_a_cut_layer_holds_the_whole_embedding() -> None:
    """All other weights are cut by width and by layers, and rounded up."""
    others = 10_000_000 - TABLE
    assert memory(given()).weights == 10_000_000
    assert memory(given(pieces={Part.WIDTH: 4})).weights == TABLE + others // 4
    assert memory(given(pieces={Part.LAYERS: 3})).weights == TABLE + -(-others * 2 // 4)
    assert memory(given(pieces={Part.REQUESTS: 4, Part.TOKENS: 2})).weights == 10_000_000


def test_experts_are_spread_by_their_own_axis_or_cut_like_the_rest() -> None:
    """Three matrices each, in every layer."""
    dense = 10_000_000 - TABLE - EXPERTS
    both = {Part.WIDTH: 2, Part.EXPERTS: 4}
    assert memory(given(MIXTURE, pieces=both)).weights == TABLE + dense // 2 + EXPERTS // 4
    assert memory(given(MIXTURE, pieces={Part.WIDTH: 2})).weights == (
        TABLE + dense // 2 + EXPERTS // 2
    )
    unknown = replace(MIXTURE, moe_intermediate_size=None)
    assert memory(given(unknown, pieces=both)).weights == TABLE + (dense + EXPERTS) // 2


def test_the_number_of_weights_stands_for_files_that_are_not_there() -> None:
    """In the type that is computed in."""
    facts = replace(DENSE, weight_bytes=None, num_parameters=5_000_000)
    assert memory(given(facts)).weights == 10_000_000
    wide = replace(NARROW, dtype="float32")
    assert memory(given(facts, wide)).weights == 20_000_000
    assert ENGINE.memory(given(replace(DENSE, weight_bytes=None))) is None


def test_the_cache_is_cut_by_layers_and_heads() -> None:
    """Fewer key heads than ranks are repeated."""
    whole = memory(given()).cache
    assert whole == 4 * 4096 * TOKEN
    assert memory(given(pieces={Part.WIDTH: 2})).cache == whole // 2
    assert memory(given(pieces={Part.WIDTH: 8})).cache == whole // 2
    assert memory(given(pieces={Part.LAYERS: 4})).cache == whole // 4


def test_the_workspace_counts_a_step_and_its_scores() -> None:
    """Twelve tensors of the stream's width and two inner ones a token; float32 scores."""
    scores = 4 * 1000 * 4
    plain = memory(given())
    assert plain.workspace == PROCESS + 512 * (12 * 64 + 2 * 256) * 2 + scores
    cut = memory(given(pieces={Part.WIDTH: 4, Part.TOKENS: 2}))
    assert cut.workspace == PROCESS + 256 * (12 * 64 + 2 * 64) * 2 + scores
    assert plain.context == GIB
    buffers = replace(given(), buffer_bytes=77)
    assert memory(buffers).workspace == plain.workspace + 77
    blank = replace(DENSE, hidden_size=None, vocab_size=None)
    assert memory(given(blank)).workspace == PROCESS


def test_a_step_has_no_more_sequences_than_tokens() -> None:
    """However many may run, so many scores are held and so many answers go on."""
    many = ArOptions(max_num_seqs=10**11, max_num_batched_tokens=512, kv_cache_memory_bytes=GIB)
    fewer = replace(many, max_num_seqs=512)
    assert memory(given(args=many)) == memory(given(args=fewer))
    assert step(given(args=many)) == step(given(args=fewer))
    assert step(given(replace(DENSE, weight_bytes=None), many)).batch == 512


def test_a_share_of_the_device_is_a_target_for_all_of_it() -> None:
    """The cache takes what weights and workspace leave, down to whole blocks."""
    asked = given(memory=4 * GIB, gpu_memory_utilization=0.5)
    found = memory(asked)
    block = 32 * TOKEN
    assert 2 * GIB - block < found.total <= 2 * GIB
    assert found.cache % block == 0
    assert findings(asked) == []
    halves = given(memory=4 * GIB, gpu_memory_utilization=0.5, pieces={Part.WIDTH: 2})
    assert memory(halves).total <= 2 * GIB
    assert memory(halves).cache > found.cache


def test_bytes_of_the_cache_replace_the_share() -> None:
    """The automatic size is overridden by an explicit one."""
    args = replace(NARROW, kv_cache_memory_bytes=64 * 2**20)
    found = memory(given(args=args, memory=4 * GIB, gpu_memory_utilization=0.5))
    assert found.cache == 64 * 2**20 // (32 * TOKEN) * 32 * TOKEN


def test_a_share_of_an_unknown_device_says_nothing() -> None:
    """Then the cache has the size that the lengths need; so it has in a slot of a CPU host."""
    assert memory(given(gpu_memory_utilization=0.5)) == memory(given())
    slot = replace(given(memory=4 * GIB), device_kind="cpu")
    told = replace(slot, stage_args={"gpu_memory_utilization": 0.5})
    assert memory(told) == memory(slot)


def test_a_share_that_leaves_no_cache_is_refused() -> None:
    """With what it takes, and how little would do."""
    (found,) = findings(given(memory=4 * GIB, gpu_memory_utilization=0.3))
    assert (found.code, found.field) == ("PL130", "gpu_memory_utilization")
    fixed = memory(given()).total - memory(given()).cache
    need = fixed + 4096 * TOKEN
    assert found.message == (
        f"`gpu_memory_utilization` gives {size_text(int(0.3 * 4 * GIB))},"
        f" and a rank needs {size_text(need)}"
    )
    advice = re.search("write at least `([0-9.]+)`", found.help or "")
    assert advice is not None
    least = float(advice[1])
    assert not findings(given(memory=4 * GIB, gpu_memory_utilization=least))
    assert findings(given(memory=4 * GIB, gpu_memory_utilization=least - 0.0002))
    asked = given(memory=4 * GIB, gpu_memory_utilization=0.3)
    assert memory(asked).cache == 0


def test_the_longest_sequence_may_be_what_the_cache_holds() -> None:
    """`-1` takes as much of the model's length as there is room for."""
    options = ArOptions(max_model_len=-1)
    assert served_length(options, token_bytes=TOKEN, longest=4096) == 4096
    small = ArOptions(max_model_len=-1, kv_cache_memory_bytes=100 * 32 * TOKEN)
    assert served_length(small, token_bytes=TOKEN, longest=4096) == 3200
    assert served_length(ArOptions(), token_bytes=TOKEN, longest=4096) == 4096
    assert served_length(ArOptions(max_model_len=7), token_bytes=TOKEN, longest=4096) == 7
    assert cache_blocks(small, token_bytes=TOKEN, max_model_len=3200) == 100
    assert memory(given(args=small)).cache == 100 * 32 * TOKEN
    assert findings(given(args=small)) == []
    none = ArOptions(max_model_len=-1, kv_cache_memory_bytes=31 * TOKEN)
    assert [found.code for found in findings(given(args=none))] == ["PL061"]
    boundless = replace(DENSE, max_model_len=None)
    assert ENGINE.memory(given(boundless, ArOptions(max_model_len=-1))) is None
    assert memory(given(boundless, ArOptions(max_model_len=512, max_num_seqs=1))).cache == (
        512 * TOKEN
    )


@pytest.mark.parametrize("length", [0, 1])
def test_a_length_without_an_answer_is_refused(length: int) -> None:
    """One token of the prompt and one of the answer is the least."""
    with pytest.raises(ValueError, match=f"`max_model_len` is `{length}`, the least is `2`"):
        ArOptions(max_model_len=length)


def test_a_step_reads_the_weights_and_the_cache_once() -> None:
    """Two operations a weight and sequence, and attention to a thousand tokens before it."""
    found = step(given())
    assert found.work is not None
    assert (found.tokens, found.batch, found.element_bytes) == (4, 4, 2)
    assert found.work.read_bytes == 10_000_000 + 4 * 1024 * TOKEN
    assert found.work.flops == 4 * (2 * 5_000_000 + 4 * 1024 * 8 * 8 * 4)
    cut = step(given(pieces={Part.WIDTH: 2}))
    assert cut.work is not None
    assert cut.work.flops == found.work.flops / 2
    assert cut.work.read_bytes == found.work.read_bytes / 2
    piped = step(given(pieces={Part.LAYERS: 4}))
    assert piped.work is not None
    assert piped.batch == 1
    assert piped.work.read_bytes == 10_000_000 + 1024 * TOKEN


def test_a_step_of_a_mixture_visits_some_experts() -> None:
    """It computes two of eight for each token, and reads those that any token needs."""
    one = replace(NARROW, max_num_seqs=1)
    found = step(given(MIXTURE, one))
    assert found.work is not None
    dense = 10_000_000 - EXPERTS
    assert found.work.read_bytes == dense + EXPERTS / 4 + 1024 * TOKEN
    assert found.work.flops == 2 * (dense + EXPERTS / 4) / 2 + 4 * 1024 * 8 * 8 * 4
    all_of_them = step(given(MIXTURE))
    assert all_of_them.work is not None
    assert all_of_them.work.read_bytes == 10_000_000 + 4 * 1024 * TOKEN


def test_a_step_is_described_though_its_work_is_unknown() -> None:
    """What it sends does not depend on the weights."""
    found = step(given(replace(DENSE, weight_bytes=None)))
    assert (found.tokens, found.work, found.weight_bytes) == (4, None, None)


def test_a_cache_for_few_sequences_makes_small_steps() -> None:
    """As many as have a thousand tokens of room."""
    args = ArOptions(kv_cache_memory_bytes=3000 * TOKEN, max_model_len=2048)
    assert step(given(args=args)).batch == 2
