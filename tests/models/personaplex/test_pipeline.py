"""Facts and sessions of PersonaPlex."""

from __future__ import annotations

import pytest

from stagemesh.models.personaplex.pipeline import PERSONAPLEX
from stagemesh.spec.facts import StageFacts
from tests.models.shipping import facts, facts_of, made, planned, told

NOTHING = StageFacts(num_experts=0)


def test_the_released_weights_are_known_by_their_version() -> None:
    """Their configuration says nothing else."""
    found = facts_of(PERSONAPLEX, "personaplex")
    assert found["talker"].num_layers == 32
    assert found["talker"].weight_dtype == "bfloat16"
    assert found["code2wav"] == NOTHING


@pytest.mark.parametrize("version", ["7b-v9", 1, None, ["7b-v1"]])
def test_nothing_is_known_of_another_version(version: object) -> None:
    """Nothing is guessed."""
    expected = {"talker": NOTHING, "code2wav": NOTHING}
    assert facts(PERSONAPLEX, {".": {"version": version}}) == expected


def test_it_speaks_while_it_listens() -> None:
    """The file that ships holds two sessions, which end with their connection."""
    model = PERSONAPLEX.duplex
    assert model is not None
    assert not model.supports_session_resume
    session = planned("personaplex").session
    assert session.mode == "duplex"
    assert session.duplex is not None
    assert session.duplex.max_sessions == 2


def test_eight_groups_are_shared_by_four_frontends() -> None:
    """The documented example: two groups and 16 sessions for each frontend."""
    devices = "0,1,2,3,4,5,6,7"
    overlay = {
        "base_config": "personaplex.yaml",
        "duplex_session": {
            "max_sessions": 64,
            "replica_policy": "least_sessions",
            "max_sessions_per_replica": 8,
        },
        "stages": [
            {"stage_id": 0, "num_replicas": 8, "devices": devices},
            {"stage_id": 1, "num_replicas": 8, "devices": devices},
        ],
    }
    plan = planned("personaplex", overlay, api_server_count=4)
    assert plan.session.duplex is not None
    shares = [(len(each.groups), each.quota) for each in plan.session.duplex.frontends]
    assert shares == [(2, 16)] * 4


def test_the_newer_runner_takes_no_full_duplex_sessions() -> None:
    """Nothing says that it does."""
    result = made("personaplex", {"base_config": "personaplex.yaml", "model_runner": "v2"})
    errors = [found.code for found in result.diagnostics if found.is_error]
    assert errors == ["PL088"], told(result)
