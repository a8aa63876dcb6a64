"""LogCutter by itself: what is left of a log, what is checkpointed before it goes on, and what a refusal costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.logs.truncation import LogCutter
from kraft.seam import DiskError, StorageCorrupt
from tests.stages.part_stage import PartStage, play, replica


class Cutting:
    """A replica with five records, in a directory whose checkpoints are only noted."""

    def __init__(self, stage: PartStage) -> None:
        self.written, self.outcomes = list[str](), list[str]()
        self.partition = replica(
            stage.open_log(records=5),
            directory=SimpleNamespace(is_online=True),
            high_watermark=5,
            host=SimpleNamespace(changed={}),
        )
        self.partition.set_high_watermark = lambda mark: setattr(self.partition, "high_watermark", mark)
        checkpoints: Any = SimpleNamespace(
            write_recovery_points_of=self._writes("recovery points"), write_log_starts_of=self._writes("log starts")
        )
        self.cutter = LogCutter(
            stage.loop,
            checkpoints,
            damaged=lambda partition, error: self.outcomes.append("damaged"),
            disk_failed=lambda partition, error: self.outcomes.append("disk failed"),
        )

    def _writes(self, what: str) -> Any:
        async def write(directory: Any) -> None:
            assert self.partition.blocking.locked()
            self.written.append(what)

        return write


@pytest.mark.parametrize(
    ("offset", "fully", "written"),
    [(3, False, ["recovery points"]), (9, True, ["recovery points", "log starts"])],
)
def test_what_is_left_is_checkpointed_and_the_high_watermark_lies_within(
    offset: int, fully: bool, written: list[str]
) -> None:
    async def test(stage: PartStage) -> None:
        cutting = Cutting(stage)
        assert await cutting.cutter.cut(cutting.partition, offset, fully=fully)
        assert (cutting.partition.log.log_end_offset, cutting.partition.high_watermark) == (offset, offset)
        assert cutting.written == written

    play(test)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(DiskError("no", errno=5, path="/data"), "disk failed"), (StorageCorrupt("no"), "damaged")],
)
def test_trouble_is_reported_and_nothing_goes_on(error: Exception, outcome: str) -> None:
    async def test(stage: PartStage) -> None:
        cutting = Cutting(stage)

        def refuse(*_: Any) -> None:
            raise error

        cutting.partition.log = SimpleNamespace(log_start_offset=0, truncate_to=refuse)
        assert not await cutting.cutter.cut(cutting.partition, 3, fully=False)
        assert (cutting.outcomes, cutting.written) == ([outcome], [])

    play(test)


def test_a_log_that_was_closed_while_it_was_cut_does_not_go_on() -> None:
    async def test(stage: PartStage) -> None:
        cutting = Cutting(stage)
        log = cutting.partition.log

        def close(*_: Any) -> None:
            cutting.partition.log = None

        cutting.partition.log = SimpleNamespace(log_start_offset=0, truncate_to=close)
        assert not await cutting.cutter.cut(cutting.partition, 3, fully=False)
        assert not await cutting.cutter.cut(cutting.partition, 3, fully=False), "nor one that is closed"
        assert (cutting.written, log.log_end_offset) == ([], 5)

    play(test)
