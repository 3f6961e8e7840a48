"""`parallelize` under `torchrun`: a stock pipeline gives the picture that one rank draws."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.waiting import WAIT_S

pytestmark = pytest.mark.nightly

ROOT: Final = Path(__file__).parents[2]
BOUND: Final = 1e-5


def torchrun(ranks: int, *axes: dict[str, Any], more: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Start so many processes with the axes of `dit`; return what each printed."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    run = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
    script = ["-m", "tests.parallel.parallelize_main", json.dumps({"strategies": {"dit": axes}})]
    done = subprocess.run(
        [*run, f"--master-port={port}", *script, *more],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize(
    "axes",
    [
        [{"axis": "sp_ulysses", "size": 2}],
        [{"axis": "tp", "size": 2}],
        [
            {"axis": "sp_ring", "size": 2},
            {"axis": "vae_pp", "size": 2, "mode": "spatial_shard_height"},
        ],
        [{"axis": "sp_ulysses", "size": 2}, {"axis": "tp", "size": 2}],
    ],
)
def test_a_stock_pipeline_draws_the_same_picture(axes: list[dict[str, Any]]) -> None:
    """On all ranks, which draw the same noise where nobody says which."""
    told = torchrun(2 if len(axes) == 1 or axes[1]["axis"] == "vae_pp" else 4, *axes)
    assert max(each["difference"] for each in told) <= BOUND
    assert len({each["drawn"] for each in told}) == 1
    assert told[0]["axes"] == {each["axis"]: each["size"] for each in axes}


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ([{"axis": "cfg", "size": 2}], "`cfg` of the plan is not carried out by `parallelize`"),
        ([{"axis": "tp", "size": 4}], "PL014"),
        ([{"axis": "tp", "size": 1}], "the plan has `1` ranks, and `2` were started"),
        ([{"axis": "tp", "size": 3}], "AX03"),
        (
            [{"axis": "sp_ring", "size": 2, "exchange": "allgather"}],
            "`exchange` of `sp_ring` is `allgather`, which `parallelize` does not do",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_refused_on_all_ranks(
    axes: list[dict[str, Any]], said: str
) -> None:
    """By the planner, or before anything is bound."""
    told = torchrun(2, *axes)
    assert len(told) == 2
    assert all(said in each["error"] for each in told)


def test_a_vae_that_is_not_there_cannot_be_shared() -> None:
    """A denoiser by itself has none."""
    axes = [{"axis": "sp_ulysses", "size": 2}, {"axis": "vae_pp", "size": 2}]
    told = torchrun(2, *axes, more=("alone",))
    assert {each["error"] for each in told} == {
        "`vae_pp` has nothing to share: no plan is about a VAE here"
    }


def test_what_a_strategy_binds_is_bound_or_refused() -> None:
    """A hook that nobody has registered is not lost."""
    hook = {"hook_id": "mine", "target": "transformer_blocks.*"}
    told = torchrun(2, {"axis": "tp", "size": 2, "layer_hook_specs": [hook]})
    assert {each["error"] for each in told} == {
        "nothing is called `mine`; there are `gather_tokens`, `split_tokens`"
    }
