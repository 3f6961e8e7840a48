"""Launch options: their ranges, and what they need and exclude."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.flagged import codes_of, made_from, planned
from tests.config.speech import Speech, flag

MASTER = "--omni-master-address h --omni-master-port 1"


@pytest.mark.parametrize(
    "line",
    [
        f"--stage-id 0 {MASTER}",
        f"--stage-id none {MASTER}",
        f"--stage-id mid {MASTER}",
        f"--stage-id 2 --headless {MASTER} --omni-replica-address 10.0.0.2",
        f"--stage-id 2 {MASTER} --omni-dp-size-local 2",
        f"--stage-id 0 {MASTER} --omni-token-file token",
        f"--stage-id 0 {MASTER} --insecure-no-token",
        f"--stage-id 0 {MASTER} --omni-tls-cert c --omni-tls-key k --omni-tls-ca a",
        "--omni-dp-size-local 1",
        "--api-server-count 1",
        "--worker-backend ray --ray-address auto",
        f"--worker-backend ray {MASTER} --omni-token-file token",
        "--worker-backend multi_process --no-headless",
        "-oma h -omp 65535",
        f"--omni-heartbeat-timeout 0.5 {MASTER} --stage-init-timeout 1 --init-timeout 1",
    ],
)
def test_options_that_go_together_are_taken(line: str, tmp_path: Path) -> None:
    """They are part of the plan."""
    made = made_from(tmp_path, line)
    assert made.diagnostics == ()
    assert made.plan is not None


def test_what_was_given_is_in_the_plan_with_its_origin(tmp_path: Path) -> None:
    """A stage is named or numbered; the plan has its number."""
    plan = planned(made_from(tmp_path, f"--stage-id mid {MASTER} --omni-heartbeat-timeout 3"))
    assert plan.launch.stage_id == 1
    assert plan.launch.omni_heartbeat_timeout == 3.0
    assert plan.launch.api_server_count == 1
    assert plan.values["launch.stage_id"].origin == "--stage-id"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--stage-id 0",
            "`--stage-id` needs `--omni-master-address` and `--omni-master-port`",
        ),
        ("--stage-id 0 --omni-master-port 1", "`--stage-id` needs `--omni-master-address`"),
        (
            "--headless",
            "`--headless` needs `--stage-id`, `--omni-master-address` and `--omni-master-port`",
        ),
        (
            "--headless --stage-id 0",
            "`--headless` needs `--omni-master-address` and `--omni-master-port`",
        ),
        ("-ora h", "`-ora` needs `--headless`"),
        ("--omni-token-file t", "`--omni-token-file` needs `--omni-master-address`"),
        (
            f"--omni-tls-ca a {MASTER}",
            "`--omni-tls-ca` needs `--omni-tls-cert` and `--omni-tls-key`",
        ),
        ("--omni-heartbeat-timeout 3", "`--omni-heartbeat-timeout` needs `--omni-master-address`"),
        ("--omni-dp-size-local 2", "`--omni-dp-size-local` needs `--stage-id`"),
        ("--ray-address h", "`--ray-address` needs `--worker-backend`"),
        (
            "--ray-address h --worker-backend multi_process",
            "`--ray-address` needs `--worker-backend`",
        ),
    ],
)
def test_an_option_that_means_nothing_alone_says_what_it_needs(
    line: str, message: str, tmp_path: Path
) -> None:
    """All that is missing at once."""
    (found,) = made_from(tmp_path, line).diagnostics
    assert (found.code, found.message) == ("CF080", message)
    assert str(found.origin) == line.split(maxsplit=1)[0]
    assert found.help


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("--stage-id 0 -oma h -omp 99999 --insecure-no-token", "CF013"),
        ("--headless -oma h -omp 1 --stage-id 99", "CF020"),
        (f"--stage-id 99 {MASTER} --worker-backend ray", "CF020"),
    ],
)
def test_an_option_that_was_refused_is_not_called_missing(
    line: str, code: str, tmp_path: Path
) -> None:
    """One cause, one finding."""
    assert codes_of(made_from(tmp_path, line)) == [code]


@pytest.mark.parametrize(
    ("line", "one", "other"),
    [
        (f"--headless --stage-id 0 {MASTER} --api-server-count 1", "--headless", None),
        (f"--stage-id 0 {MASTER} --worker-backend ray", "--stage-id", None),
        (f"--stage-id none {MASTER} --worker-backend ray", "--stage-id", None),
        (f"--headless --stage-id 0 {MASTER} --worker-backend ray", "--stage-id", None),
        (f"--headless {MASTER} --stage-id none", "--headless", None),
        ("--api-server-count 2 --worker-backend ray", "--api-server-count", None),
        ("--api-server-count 2 -oma h", "--api-server-count", None),
    ],
)
def test_options_that_contradict_each_other_are_both_named(
    line: str, one: str, other: str | None, tmp_path: Path
) -> None:
    """With the reason as help."""
    (found,) = made_from(tmp_path, line).diagnostics
    words = [word for word in line.split() if word.startswith("-")]
    last = other or words[-1]
    assert (found.code, found.message) == ("CF081", f"`{one}` and `{last}` exclude each other")
    assert (str(found.origin), str(found.notes[0].origin)) == (one, last)


def test_several_servers_contradict_everything_about_several_hosts(tmp_path: Path) -> None:
    """Each contradiction is one finding."""
    line = (
        f"--api-server-count 2 --stage-id 0 --headless {MASTER} --omni-replica-address h"
        " --omni-dp-size-local 2"
    )
    found = made_from(tmp_path, line).diagnostics
    assert [each.code for each in found] == ["CF081"] * 5
    assert {str(each.notes[0].origin) for each in found} == {
        "--api-server-count",
        "--stage-id",
        "--omni-master-address",
        "--omni-replica-address",
        "--omni-dp-size-local",
    }


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("--omni-master-port 0", "CF013", "`1 to 65535`, got `0`"),
        ("--omni-master-port 65536", "CF013", "`1 to 65535`, got `65536`"),
        ("--omni-master-port http", "CF012", "a whole number, got text `http`"),
        ("--omni-master-address 'a b'", "CF013", "like `127.0.0.1`"),
        ("--omni-master-address ''", "CF013", "like `127.0.0.1`"),
        ("--omni-dp-size-local 0", "CF013", "`>= 1`"),
        ("--api-server-count 0", "CF013", "`>= 1`"),
        ("--omni-heartbeat-timeout 0", "CF013", "`>= 0.001`"),
        ("--omni-heartbeat-timeout soon", "CF012", "a number, got text `soon`"),
        ("--init-timeout 0", "CF013", "`>= 1`"),
        ("--stage-init-timeout 1.5", "CF012", "a whole number"),
        ("--worker-backend threads", "CF013", "does not take `threads`"),
        ("--stage-id 7", "CF020", "no stage `7` in this pipeline"),
        ("--stage-id -1", "CF020", "no stage `-1` in this pipeline"),
        ("--stage-id middle", "CF020", "no stage `middle` in this pipeline"),
    ],
)
def test_each_value_is_checked(line: str, code: str, words: str, tmp_path: Path) -> None:
    """Once, and without what would follow from it."""
    (found,) = made_from(tmp_path, line).diagnostics
    assert found.code == code
    assert words in found.message
    assert str(found.origin) == line.split(maxsplit=1)[0]


def test_a_stage_that_cannot_be_is_told_and_null_says_nothing(tmp_path: Path) -> None:
    """`null` is the same as saying nothing, since there is no lower layer."""
    assert codes_of(made_from(tmp_path, "--stage-id null --init-timeout null")) == []


def test_stages_of_an_unknown_model_are_not_looked_up(speech: Speech) -> None:
    """A missing checkpoint is one cause."""
    speech.configure({"model_type": "unknown"})
    fields = (flag("stage_id", "7"), flag("omni_master_port", "0"))
    loaded = speech.load(fields=fields)
    assert [found.code for found in loaded.diagnostics] == ["MD008", "CF013"]
