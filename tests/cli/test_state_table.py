"""The state of a server as a table."""

from __future__ import annotations

from stagemesh.cli._state import state_text

REPLICA = {
    "state": "serving",
    "pid": 7,
    "num_restarts": 0,
    "queued": 0,
    "waiting": 0,
    "running": 1,
    "outputs_per_s": 0.0,
    "first_output_s": None,
    "step_s": 0.0,
    "reason": None,
}


def test_several_frontends_have_a_table_of_their_own() -> None:
    """With the replicas that each owns, and the first line of why one is gone."""
    owned = [{**REPLICA, "replica": number, "frontend": number} for number in (0, 1)]
    lines = state_text(
        {
            "pipeline": "talk",
            "state": "degraded",
            "frontends": [
                {"frontend": 0, "state": "serving", "pid": 3, "num_restarts": 0, "reason": None},
                {"frontend": 1, "state": "dead", "pid": None, "num_restarts": 2, "reason": "a\nb"},
            ],
            "stages": [{"stage": "one", "replicas": owned}],
        }
    ).splitlines()
    assert lines[0] == "talk: degraded"
    assert lines[1].split() == ["frontend", "state", "process", "restarts", "owns", "reason"]
    assert lines[2].split() == ["0", "serving", "3", "0", "one", "0", "-"]
    assert lines[3].split() == ["1", "dead", "-", "2", "one", "1", "a"]
    assert [line.split()[0] for line in lines[4:]] == ["stage", "one", "1"]
