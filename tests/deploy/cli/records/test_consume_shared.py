"""`kraft consume --share-group`: which options go together, and what it prints and acknowledges on a cluster."""

from __future__ import annotations

import json

import pytest

from kraft.client import Acknowledgement, ShareConsumer
from kraft.deploy.cli.output import CommandFailed
from kraft.deploy.cli.records.consume_shared import check_share_options, print_shared
from kraft.deploy.cli.records.format import compile_format
from tests.client.share.share_consumers import alone, begin, fill, share_consumer
from tests.stages.clients_in_world import Stage
from tests.stages.kraft_command import Command


@pytest.mark.parametrize(
    ("group", "topics", "others", "flags", "text"),
    [
        (None, ["t"], {}, {"release": True}, "need --share-group"),
        (None, ["t"], {}, {"reject": True}, "need --share-group"),
        ("", ["t"], {}, {}, "--share-group is empty"),
        ("g", ["t"], {"--offset": "earliest", "--key": "x", "--until": None}, {}, "leave out --offset, --key"),
        ("g", ["t"], {"--partition": [0]}, {}, "leave out --partition"),
        ("g", ["t"], {}, {"release": True, "reject": True}, "either --release or --reject"),
        ("g", ["t:0"], {}, {}, "name topics only"),
    ],
)
def test_options_that_a_share_group_excludes_are_refused(
    group: str | None, topics: list[str], others: dict[str, object], flags: dict[str, bool], text: str
) -> None:
    with pytest.raises(CommandFailed, match=text) as refused:
        check_share_options(group, topics, others, **({"release": False, "reject": False} | flags))
    assert refused.value.code == 2


def test_other_consumers_need_no_share_group() -> None:
    check_share_options(None, ["t:0"], {"--offset": "earliest"}, release=False, reject=False)
    check_share_options("g", ["t"], {"--offset": None, "--header": None}, release=False, reject=True)


@pytest.mark.parametrize("acknowledgement", [one for one in Acknowledgement if one is not Acknowledgement.RENEW])
def test_printed_records_are_acknowledged_and_the_others_are_released(acknowledgement: Acknowledgement) -> None:
    async def test(stage: Stage) -> None:
        await begin(stage)
        await fill(stage, range(5))
        shown: list[bytes] = []

        async def write(data: bytes) -> None:
            shown.append(data)

        def consumer(name: str) -> ShareConsumer:
            return share_consumer(stage, name, share_acknowledgement_mode="explicit")

        show = compile_format("%o ")
        async with consumer("a") as first:
            await first.subscribe(["orders"])
            await print_shared(first, show, 3, write, acknowledgement)
        assert b"".join(shown) == b"0 1 2 "
        shown.clear()
        async with consumer("b") as second:
            await second.subscribe(["orders"])
            await print_shared(second, show, 2, write, Acknowledgement.ACCEPT)
        released = acknowledgement is Acknowledgement.RELEASE
        assert b"".join(shown) == (b"0 1 " if released else b"3 4 ")

    alone(test)


def test_the_command_reads_as_a_member_of_a_share_group(up: Command) -> None:
    up.run("topics", "create", "shared", "--partitions", "1")
    up.run("configs", "alter", "--group", "workers", "--set", "share.auto.offset.reset=earliest")
    up.run("produce", "shared", text="1\n2\n3\n4\n")
    read = ("consume", "shared", "--share-group", "workers")
    assert up.run(*read, "-n", "1", "--release") == "1\n"
    assert up.run(*read, "-n", "2", "--reject") == "1\n2\n"
    assert [json.loads(line)["value"] for line in up.run(*read, "-n", "2", "--json").splitlines()] == ["3", "4"]
    assert "leave out --offset" in up.run(*read, "--offset", "latest", code=2)
