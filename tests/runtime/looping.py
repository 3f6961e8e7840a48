"""The engine loop of a stage with what it said, driven turn by turn in this process."""

from __future__ import annotations

from collections.abc import Sequence

from stagemesh.engines._fake import FakeEngine
from stagemesh.engines.fake import FakeOptions
from stagemesh.runtime.inbox import Add, Append, Inbox
from stagemesh.runtime.load import CALLER
from stagemesh.runtime.messages import Cancelled, Failed, Finished, Key
from stagemesh.runtime.stage_loop import Emission, Over, Said, StageLoop, Target
from stagemesh.spec.payload import Payload
from stagemesh.testing.engine_context import engine_context

KEY = Key(rid="r", epoch=1)
OTHER = Key(rid="other", epoch=2)
AS_IT_IS = Target(bridge=None)


def engine(options: FakeOptions, kind: type[FakeEngine] = FakeEngine) -> FakeEngine:
    """A fake engine with a program."""
    return kind(engine_context(options))


class Stage:
    """A loop with what it said."""

    def __init__(
        self,
        target: Target = AS_IT_IS,
        options: FakeOptions | None = None,
        kind: type[FakeEngine] = FakeEngine,
    ) -> None:
        """Feed stage 1 by `target`, and the caller."""
        self.inbox = Inbox()
        self.said: list[Emission] = []
        self.engine = engine(options or FakeOptions(num_outputs=2), kind)
        targets = {1: target, CALLER: AS_IT_IS}
        self.loop = StageLoop(self.engine, targets, self.inbox, self._emit)

    def submit(self, key: Key, text: str = "a", **params: object) -> None:
        """Add a request with its whole input."""
        self.inbox.put(Add(key=key, params=params, targets=(1, CALLER), since=0.0))
        self.inbox.put(Append(key=key, payload=Payload(meta={"text": text}), last=True))

    def turn(self, count: int = 1) -> None:
        """Work for some turns; there is something to do in each."""
        for _ in range(count):
            assert self.loop.turn()

    def finish(self) -> None:
        """Work until nothing is left to do."""
        self.turn()
        while self.engine.has_work():
            self.turn()

    def texts(self, target: int, key: Key = KEY) -> list[tuple[object, bool]]:
        """Text and end mark of what a target was told."""
        return [
            (item.payload.meta.get("text"), item.last)
            for item in self.said
            if isinstance(item, Said) and (item.target, item.key) == (target, key)
        ]

    def ends(self) -> list[Finished | Failed | Cancelled]:
        """All terminal words."""
        return [item.terminal for item in self.said if isinstance(item, Over)]

    def _emit(self, emissions: Sequence[Emission]) -> None:
        self.said += emissions
