"""Changes of a replica while its log is being opened."""

from __future__ import annotations

import pytest
import trio

from kraft.client.admin import ConfigChange, ConfigOperation, ConfigResource, NewTopic, ResourceType
from tests.broker.logs.late_calls import LateCall
from tests.broker.logs.moving import Moving, play, write


def test_topic_settings_that_change_while_a_log_is_being_opened_apply_to_that_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A topic can get a size limit just after it was created (found by simulation seed 461 of 60 s)."""

    async def work(stage: Moving) -> None:
        await stage.admin.topics.create(NewTopic("t", 1))
        late = LateCall(monkeypatch, "OpenJob.run")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write, stage, 0, 10)
            await stage.until(lambda: late.has_come)
            bound = ConfigChange(ConfigOperation.SET, "retention.bytes", "4000")
            await stage.admin.configs.alter(ConfigResource(ResourceType.TOPIC, "t"), [bound])
            await stage.until(lambda: stage.replica().config.retention_bytes == 4000)
            assert stage.replica().log is None
            late.may_go.set()
        opened = stage.replica().log
        assert opened is not None
        assert opened.config.retention_bytes == 4000

    play(work)
