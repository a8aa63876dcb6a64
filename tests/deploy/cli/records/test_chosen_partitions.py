"""Arguments such as `TOPIC` and `TOPIC:0,2` become the partitions of a cluster, with their descriptions."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kraft.client.admin import NewTopic, TopicDescription
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.topics import choose_described, choose_partitions
from tests.stages.admin_client import Stage, play


def test_chosen_partitions_are_returned_in_order_with_their_descriptions() -> None:
    async def work(stage: Stage) -> None:
        await stage.admin.topics.create(NewTopic("t", assignment={0: [1], 1: [2], 2: [1]}))
        await stage.admin.topics.create(NewTopic("s", assignment={0: [2]}))
        chosen = await choose_described(stage.admin, ["t:2,0", "s", "t:0"])
        assert {tp: part.leader for tp, part in chosen.items()} == {("s", 0): 2, ("t", 0): 1, ("t", 2): 1}
        assert await choose_partitions(stage.admin, ["t:2,0", "s"]) == list(chosen) == [("s", 0), ("t", 0), ("t", 2)]
        with pytest.raises(CommandFailed, match="topic t has partitions 0 to 2, not 3"):
            await choose_described(stage.admin, ["t:1-3"])

    play(work)


def test_a_topic_recreated_with_fewer_partitions_is_described_from_one_response(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(stage: Stage) -> None:
        topics = stage.admin.topics
        await topics.create(NewTopic("t", 3))
        describe = topics.describe

        async def describe_and_make_anew(names: Iterable[str]) -> tuple[TopicDescription, ...]:
            described = await describe(names)
            await topics.delete("t")
            await topics.create(NewTopic("t", 1))
            return described

        monkeypatch.setattr(topics, "describe", describe_and_make_anew)
        chosen = await choose_described(stage.admin, ["t"])
        assert [part.index for part in chosen.values()] == [0, 1, 2]

    play(work)
