"""How many files the processes of a system may have open."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from stagemesh.runtime.descriptors import MOST_FILES, raise_file_limit, reachable_files
from stagemesh.testing.fake_plan import FakeStage, fake_plan
from tests.runtime.started import Started
from tests.runtime.test_ranks import processes

ANY = resource.RLIM_INFINITY
LOW = 256
"""Enough to start a system of two stages."""


@pytest.fixture
def hard() -> Iterator[int]:
    """The hard limit of this process, whose soft one is low until the test ends."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LOW, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("soft", "hard", "reachable"),
    [
        (1024, 4096, 4096),
        (4096, 4096, 4096),
        (1024, ANY, MOST_FILES),
        (1024, 1 << 30, MOST_FILES),
        (MOST_FILES + 1, 1 << 30, MOST_FILES + 1),
        (ANY, ANY, ANY),
    ],
)
def test_the_limit_is_never_lowered_nor_without_end(soft: int, hard: int, reachable: int) -> None:
    """What is above what is asked for stays."""
    assert reachable_files(soft, hard) == reachable


def test_a_process_takes_what_it_can_have(hard: int) -> None:
    """Again does nothing more."""
    for _ in range(2):
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (reachable_files(LOW, hard), hard)


def test_where_it_is_forbidden_all_stays(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox may say no: that is no reason not to start."""

    def refuse(_what: int, _limits: tuple[int, int]) -> None:
        raise PermissionError

    with monkeypatch.context() as patched:
        patched.setattr(resource, "setrlimit", refuse)
        raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (LOW, hard)


@pytest.mark.slow
def test_every_stage_raises_its_own_limit_and_nobody_elses(hard: int) -> None:
    """A program that imports us keeps what it had."""
    plan = fake_plan([FakeStage(name="one", ranks=2), FakeStage(name="two", final="text")])
    before = processes()
    with Started(plan):
        pids = processes().keys() - before.keys()
        limits = [resource.prlimit(pid, resource.RLIMIT_NOFILE) for pid in pids]
    assert limits == [(reachable_files(LOW, hard), hard)] * 3
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (LOW, hard)
