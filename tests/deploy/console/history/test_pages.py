"""The history pages over HTTP, against a real cluster."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.client.admin import Admin, NewTopic
from kraft.client.core.records import KafkaError
from kraft.deploy.console.history.log import METADATA_PARTITION, MetadataLogReader
from kraft.deploy.launch.control import LocalCluster
from kraft.wire.error_codes import ErrorCode
from tests.deploy.console.inside import console


async def test_the_history_shows_a_past_state_and_the_changes_since(small_cluster: LocalCluster) -> None:
    bootstrap = small_cluster.bootstrap_servers
    async with console(bootstrap) as asked, Admin(bootstrap_servers=bootstrap) as admin:
        await admin.topics.create(NewTopic("before-it", partitions=1))
        await asked.page("/history")
        begin = asked.app.state.metadata_log._timeline.end_offset
        await admin.topics.create(NewTopic("after-it", partitions=2))
        now = await asked.page("/history?search=after-it")
        end = asked.app.state.metadata_log._timeline.end_offset
        assert end > begin
        assert "2 rows" in now
        then = await asked.page(f"/history?search=after-it&at={begin}")
        assert "None of a topic with “after-it” in its name" in then
        changed = await asked.page(f"/history?at={end}&since={begin}")
        assert "added topics / after-it" in changed
        assert "before-it" not in changed.partition("Events around")[0]
        assert "PartitionChange" in changed or "Partition after-it-0" in changed


async def test_the_history_page_refuses_a_point_outside_the_metadata_log_with_the_reason(
    small_cluster: LocalCluster,
) -> None:
    async with console(small_cluster.bootstrap_servers) as asked:
        assert "there is no offset 999999" in await asked.page("/history?at=999999", status=400)
        assert "expected a number" in await asked.page("/history?at=-3", status=400)
        assert "is not a time" in await asked.page("/history?time=soon", status=400)


async def test_the_history_of_a_cluster_that_hides_its_metadata_log_shows_the_reason(
    small_cluster: LocalCluster,
) -> None:
    """This is how Apache Kafka behaves: no broker serves __cluster_metadata to clients."""
    async with console(small_cluster.bootstrap_servers) as asked:
        await asked.page("/history")
        log = asked.app.state.metadata_log
        refusal = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
        log._settings = SimpleNamespace(admin=lambda: Refusing(refusal), data=None)
        page = await asked.page("/history")
    assert "does not give its metadata log to clients (UNKNOWN_TOPIC_OR_PARTITION)" in page
    assert "Apache Kafka keeps it between its own nodes" in page


async def test_a_metadata_log_that_takes_too_long_to_read_is_reported(small_cluster: LocalCluster) -> None:
    async with console(small_cluster.bootstrap_servers) as asked:
        settings = asked.app.state.view.settings
        asked.app.state.metadata_log = MetadataLogReader(settings, load_seconds=0)
        assert "gave 0 events of its metadata log in 0 s" in await asked.page("/history", status=400)


class Refusing:
    """An admin client of a cluster that rejects requests for offsets of the metadata log."""

    def __init__(self, refusal: KafkaError) -> None:
        self._refusal = refusal
        self.partitions = self

    async def __aenter__(self) -> Refusing:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def offsets_of_each(self, wanted: dict[Any, int]) -> dict[Any, KafkaError]:
        return {METADATA_PARTITION: self._refusal}
