"""LogTruncator without a broker: which records remain, what is checkpointed before the log is used again, and the
effect of a disk error.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft.broker.logs.truncation import LogTruncator
from kraft.seam import DiskError, StorageCorrupt
from tests.stages.part_stage import PartStage, play, replica


class Truncating:
    """A LogTruncator and a replica with five records. The directory only records its checkpoint writes."""

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
        self.truncator = LogTruncator(
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
def test_a_truncated_logs_recovery_point_is_checkpointed_and_its_high_watermark_lowered(
    offset: int, fully: bool, written: list[str]
) -> None:
    async def test(stage: PartStage) -> None:
        cutting = Truncating(stage)
        assert await cutting.truncator.truncate(cutting.partition, offset, fully=fully)
        assert (cutting.partition.log.log_end_offset, cutting.partition.high_watermark) == (offset, offset)
        assert cutting.written == written

    play(test)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(DiskError("no", errno=5, path="/data"), "disk failed"), (StorageCorrupt("no"), "damaged")],
)
def test_an_error_during_a_truncation_is_reported_and_the_log_is_not_used(error: Exception, outcome: str) -> None:
    async def test(stage: PartStage) -> None:
        cutting = Truncating(stage)

        def refuse(*_: Any) -> None:
            raise error

        cutting.partition.log = SimpleNamespace(log_start_offset=0, truncate_to=refuse)
        assert not await cutting.truncator.truncate(cutting.partition, 3, fully=False)
        assert (cutting.outcomes, cutting.written) == ([outcome], [])

    play(test)


def test_a_log_closed_during_its_truncation_is_not_used() -> None:
    async def test(stage: PartStage) -> None:
        cutting = Truncating(stage)
        log = cutting.partition.log

        def close(*_: Any) -> None:
            cutting.partition.log = None

        cutting.partition.log = SimpleNamespace(log_start_offset=0, truncate_to=close)
        assert not await cutting.truncator.truncate(cutting.partition, 3, fully=False)
        assert not await cutting.truncator.truncate(cutting.partition, 3, fully=False), "nor one that is closed"
        assert (cutting.written, log.log_end_offset) == ([], 5)

    play(test)
