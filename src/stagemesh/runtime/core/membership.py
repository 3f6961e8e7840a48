"""Who the replicas of a stage are: joins, drains, deaths, and whether a death is made good.

Every process that takes a replica's place has a higher incarnation number than the one before it.
So a worker that registers again replaces its predecessor at once, and whatever is heard of the
predecessor after that is about nobody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, Literal, TypeAlias

from stagemesh.spec.frozen import frozen


class Health(Enum):
    """How a stage, or all of them, is doing."""

    STARTING = "starting"
    """It has not served yet."""
    SERVING = "serving"
    """It takes requests."""
    DRAINING = "draining"
    """It finishes what it has, and takes nothing new."""
    UNHEALTHY = "unhealthy"
    """It has served, and no replica is left to."""
    STOPPED = "stopped"
    """It was stopped on purpose."""


@frozen
class RestartPolicy:
    """When a replica that has died is started again."""

    mode: Literal["never", "on_failure"] = "on_failure"
    """Whether it ever is."""
    most: int = 3
    """Most restarts of one replica within `window_s`."""
    window_s: float = 600.0
    """Seconds after which a restart is forgotten."""
    first_delay_s: float = 1.0
    """Seconds before the first restart; each further one within the window waits twice as long."""
    longest_delay_s: float = 60.0
    """Most seconds that a restart waits."""

    def delay_s(self, restarts: Iterable[float], now: float) -> float | None:
        """Seconds to wait before the next restart, or `None` when there is none.

        `restarts` are the times at which earlier ones were decided.
        """
        recent = sum(now - at < self.window_s for at in restarts)
        if self.mode == "never" or recent >= self.most:
            return None
        return min(self.first_delay_s * 2.0**recent, self.longest_delay_s)


@frozen
class Joined:
    """A replica takes requests from now on."""

    replica: int
    """The replica."""
    incarnation: int
    """Its process."""


@frozen
class Left:
    """A process is gone: what was bound to it fails."""

    replica: int
    """The replica."""
    incarnation: int
    """Its process."""


@frozen
class Retired:
    """A replica takes nothing new; what is bound to it goes on."""

    replica: int
    """The replica."""


@frozen
class Restart:
    """Start the replica again, after a while."""

    replica: int
    """The replica."""
    incarnation: int
    """The number of the process to start."""
    delay_s: float
    """Seconds from now."""


Change: TypeAlias = Joined | Left | Retired | Restart
"""What has to be done about a change of members."""


class _Member:
    """One replica's number, and the process behind it."""

    __slots__ = ("incarnation", "restarts", "state")

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation
        self.state = Health.STARTING
        self.restarts: deque[float] = deque()


class Membership:
    """The replicas of one stage. Events of a process that was replaced change nothing."""

    def __init__(self, policy: RestartPolicy | None = None) -> None:
        """Nobody has joined; `policy` says who is started again."""
        self._policy: Final = policy or RestartPolicy()
        self._members: dict[int, _Member] = {}
        self._has_served = False
        self._stopping = False

    @property
    def states(self) -> Mapping[int, Health]:
        """Where every replica that was ever heard of stands."""
        return {replica: member.state for replica, member in self._members.items()}

    @property
    def health(self) -> Health:
        """How the stage is doing."""
        states = {member.state for member in self._members.values()}
        for state in (Health.SERVING, Health.DRAINING):
            if state in states:
                return Health.DRAINING if self._stopping else state
        if self._stopping:
            return Health.STOPPED
        return Health.UNHEALTHY if self._has_served else Health.STARTING

    def is_current(self, replica: int, incarnation: int) -> bool:
        """Whether that process is the one behind the replica, and has not ended."""
        member = self._members.get(replica)
        return (
            member is not None
            and member.incarnation == incarnation
            and member.state is not Health.STOPPED
        )

    def expected(self, replica: int, incarnation: int) -> list[Change]:
        """A process was started for the replica, and is not ready yet."""
        member = self._members.get(replica)
        if member is None:
            self._members[replica] = _Member(incarnation)
            return []
        if incarnation <= member.incarnation:
            return []
        changes = self._gone(replica, member)
        member.incarnation = incarnation
        member.state = Health.STARTING
        return changes

    def ready(self, replica: int, incarnation: int) -> list[Change]:
        """A process is ready; it replaces an older one that has not ended yet."""
        changes = self.expected(replica, incarnation)
        member = self._members[replica]
        if member.incarnation != incarnation or member.state is not Health.STARTING:
            return changes
        if self._stopping:
            member.state = Health.DRAINING
            return changes
        member.state = Health.SERVING
        self._has_served = True
        return [*changes, Joined(replica=replica, incarnation=incarnation)]

    def drain(self, replica: int) -> list[Change]:
        """The replica is to finish what it has and take nothing new."""
        member = self._members.get(replica)
        if member is None or member.state is not Health.SERVING:
            return []
        member.state = Health.DRAINING
        return [Retired(replica=replica)]

    def ended(self, replica: int, incarnation: int, now: float) -> list[Change]:
        """A process has ended: it died, or it was told to go, after which it is not restarted."""
        if not self.is_current(replica, incarnation):
            return []
        member = self._members[replica]
        was_asked = self._stopping or member.state is Health.DRAINING
        changes = self._gone(replica, member)
        if was_asked:
            return changes
        delay_s = self._policy.delay_s(member.restarts, now)
        if delay_s is None:
            return changes
        member.restarts.append(now)
        while now - member.restarts[0] >= self._policy.window_s:
            member.restarts.popleft()
        again = Restart(replica=replica, incarnation=incarnation + 1, delay_s=delay_s)
        return [*changes, again]

    def stop(self) -> list[Change]:
        """Everything is to finish and go; nothing is started again."""
        self._stopping = True
        changes: list[Change] = []
        for replica in self._members:
            changes += self.drain(replica)
        return changes

    def _gone(self, replica: int, member: _Member) -> list[Change]:
        had_ended = member.state is Health.STOPPED
        member.state = Health.STOPPED
        return [] if had_ended else [Left(replica=replica, incarnation=member.incarnation)]


def health_of(stages: Iterable[Health]) -> Health:
    """How a system of such stages is doing: as the worst of them."""
    order = (Health.UNHEALTHY, Health.STARTING, Health.DRAINING, Health.STOPPED, Health.SERVING)
    return min(stages, key=order.index, default=Health.STARTING)
