"""Every screen of the planning commands, at two widths: both streams and the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest

from stagemesh.config.host import Host
from tests.cli.screens import FOLDER, WIDTHS, check_screen, screen, stand_in, too_wide
from tests.plan.making import catalog, pipeline, stage

STRATEGY: Final = """\
strategies:
  thinker:
    - {axis: tp, size: 3}
    - axis: stage_replica
      size: 2
      routing: least_queue
"""
OTHER: Final = """\
strategies:
  thinker:
    - {axis: pp, size: 2}
  code2wav:
    - {axis: stage_replica, size: 2}
"""
DEPLOY: Final = """\
async_chunk: false
stages:
  - stage_id: 0
    max_num_seqs: 4
    default_sampling_params: {max_tokens: 32, temperature: 0.7}
  - {stage_id: 2, env: {OMP_NUM_THREADS: "1"}}
"""
MISTAKES: Final = """\
strategies:
  thinker:
    - {axis: tp, size: 2}
    - {axis: sp_ring, size: 2}
  talkr:
    - {axis: tp, size: true, rooting: round_robin}
"""
FILES: Final[Mapping[str, str]] = {
    "strategy.yaml": STRATEGY,
    "other.yaml": OTHER,
    "deploy.yaml": DEPLOY,
    "mistakes.yaml": MISTAKES,
}
PLAN: Final = "plan voice_chat --devices 8xH200"
PINNED: Final = "qwen2_5_omni --devices 4xH100 --set thinker.tp=2"
LAYOUT: Final = "--strategy-config strategy.yaml --deploy-config deploy.yaml --devices 8xH200"
OVERRIDES: Final = (
    """--stage-overrides={"talker":{"max_num_seqs":2},"thinker":{"max_num_seqs":6}}"""
)
SCREENS: Final[Mapping[str, str]] = {
    "plan_own": PLAN,
    "plan_here": "plan voice_chat",
    "plan_changed": f"plan voice_chat {LAYOUT} {OVERRIDES} --async-chunk",
    "plan_values": f"plan voice_chat {LAYOUT} {OVERRIDES} --values",
    "plan_mistakes": f"{PLAN} --strategy-config mistakes.yaml",
    "plan_no_fit": f"{PLAN} --strategy-config other.yaml --stage-overrides "
    '{"thinker":{"devices":"0"}}',
    "plan_gives_way": f"plan {PINNED}",
    "plan_saved": f"{PLAN} -o plan.json",
    "plan_written": f"{PLAN} --as vllm-omni -o deploy_file.yaml",
    "explain_code": "explain ax022",
    "explain_axis": "explain axis ep",
    "explain_axis_unknown": "explain axis tpp",
    "explain_field": "explain max_num_seqs",
    "explain_member": "explain default_sampling_params.temperature",
    "explain_nothing": "explain max_num_seq",
    "explain_value": f"explain thinker.max_num_seqs voice_chat {LAYOUT} {OVERRIDES}",
    "explain_gives_way": f"explain talker.devices {PINNED}",
    "explain_size": f"explain thinker.tp voice_chat {LAYOUT}",
    "explain_default": "explain talker.num_threads voice_chat --devices 8xH200",
    "explain_stage": f"explain thinker voice_chat {LAYOUT}",
    "explain_no_value": "explain thinker.tpp voice_chat --devices 8xH200",
    "diff_planned": "diff strategy.yaml other.yaml --model voice_chat --devices 8xH200",
    "diff_files": "diff strategy.yaml other.yaml",
    "diff_same": "diff deploy.yaml deploy.yaml",
    "diff_kinds": "diff deploy.yaml strategy.yaml",
    "diff_mistakes": "diff strategy.yaml mistakes.yaml --model voice_chat --devices 8xH200",
    "validate_valid": "validate deploy.yaml strategy.yaml --model voice_chat",
    "validate_form": "validate deploy.yaml",
    "validate_invalid": "validate deploy.yaml mistakes.yaml nowhere.yaml --pipeline voice_chat",
    "list_models": "list models",
    "list_axes": "list axes",
    "list_engines": "list engines",
    "list_connectors": "list connectors",
}


TOYS: Final = catalog(pipeline(stage(0, "thinker"), stage(1, "talker")))
LISTED: Final[Mapping[str, tuple[object, ...]]] = {
    "AXES": tuple(TOYS.axes[name] for name in ("sp_ulysses", "stage_replica", "tp")),
    "CONNECTORS": tuple(dict.fromkeys(TOYS.connectors.values())),
    "ENGINES": tuple(TOYS.engines.values()),
    "MODELS": tuple(
        replace(model.pipeline, plans="tests.cli.toy_plans:plans") for model in TOYS.models
    ),
}
"""What is listed: few plug-ins, so that a new one changes no screen."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, monkeypatch)
    host = Host(kind="cpu", count=None, memory_bytes=96 * 2**30)
    for command in ("_plan", "_making", "_diff"):
        monkeypatch.setattr(f"stagemesh.cli.{command}.read_host", lambda: host)
    for kind, declared in LISTED.items():
        listed = SimpleNamespace(declarations=lambda declared=declared: declared)
        monkeypatch.setattr(f"stagemesh.cli._listing.{kind}", listed)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_as_it_was(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is broken inside a word, and nothing runs over the edge that could be broken."""
    monkeypatch.setenv("COLUMNS", str(width))
    text = screen(SCREENS[name].split(" "), capsys)
    check_screen(f"{name}_{width}", text)
    assert too_wide(text, width) == []


def test_no_screen_is_kept_that_no_command_shows() -> None:
    """A file that is not compared would only look right."""
    kept = {file.stem.rpartition("_")[0] for file in FOLDER.glob("*_[16]*0.txt")}
    assert kept == set(SCREENS)


@pytest.mark.parametrize("name", SCREENS)
def test_a_narrow_screen_says_all_that_a_wide_one_says(name: str) -> None:
    """Only blanks and the order of cells may differ; what is empty gets no line of its own."""

    def words(width: int) -> set[str]:
        text = (FOLDER / f"{name}_{width}.txt").read_text(encoding="utf-8")
        return {word.strip(":,()") for word in text.split()} - {"-", ""}

    wide, narrow = words(120), words(60)
    assert wide - narrow <= HEADINGS


HEADINGS: Final = frozenset({"from", "fits"})
"""Headings of columns whose cells are all empty where they would stand below."""
