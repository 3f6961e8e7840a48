"""Loading an `ar` stage: types, limits, memory, and models that are refused."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AttentionInterface, AutoModelForCausalLM

from stagemesh.engines.ar import ENGINE, attention, network
from stagemesh.engines.ar.head import PackedHead, pack_head
from stagemesh.engines.ar.memory import cache_blocks
from stagemesh.engines.ar.network import Network, compute_dtype
from stagemesh.engines.ar.options import ArOptions
from stagemesh.spec.cost import Part
from stagemesh.spec.engine import MemoryInput
from stagemesh.spec.facts import StageFacts
from tests.engines import tiny

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
TOKEN_BYTES = 3 * 2 * 2 * 8 * 4
FACTS = StageFacts(
    weight_bytes=1000,
    weight_dtype="float32",
    num_layers=3,
    num_kv_heads=2,
    head_dim=8,
    max_model_len=tiny.MAX_LEN,
)


def options(**values: object) -> ArOptions:
    """Return engine arguments, in float32."""
    return ArOptions(dtype="float32", **values)  # type: ignore[arg-type]


def test_limits_that_do_not_fit_are_refused(tiny_model: Callable[[str], Path]) -> None:
    """A context beyond the model's, or a cache too small for one sequence, says both numbers."""
    folder = tiny_model("llama")
    with pytest.raises(ValueError, match=r"`max_model_len` is `257`, the model allows `256`"):
        Network(folder, options(max_model_len=257), CPU)
    with pytest.raises(ValueError, match=rf"`256` tokens needs `{256 * TOKEN_BYTES}`"):
        Network(folder, options(kv_cache_memory_bytes=100 * TOKEN_BYTES), CPU)


def test_a_length_that_the_cache_decides_is_served(tiny_model: Callable[[str], Path]) -> None:
    """`-1` takes whole blocks of the budget, at most the model's length."""
    small = options(max_model_len=-1, kv_cache_memory_bytes=100 * TOKEN_BYTES, block_size=16)
    assert Network(tiny_model("llama"), small, CPU).limits.max_model_len == 96
    limits = Network(tiny_model("llama"), options(max_model_len=-1), CPU).limits
    assert limits.max_model_len == tiny.MAX_LEN


def test_the_cache_has_the_blocks_of_the_plan(tiny_model: Callable[[str], Path]) -> None:
    """The memory model and the loaded engine count alike, with a budget and without."""
    for args in (options(max_num_seqs=2), options(kv_cache_memory_bytes=999_999, block_size=16)):
        estimate = ENGINE.memory(MemoryInput(facts=FACTS, sizes={}, args=args, device_kind="cpu"))
        assert estimate is not None
        limits = Network(tiny_model("llama"), args, CPU).limits
        assert estimate.cache == limits.num_blocks * args.block_size * TOKEN_BYTES


def test_memory_is_split_over_ranks() -> None:
    """Tensor and pipeline ranks hold their part of weights and cache; kv heads may be repeated."""
    whole = ENGINE.memory(MemoryInput(facts=FACTS, sizes={}, args=options(), device_kind="cpu"))
    split = ENGINE.memory(
        MemoryInput(
            facts=FACTS,
            sizes={},
            args=options(),
            device_kind="cpu",
            pieces={Part.WIDTH: 4, Part.LAYERS: 3},
        )
    )
    assert whole is not None
    assert split is not None
    assert split.weights == -(-1000 // 12)
    assert split.cache == whole.cache // 6


def test_memory_is_unknown_without_facts() -> None:
    """A missing fact gives no estimate rather than a wrong one."""
    facts = StageFacts(weight_bytes=1000, num_layers=3, num_kv_heads=2, max_model_len=256)
    assert (
        ENGINE.memory(MemoryInput(facts=facts, sizes={}, args=options(), device_kind="cpu")) is None
    )
    facts = StageFacts(weight_bytes=1000, num_layers=3, num_kv_heads=2, head_dim=8)
    assert (
        ENGINE.memory(MemoryInput(facts=facts, sizes={}, args=options(), device_kind="cpu")) is None
    )


@pytest.mark.parametrize(
    ("token_bytes", "max_model_len", "blocks"),
    [(1, 64, 4 * 2), (2**20, 320, 32), (2**20, 3200, 100)],
)
def test_the_default_cache_is_bounded(token_bytes: int, max_model_len: int, blocks: int) -> None:
    """All sequences where that is little, 1 GiB where it is much, but always one sequence."""
    args = ArOptions(max_num_seqs=4)
    assert cache_blocks(args, token_bytes=token_bytes, max_model_len=max_model_len) == blocks


@pytest.mark.parametrize(
    ("able", "computed"), [({"amx_bf16": True}, torch.bfloat16), ({"avx2": True}, torch.float32)]
)
def test_auto_takes_a_type_that_the_cpu_computes(
    able: dict[str, bool], computed: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bfloat16 checkpoint is computed in float32 where the CPU cannot do bfloat16."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: able)
    assert compute_dtype(torch.bfloat16, "auto", CPU) is computed
    assert compute_dtype(torch.bfloat16, "float16", CPU) is torch.float16
    assert compute_dtype(torch.bfloat16, "auto", torch.device("cuda")) is torch.bfloat16
    assert compute_dtype(torch.float16, "auto", CPU) is torch.float32
    assert compute_dtype(None, "auto", CPU) is torch.float32


@pytest.mark.parametrize(
    ("own", "generation", "ends"),
    [(None, None, set()), (5, None, {5}), (5, [6, 7], {6, 7}), (-1, None, set())],
)
def test_end_tokens_come_from_the_generation_config_first(
    own: int | None,
    generation: list[int] | None,
    ends: set[int],
    tiny_model: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    """`generation_config.json` beats `config.json`; a checkpoint may have none, or -1 for none."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_model("llama"), folder)
    for name, value in (("config.json", own), ("generation_config.json", generation)):
        written = json.loads((folder / name).read_text(encoding="utf-8"))
        written["eos_token_id"] = value
        (folder / name).write_text(json.dumps(written), encoding="utf-8")
    if generation is None:
        (folder / "generation_config.json").unlink()
    assert Network(folder, options(), CPU).limits.end_tokens == ends


def test_a_model_that_asks_for_more_than_is_served_is_refused() -> None:
    """Attention sinks and other extras raise instead of being dropped."""
    attention.register()
    tensor = torch.zeros(1, 2, 1, 4)
    call = AttentionInterface()[attention.ATTENTION_NAME]
    with pytest.raises(NotImplementedError, match="Linear asks for `s_aux`, `attention_mask`"):
        call(nn.Linear(1, 1), tensor, tensor, tensor, tensor, paged=attention.ShapeProbe(), s_aux=1)


def test_a_model_with_layers_of_another_kind_is_refused(
    tiny_model: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A layer that keeps no keys and values would be wrong in silence."""

    class Forgetful(attention.ShapeProbe):
        def attend(self, layer: int, *rest: Any) -> torch.Tensor:  # noqa: ANN401
            out = super().attend(layer, *rest)
            self.shapes.pop(1, None)
            return out

    monkeypatch.setattr(network, "ShapeProbe", Forgetful)
    with pytest.raises(ValueError, match="`LlamaForCausalLM` has layers without attention"):
        Network(tiny_model("llama"), options(), CPU)


@pytest.mark.parametrize("rows", [1, 2, 8, 40])
def test_the_packed_head_gives_the_same_scores(
    rows: int, tiny_model: Callable[[str], Path]
) -> None:
    """Both layouts of the last matrix give the same product up to rounding."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model("llama"), dtype=torch.float32)
    plain = model.get_output_embeddings()
    hidden_bye = torch.randn(1, rows, 48)
    pack_head(model)
    packed = model.get_output_embeddings()
    assert isinstance(packed, PackedHead)
    with torch.inference_mode():
        torch.testing.assert_close(packed(hidden_bye), plain(hidden_bye), rtol=1e-5, atol=1e-5)


def test_a_head_of_another_type_is_left_alone(tiny_model: Callable[[str], Path]) -> None:
    """Only float32 is packed."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model("llama"), dtype=torch.bfloat16)
    head = model.get_output_embeddings()
    pack_head(model)
    assert model.get_output_embeddings() is head


def test_memory_counts_the_type_that_is_computed_in() -> None:
    """`auto` may mean float32 on a CPU; on a GPU it is the type of the files."""
    facts = dataclasses.replace(FACTS, weight_dtype="bfloat16")
    sizes = {
        kind: ENGINE.memory(MemoryInput(facts=facts, sizes={}, args=args, device_kind=kind))
        for kind, args in (("cpu", ArOptions()), ("cuda", ArOptions()))
    }
    cpu, cuda = sizes["cpu"], sizes["cuda"]
    assert cpu is not None
    assert cuda is not None
    assert (cpu.weights, cuda.weights) == (2000, 1000)
    assert cpu.cache == 2 * cuda.cache


@pytest.mark.parametrize(
    ("args", "codes"),
    [
        (ArOptions(max_model_len=tiny.MAX_LEN), []),
        (ArOptions(max_model_len=tiny.MAX_LEN + 1), ["PL060"]),
        (options(kv_cache_memory_bytes=1), ["PL061"]),
        (options(kv_cache_memory_bytes=10**9), []),
    ],
)
def test_the_plan_knows_what_loading_would_refuse(args: ArOptions, codes: list[str]) -> None:
    """Lengths and caches are checked against the checkpoint's facts before anything is loaded."""
    given = MemoryInput(facts=FACTS, sizes={}, args=args, device_kind="cpu")
    assert [finding.code for finding in ENGINE.check(given)] == codes
    blank = MemoryInput(facts=StageFacts(), sizes={}, args=args, device_kind="cpu")
    assert not list(ENGINE.check(blank))
