"""`kraft console` for a running cluster of ours, over HTTP."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

import pytest
import trio

from kraft.client.admin import Admin
from kraft.deploy.cli.connection import ClusterConnection
from kraft.deploy.cli.console import _located
from kraft.deploy.launch.layout import ClusterLayout
from tests.client.admin.share_reader import make_share_group
from tests.deploy.console.consoles import WAIT_SECONDS_MAX, Console, console_running
from tests.stages.kraft_command import Command, free_port

SHAPE = ClusterLayout(controllers=1, brokers=2)


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    """The command, with a cluster that has a group and a topic with records."""
    home = tmp_path_factory.mktemp("home")
    command = Command(home / "state")
    arguments = ("--controllers", "1", "--brokers", "2", "--data", home / "data", "--port", str(free_port(SHAPE)))
    assert json.loads(command.spawn("up", *arguments, "--background", "--json"))["ready"] is True
    command.run("topics", "create", "orders", "--partitions", "1")
    command.run("produce", "orders", text="one\ntwo\nthree\n")
    command.run("consume", "orders", "--group", "billing/eu", "-n", "2")
    yield command
    command.run("down")


@pytest.fixture(scope="module")
def bootstrap(kraft: Command) -> str:
    return str(kraft.json("status")["bootstrap"])


@pytest.fixture(scope="module")
def console(kraft: Command, bootstrap: str) -> Iterator[Console]:
    with console_running(kraft, bootstrap, "--allow-changes") as running:
        yield running


def test_console_pages_show_the_cluster(console: Console) -> None:
    assert "All is well" in console.wait("/", lambda text: ">active<" in text)
    assert 'href="/topics/orders"' in console.page("/topics?q=ord")
    assert 'href="/topics/orders"' not in console.page("/topics?q=nosuch")
    assert re.search(r"\d internal topics? hidden", console.page("/topics"))
    assert "hidden.</p>" not in console.page("/topics?internal=1")
    assert ">3<" in console.page("/topics/orders")
    assert "preferred" in console.page("/topics/orders/0")
    assert "no partition is being moved" in console.page("/reassignments")
    for path in ("/partitions", "/nodes", "/nodes/1", "/nodes/101", "/nodes/1/configs?show=all", "/nodes/all/configs"):
        console.page(path)
    for path, text in (
        ("/topics/nosuch", "There is no topic nosuch"),
        ("/nodes/9", "There is no node 9"),
        ("/nosuch", "There is no page /nosuch"),
    ):
        status, shown = console.get(path)
        assert (status, text in shown) == (404, True), path


def test_every_link_on_the_console_page_of_a_controller_works(console: Console) -> None:
    listener = re.search(r"Listener CONTROLLER</dt><dd>([\d.:]+)<", console.page("/nodes/101"))
    assert listener
    assert f"<td>{listener.group(1)}</td>" in console.page("/nodes")
    links = re.findall(r'href="(/[^"#]*)"', console.page("/nodes/101"))
    assert "/nodes" in links
    assert {path: console.get(path)[0] for path in links} == dict.fromkeys(links, 200)


def test_the_console_changes_and_resets_a_setting(console: Console) -> None:
    status, place = console.post("/topics/orders/configs", key="retention.ms", value="777000", action="set")
    assert status == 303
    assert place.startswith("/topics/orders/configs?")
    console.wait("/topics/orders/configs", lambda text: "777000" in text and "this topic" in text)
    assert "Back to the default" in console.page("/topics/orders/configs?edit=retention.ms")
    assert console.post("/topics/orders/configs", key="retention.ms", action="remove")[0] == 303
    console.wait("/topics/orders/configs", lambda text: "777000" not in text)
    status, text = console.post("/topics/orders/configs", key="retention.ms", value="soon", action="set")
    assert (status, "retention.ms" in text) == (502, True)


def test_the_console_resets_a_group_exactly_as_the_shown_plan(console: Console) -> None:
    console.wait("/groups", lambda text: "lag of billing/eu" in text)
    assert "<h3>Lag " in console.page("/group?id=billing%2Feu")  # the time shown: now, or within the last seconds
    plan = "/group/reset?id=billing%2Feu&to=earliest"
    assert "1 of 1 offset would change" in console.page(plan)
    stale = json.dumps([["orders", 0, 1, 0]])
    status, text = console.post("/group/reset", id="billing/eu", plan=stale)
    assert (status, "nothing was changed" in text) == (409, True)
    status, _ = console.post("/group/reset", id="billing/eu", plan=json.dumps([["orders", 0, 2, 0]]))
    assert status == 303
    assert "0 of 1 offset would change" in console.page(plan)
    assert console.get("/group/reset?id=billing%2Feu&to=nowhere")[0] == 400


def test_the_console_shows_resets_and_deletes_a_share_group(console: Console, bootstrap: str) -> None:
    async def make() -> None:
        async with Admin(bootstrap_servers=bootstrap) as admin:
            await make_share_group(admin, "jobs", "orders", partitions=1)

    trio.run(make)
    assert "<dd>Share</dd>" in console.page("/group?id=jobs")
    plan = "/group/reset?id=jobs&to=earliest"
    assert "1 of 1 offset would change" in console.page(plan)
    changes = json.dumps([["orders", 0, None, 0]])
    assert console.post("/group/reset", id="jobs", plan=changes)[0] == 303
    assert "0 of 1 offset would change" in console.page(plan)
    assert '<td class="n">0</td><td class="n">3</td><td>–</td>' in console.page("/group?id=jobs")
    assert console.post("/group/reset", id="jobs", plan=changes)[0] == 409
    assert console.post("/group/delete", id="jobs")[0] == 303


def test_console_forms_create_extend_move_and_delete_a_topic(console: Console) -> None:
    assert console.post("/topics", name="fresh", partitions="1", replication_factor="1")[0] == 303
    assert console.post("/topics/fresh/partitions", count="2")[0] == 303
    console.wait("/topics/fresh", lambda text: 'href="/topics/fresh/1"' in text)
    assert console.post("/topics/fresh/0/elect")[0] == 303
    assert console.post("/topics/fresh/0/move", replicas="1,2")[0] == 303
    console.wait("/topics/fresh/0", lambda text: text.count(">yes<") + text.count("yes</td>") >= 2)
    assert console.post("/topics/fresh/0/move", replicas="all")[0] == 400
    assert console.post("/topics/fresh/delete", name="typo")[0] == 400
    assert console.post("/topics/fresh/delete", name="fresh")[0] == 303
    assert console.get("/topics/fresh")[0] == 404


@pytest.mark.slow
def test_a_read_only_console_changes_nothing(kraft: Command, bootstrap: str) -> None:
    with console_running(kraft, bootstrap) as running:
        assert "read-only" in running.page("/")
        assert "New topic" not in running.page("/topics")
        assert running.post("/topics", name="never")[0] == 403
        assert running.first_event()["problem"] is None


@pytest.mark.slow
def test_the_console_reports_a_dead_broker_and_an_unreachable_cluster(console: Console, kraft: Command) -> None:
    kraft.run("kill", "2")
    try:
        text = console.wait("/", lambda text: "Under-replicated" in text)
        assert "fenced" in text or "missing" in text
        console.page("/topics/orders/0")
        kraft.run("kill", "1")
        console.wait("/", lambda text: "No answer from the cluster." in text and "Trying again." in text)
    finally:
        kraft.run("start", "1")
        kraft.run("start", "2")
    console.wait("/", lambda text: "All is well" in text)


def test_invalid_console_options_are_refused(console: Console, kraft: Command, bootstrap: str) -> None:
    port = console.url.rstrip("/").rpartition(":")[2]
    assert "--port" in kraft.run("console", "-b", bootstrap, "--port", port, code=2)
    assert "expected NODE=HOST:PORT" in kraft.run("console", "-b", bootstrap, "--port", "0", "--metrics", "x", code=2)
    said = kraft.run("console", "-b", bootstrap, "--schema-registry", "http://me:hush@127.0.0.1:1", code=2)
    assert "not supported" in said
    assert "hush" not in said


@pytest.mark.parametrize("options", [("--data", "FOLDER"), ()])
def test_without_an_address_the_console_shows_the_local_cluster_with_its_folder(
    kraft: Command, bootstrap: str, options: tuple[str, ...]
) -> None:
    folder = str(kraft.json("status")["data"])
    elsewhere = ClusterConnection("other:9092", {}, None, "")
    assert _located(elsewhere, folder) == (elsewhere, Path(folder))
    assert _located(replace(elsewhere, is_given=False), folder)[0].bootstrap_servers == bootstrap
    given = [folder if one == "FOLDER" else one for one in options]
    with kraft.watch("console", "--port", "0", "--json", *given) as lines:
        told = json.loads(lines.readline())
        assert told["bootstrap"] == bootstrap
        Console(told["url"]).wait("/nodes/1", lambda text: "Memory · " in text)


@pytest.mark.slow
def test_kraft_up_with_a_console_prints_the_address_of_the_console(tmp_path: Path) -> None:
    command = Command(tmp_path / "state")
    options = ("--console", "--allow-changes", "--fault-control", "--json")
    with command.watch("up", "--combined", "1", "--port", "0", *options) as lines:
        told = json.loads(lines.readline())
        where = json.loads(lines.readline())
        assert where["ready"] is True
        assert "Overview" in Console(told["console"]).page("/")
        assert "Kill node 1" in Console(told["console"]).page("/faults")
        command.run("down", "--data", where["data"])
        assert lines.read() == ""
    assert "--background" in command.run("up", "--console", "--background", code=2)
    assert "--console: give both" in command.run("up", "--allow-changes", code=2)


@pytest.mark.slow
def test_the_console_of_kraft_up_ends_when_the_command_is_killed(tmp_path: Path) -> None:
    command = Command(tmp_path / "state")
    with command.start("up", "--combined", "1", "--port", "0", "--console", "--json") as process:
        assert process.stdout is not None
        where = urlsplit(json.loads(process.stdout.readline())["console"])
        address = str(where.hostname), int(where.port or 0)
        with socket.create_connection(address, timeout=WAIT_SECONDS_MAX) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\n")  # an incomplete request: the console waits for more
            process.kill()
            process.wait()
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
        deadline = monotonic() + WAIT_SECONDS_MAX
        while _is_open(address):
            assert monotonic() < deadline, "the console goes on"


def _is_open(address: tuple[str, int]) -> bool:
    """Whether a process listens at the address. A reset means that the listener was closed while the connection was in
    its backlog."""
    try:
        socket.create_connection(address, timeout=WAIT_SECONDS_MAX).close()
    except ConnectionResetError:
        return True
    except ConnectionRefusedError:
        return False
    return True
