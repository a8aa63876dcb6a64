"""Responses to forms and addresses that no page of the console produces, from a console for a real cluster."""

from __future__ import annotations

from kraft.client.admin import Admin, NewTopic
from kraft.deploy.launch.control import LocalCluster
from tests.deploy.console.inside import console, text_of

TOO_LARGE = "9" * 12
BAD_FORMS: tuple[tuple[str, dict[str, str]], ...] = (
    ("/topics", {"name": "t", "partitions": TOO_LARGE, "replication_factor": "1"}),
    ("/topics", {"name": "t", "partitions": "1", "replication_factor": "40000"}),
    ("/topics/forms/partitions", {"count": TOO_LARGE}),
    ("/topics/forms/partitions", {"count": "-1"}),
    ("/topics/forms/0/move", {"replicas": f"1,{TOO_LARGE}"}),
    ("/reassignments/cancel", {"topic": "forms", "partition": TOO_LARGE}),
    ("/group/reset", {"id": "g", "plan": "[" * 100_000}),
    ("/group/reset", {"id": "g", "plan": '[["forms", 0, null, 1e400]]'}),
    ("/group/reset", {"id": "g", "plan": '[["forms", 0, null, -5]]'}),
    ("/group/reset", {"id": "g", "plan": f'[["forms", {TOO_LARGE}, null, 1]]'}),
    ("/group/reset", {"id": "g", "plan": '[["forms", 0, null, true]]'}),
)


async def test_a_form_with_a_number_beyond_the_protocol_field_is_refused_and_changes_nothing(
    small_cluster: LocalCluster,
) -> None:
    servers = small_cluster.bootstrap_servers
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.topics.create(NewTopic("forms", partitions=1))
        async with console(servers, allow_changes=True) as asked:
            for path, form in BAD_FORMS:
                answer = await asked.post(path, **form)
                assert answer.status_code == 400, (path, form)
                assert "nothing was changed" in text_of(answer.text), (path, form)
        assert "t" not in {topic.name for topic in await admin.topics.list()}


async def test_a_history_page_number_beyond_the_last_shows_the_last_page(small_cluster: LocalCluster) -> None:
    async with console(small_cluster.bootstrap_servers) as asked:
        await asked.page(f"/history?page={'9' * 18}")


async def test_the_address_after_a_change_does_not_contain_the_value_of_the_setting(
    small_cluster: LocalCluster,
) -> None:
    servers = small_cluster.bootstrap_servers
    async with Admin(bootstrap_servers=servers) as admin, console(servers, allow_changes=True) as asked:
        await admin.topics.create(NewTopic("kept", partitions=1))
        answer = await asked.post("/topics/kept/configs", key="retention.ms", value="86400123")
        assert answer.status_code == 303
        assert "86400123" not in answer.headers["location"]
        assert "86400123" in await asked.page("/topics/kept/configs")
