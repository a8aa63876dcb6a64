"""`kraft transactions`: list and describe transactional ids, find hanging transactions and abort them.

Source: KIP-664, KIP-994, KIP-1152, Kafka's TransactionsCommand.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_broker, complete_topic, complete_transactional_id, one_of
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import (
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    YesOption,
    confirm,
    emphasized,
    plain,
    print_json,
    show,
    table,
    warn,
)
from kraft.deploy.cli.partitions.producers import producers
from kraft.deploy.cli.several import NameResult, attempt_each, report_results
from kraft.deploy.cli.times import format_time, parse_duration_ms

if TYPE_CHECKING:
    from kraft.client.admin import Admin, TransactionDescription, TransactionListing
    from kraft.client.admin.hanging import HangingSearch, OpenTransaction
    from kraft.client.core.batch import ProducerIdentity

app = typer.Typer(
    help="Transactional ids, their transactions, and hanging transactions.", no_args_is_help=True, rich_markup_mode=None
)

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
PRODUCER_ID_MAX = (1 << 63) - 1

IdsArgument = Annotated[list[str], typer.Argument(metavar="ID…", autocompletion=complete_transactional_id)]


def _states(given: list[str] | None) -> list[str]:
    """Return the given states in Kafka's spelling. Raise CommandFailed for one that Kafka does not have."""
    spelled = {name.lower(): name for name in STATES}
    for name in given or ():
        if name.lower() not in spelled:
            raise CommandFailed(f"--state {name}: expected one of {', '.join(STATES)}", code=EXIT_USAGE)
    return [spelled[name.lower()] for name in given or ()]


@app.command("list")
@over_network
def list_transactions(
    connection: ClusterConnection,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help="Only in this state; may be repeated.", autocompletion=one_of(*STATES)),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", min=0, max=PRODUCER_ID_MAX, help="Only with this producer id; may be repeated."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="DURATION", help="Only transactions open for longer: 90s, 5m, PT1H."),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--pattern", metavar="REGEX", help="Only ids that match this regular expression as a whole."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the transactional ids of all coordinators, with the state of their last transaction."""
    states = _states(state)
    longer_than_ms = None if longer_than is None else parse_duration_ms(longer_than)

    async def work(admin: Admin) -> tuple[TransactionListing, ...]:
        return await admin.transactions.list(
            states=states, producer_ids=producer_id or (), longer_than_ms=longer_than_ms, id_pattern=pattern
        )

    rows = [(one.transactional_id, one.coordinator, one.producer_id, one.state) for one in connection.run(work)]
    show(as_json, ["transactional_id", "coordinator", "producer_id", "state"], rows)


@app.command()
@over_network
def describe(connection: ClusterConnection, transactional_id: IdsArgument, as_json: JsonOption = False) -> None:
    """Show transactional ids: producer, state, and the partitions of the open transaction."""

    async def work(admin: Admin) -> list[NameResult[TransactionDescription]]:
        return await attempt_each(list(dict.fromkeys(transactional_id)), admin.transactions.describe_id)

    found = connection.run(work)
    now_ms = _now_ms()
    shown = [one.name for one in found if one.value is not None]

    def line(name: str, one: TransactionDescription) -> str:
        return ("" if name == shown[0] else "\n") + _text_of(one, now_ms)

    report_results(found, "transactional_id", as_json, lambda _, one: _json_of(one, now_ms), line)


def _json_of(one: TransactionDescription, now_ms: int) -> dict[str, object]:
    partitions = [{"topic": topic, "partition": index} for topic, index in one.partitions]
    return {**plain(one), "open_ms": _open_ms(one, now_ms), "partitions": partitions}


def _text_of(one: TransactionDescription, now_ms: int) -> str:
    open_ms = _open_ms(one, now_ms)
    facts = [
        f"transactional id {emphasized(one.transactional_id)}",
        f"state {one.state}",
        f"producer {one.producer_id}",
        f"epoch {one.producer_epoch}",
        f"coordinator {one.coordinator}",
        f"timeout {one.timeout_ms} ms",
        "" if open_ms is None else f"open for {open_ms} ms",
    ]
    head = "  ".join(fact for fact in facts if fact)
    return f"{head}\n{table(['topic', 'partition'], one.partitions)}" if one.partitions else head


def _open_ms(one: TransactionDescription, now_ms: int) -> int | None:
    return None if one.started_ms is None else max(now_ms - one.started_ms, 0)


app.command("describe-producers")(producers)


@app.command("find-hanging")
@over_network
def find_hanging(
    connection: ClusterConnection,
    topic: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TOPIC[:0,2-4]…]", autocompletion=complete_topic, help="Default: all topics."),
    ] = None,
    broker: Annotated[
        int | None,
        typer.Option(
            metavar="ID",
            help="Only partitions with a replica on this broker; ask it first, then the leaders.",
            autocompletion=complete_broker,
        ),
    ] = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="DURATION", help="Only if the last record is older than this; 0s: of any age."
        ),
    ] = "15m",
    as_json: JsonOption = False,
) -> None:
    """Find transactions that are open in a partition but unknown to their coordinator. Readers of committed records
    wait for such a transaction permanently. If some coordinators cannot be asked, transactions that they may have are
    named on standard error, and the exit code is 1."""
    older_than_ms = parse_duration_ms(older_than)

    async def work(admin: Admin) -> tuple[HangingSearch, list[str]]:
        from kraft.client.admin.hanging import find_hanging
        from kraft.deploy.cli.topics import choose_described

        if broker is not None and broker not in {one.node_id for one in (await admin.nodes.cluster()).brokers}:
            raise CommandFailed(f"there is no broker {broker}; see kraft brokers", code=EXIT_NOT_FOUND)
        if topic:
            parts = await choose_described(admin, topic)
        else:
            parts = {(part.topic, part.index): part for one in await admin.topics.list() for part in one.partitions}
        placed = {tp: part for tp, part in parts.items() if broker is None or broker in part.replicas}
        chosen = [tp for tp, part in placed.items() if part.leader is not None]
        unknown = [f"{name}-{index}" for (name, index), part in placed.items() if part.leader is None]
        search = await find_hanging(admin, chosen, now_ms=_now_ms(), older_than_ms=older_than_ms, broker=broker)
        return search, unknown

    search, unknown = connection.run(work)
    now_ms = _now_ms()
    rows = [
        (
            *one.partition,
            one.producer.producer_id,
            one.producer.producer_epoch,
            one.producer.coordinator_epoch,
            one.producer.transaction_start,
            format_time(one.producer.last_timestamp_ms),
            max(now_ms - one.producer.last_timestamp_ms, 0),
        )
        for one in search.found
    ]
    columns = [
        "topic",
        "partition",
        "producer_id",
        "epoch",
        "coordinator_epoch",
        "start_offset",
        "last_write",
        "age_ms",
    ]
    show(as_json, columns, rows)
    if unknown:
        warn(f"kraft: not searched, because they have no leader: {', '.join(unknown)}")
    if search.undecided:
        lost = ", ".join(map(str, search.unled))
        opened = ", ".join(_undecided_text(one) for one in search.undecided)
        warn(f"kraft: not decided, because partitions of __transaction_state ({lost}) have no leader: {opened}")
    if unknown or search.undecided:
        raise typer.Exit(EXIT_FAILED)


def _undecided_text(one: OpenTransaction) -> str:
    (topic, index), producer = one.partition, one.producer
    return f"{topic}-{index} from offset {producer.transaction_start} on (producer {producer.producer_id})"


@app.command()
@over_network
def abort(
    connection: ClusterConnection,
    topic: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION", autocompletion=complete_topic)],
    start_offset: Annotated[
        int, typer.Option("--start-offset", min=0, help="First offset of the transaction; see find-hanging.")
    ],
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Abort a hanging transaction in one partition. Its records there are never visible to readers of committed
    records. A transaction that has a coordinator is refused: kraft transactions force-terminate ends it."""

    async def check(admin: Admin) -> OpenTransaction:
        from kraft.client.admin.hanging import with_coordinators

        opened = await _open_at(admin, topic, start_offset)
        left = await with_coordinators(admin, [opened])
        if not left:
            raise CommandFailed("the transaction has ended by itself meanwhile", code=EXIT_NOT_FOUND)
        if (coordinated := left[0].coordinated) is not None:
            name = coordinated.transactional_id
            raise CommandFailed(
                f"the transaction is not hanging: it belongs to transactional id {name}, which is "
                f"{coordinated.state}; kraft transactions force-terminate {name} aborts it in all partitions"
            )
        return opened

    async def check_and_abort(admin: Admin) -> None:
        # checked again: a coordinator may have got the transaction while the user was asked
        await admin.transactions.abort((await check(admin)).marker)

    opened = connection.run(check)
    producer_id, epoch = opened.producer.producer_id, opened.producer.producer_epoch
    text = f"transaction of producer {producer_id} (epoch {epoch}) in {opened.partition[0]}-{opened.partition[1]}"
    confirm(f"abort the {text} from offset {start_offset} on?", is_confirmed=yes)
    connection.run(check_and_abort)
    if as_json:
        name, index = opened.partition
        print_json({"topic": name, "partition": index, "producer_id": producer_id, "aborted": True})
    else:
        print(f"{text} aborted")


async def _open_at(admin: Admin, topic: str, start_offset: int) -> OpenTransaction:
    """Return the open transaction that starts at this offset. Raise CommandFailed if there is none."""
    from kraft.client.admin.hanging import find_open
    from kraft.deploy.cli.topics import choose_partitions

    chosen = await choose_partitions(admin, [topic])
    if len(chosen) != 1:
        raise CommandFailed(f"{topic}: name one partition, as in {chosen[0][0]}:0", code=EXIT_USAGE)
    opened = await find_open(admin, chosen)
    for one in opened:
        if one.producer.transaction_start == start_offset:
            return one
    starts = ", ".join(str(one.producer.transaction_start) for one in opened) or "none"
    raise CommandFailed(
        f"no transaction that is open in {chosen[0][0]}-{chosen[0][1]} starts at offset {start_offset} "
        f"(open transactions start at: {starts})",
        code=EXIT_NOT_FOUND,
    )


@app.command("force-terminate")
@over_network
def force_terminate(
    connection: ClusterConnection, transactional_id: IdsArgument, yes: YesOption = False, as_json: JsonOption = False
) -> None:
    """Abort the open transaction of transactional ids, and fence their producers, which can only be closed."""
    names = ", ".join(transactional_id)
    confirm(f"abort the transactions of {names} and fence their producers?", is_confirmed=yes)

    async def work(admin: Admin) -> list[NameResult[ProducerIdentity]]:
        async def fence(name: str) -> ProducerIdentity:
            described = await admin.transactions.describe_id(name)  # a missing id would be created
            # the brokers may not allow the default timeout
            timeout_ms = described.timeout_ms
            return (await admin.transactions.fence_producers([name], transaction_timeout_ms=timeout_ms))[name]

        return await attempt_each(list(dict.fromkeys(transactional_id)), fence)

    def row(name: str, identity: ProducerIdentity) -> dict[str, object]:
        return {"transactional_id": name, "producer_id": identity.producer_id, "epoch": identity.producer_epoch}

    def line(name: str, identity: ProducerIdentity) -> str:
        return f"transactional id {name}: any open transaction is aborted, earlier producers are fenced"

    report_results(connection.run(work), "transactional_id", as_json, row, line)


def _now_ms() -> int:
    return int(time.time() * 1000)
