"""A model of a third party that talks in full duplex, from its deploy file to its clients."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from tests.waiting import WAIT_S

pytestmark = pytest.mark.slow

PIPELINE = """
from stagemesh.spec.duplex import DuplexModel
from stagemesh.spec.pipeline import ExecutionType, PipelineConfig, StagePipelineConfig

KIND = ExecutionType.LLM_GENERATION
PIPELINES = (
    PipelineConfig(
        model_type="parlour",
        summary="a model that talks",
        default_deploy_config_name="parlour",
        duplex=DuplexModel(
            plugin="parlour:nothing",
            supports_concurrent_sessions=True,
            supports_session_resume=RESUMES,
        ),
        stages=(
            StagePipelineConfig(stage_id=0, model_stage="ear", execution_type=KIND),
            StagePipelineConfig(
                stage_id=1,
                model_stage="mouth",
                execution_type=KIND,
                input_sources=(0,),
                final_output=True,
                final_output_type="text",
            ),
        ),
    ),
)
"""
DEPLOY = """
session_mode: duplex
duplex_session:
  max_sessions: 4
  replica_policy: least_sessions
  max_sessions_per_replica: 2
stages:
  - {stage_id: 0, engine: fake, num_outputs: 1, num_replicas: 2}
  - {stage_id: 1, engine: fake, num_replicas: 2}
"""


@pytest.mark.parametrize("frontends", [1, 2])
def test_a_deploy_file_makes_a_pipeline_talk_in_sessions(tmp_path: Path, frontends: int) -> None:
    """Planned, served, asked over a WebSocket, and stopped with a session that is open."""
    site, model = tmp_path / "site", tmp_path / "model"
    for folder in (site / "parlour", site / "parlour-1.0.dist-info", model):
        folder.mkdir(parents=True)
    # who comes back may reach another frontend
    pipeline = PIPELINE.replace("RESUMES", str(frontends == 1))
    (site / "parlour" / "__init__.py").write_text(pipeline)
    metadata = site / "parlour-1.0.dist-info"
    (metadata / "entry_points.txt").write_text("[stagemesh.models]\nparlour = parlour\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: parlour\nVersion: 1.0\n")
    (model / "config.json").write_text(json.dumps({"model_type": "parlour"}))
    (tmp_path / "deploy.yaml").write_text(DEPLOY)
    (site / "parlour" / "deploy").mkdir()
    (site / "parlour" / "deploy" / "parlour.yaml").write_text("stages: []\n")
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    asked = [sys.executable, "-m", "stagemesh", "serve", "model"]
    asked += ["--api-server-count", str(frontends)]
    with subprocess.Popen(
        [*asked, "--deploy-config", "deploy.yaml", "--port", "0", "--control-socket", "private/s"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path, "XDG_RUNTIME_DIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            asyncio.run(asyncio.wait_for(talk(where(server)), WAIT_S))
        finally:
            server.send_signal(signal.SIGTERM)
            _, said = server.communicate(timeout=WAIT_S)
        assert said.endswith("stopped\n")
        assert server.returncode == 0


def where(server: subprocess.Popen[str]) -> str:
    """Wait until it serves; return its address."""
    assert server.stderr is not None
    said = []
    for line in server.stderr:
        said.append(line)
        if found := re.match(r"serving at (\S+),", line):
            return found[1]
    raise AssertionError("".join(said))


async def talk(url: str) -> None:
    """Two turns in a session, which stays open."""
    async with aiohttp.ClientSession() as session, session.ws_connect(f"{url}/v1/session") as one:
        opened = await one.receive_json()
        assert opened["replicas"] == {"ear": opened["group"], "mouth": opened["group"]}
        for text in ("a#0", "ab#0"):
            await one.send_json({"type": "turn", "prompt": text[-3]})
            output, done = await one.receive_json(), await one.receive_json()
            assert (output["payload"]["meta"]["text"], done["type"]) == (text, "done")
