"""`kraft partitions reassign`: move replicas between brokers, with the files of kafka-reassign-partitions.sh.

`plan` writes a file, `execute` starts the moves in it, `verify` shows their progress, and removes the throttle when all
are done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_brokers, complete_topic
from kraft.deploy.cli.connection import ClusterConnection, over_network
from kraft.deploy.cli.output import (
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_USAGE,
    CommandFailed,
    JsonOption,
    plural,
    show,
    warn,
)
from kraft.deploy.cli.partitions.reassign_progress import DONE, current_replicas, fetch_progress, wait_until_over
from kraft.deploy.cli.partitions.reassignment_file import Placement, read_plan, read_topics, save_plan, write_plan

if TYPE_CHECKING:
    from kraft.client import KafkaError
    from kraft.client.admin import Admin, Reassignment

app = typer.Typer(help="Move replicas between brokers.", no_args_is_help=True, rich_markup_mode=None)

BEGUN = "begun"

TopicPartition = tuple[str, int]
PlanArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A plan, as `plan` or Kafka's tool writes it.")]


@app.command()
@over_network
def plan(
    connection: ClusterConnection,
    topic: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC[:0,2-4]…]", autocompletion=complete_topic)
    ] = None,
    topics_file: Annotated[
        Path | None, typer.Option("--topics", metavar="FILE", help="The topics, in the JSON of Kafka's tool.")
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            metavar="1,2,…",
            help="Brokers that may hold replicas; default: all live brokers.",
            autocompletion=complete_brokers,
        ),
    ] = None,
    replication_factor: Annotated[int | None, typer.Option(help="Replicas of each partition; default: as now.")] = None,
    save_current: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the current placement to a file, so that you can go back to it."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a plan that spreads replicas evenly with as few moves as possible. Nothing is moved. The plan is always
    JSON; without --json, a line on standard error gives the amount of data to copy."""
    wanted = [*(topic or ()), *(read_topics(topics_file) if topics_file is not None else ())]
    if not wanted:
        raise CommandFailed("which topics? Name them, or give --topics FILE", code=EXIT_USAGE)
    chosen = _broker_ids(brokers)

    async def work(admin: Admin) -> tuple[dict[TopicPartition, tuple[int, ...]], dict[int, str | None]]:
        from kraft.deploy.cli.topics import choose_partitions

        current = await current_replicas(admin, await choose_partitions(admin, wanted))
        known = {one.node_id: one.rack for one in (await admin.nodes.cluster()).brokers if not one.is_fenced}
        missing = [broker for broker in chosen or () if broker not in known]
        if missing:
            raise CommandFailed(
                f"broker {missing[0]} is not up (there are: {', '.join(map(str, sorted(known)))})", code=EXIT_NOT_FOUND
            )
        return current, {broker: known[broker] for broker in chosen} if chosen else known

    current, usable = connection.run(work)
    from kraft.client.core.replica_plan import plan_replicas

    try:
        planned = plan_replicas(current, usable, replication_factor)
    except ValueError as problem:
        raise CommandFailed(str(problem), code=EXIT_USAGE) from problem
    if save_current is not None:
        save_plan(save_current, current)
    moves = sum(len(set(planned[one]) - set(current[one])) for one in planned)
    if not as_json:
        warn(f"{plural(len(planned), 'partition')}, {plural(moves, 'replica')} to copy")
    print(write_plan(planned))


@app.command()
@over_network
def execute(
    connection: ClusterConnection,
    file: PlanArgument,
    throttle: Annotated[
        int | None, typer.Option(metavar="BYTES", help="Maximum bytes per second that each broker uses for the moves.")
    ] = None,
    additional: Annotated[
        bool, typer.Option("--additional", help="Go ahead even if other partitions are being moved.")
    ] = False,
    keep_replication_factor: Annotated[
        bool, typer.Option("--keep-replication-factor", help="Refuse a plan that would change the number of replicas.")
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait until all moves are done, then remove the throttle.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Start to move replicas as a plan says. To go back, execute the file of `plan --save-current`, or use `cancel`."""
    placements = read_plan(file)

    async def work(admin: Admin) -> list[tuple[object, ...]]:
        before = await current_replicas(admin, placements)
        running = await admin.partitions.reassignments()
        if running and not additional:
            names = ", ".join(f"{topic}-{index}" for topic, index in sorted(running)[:5])
            raise CommandFailed(f"{plural(len(running), 'partition')} being moved already: {names} (--additional)")
        targets = {partition: placement.replicas for partition, placement in placements.items()}
        if throttle is not None:
            from kraft.client.admin.reassign_throttle import set_throttle

            await set_throttle(admin, before, targets, throttle)
        problems = await _move_between_directories(admin, placements)
        results = await admin.partitions.reassign(targets, allow_replication_factor_change=not keep_replication_factor)
        accepted = {one: placements[one] for one, problem in results.items() if problem is None}
        problems |= {one: problem for one, problem in results.items() if problem is not None}
        states = dict.fromkeys(accepted, BEGUN)
        if wait:
            if accepted:
                progress = await wait_until_over(admin, accepted)
                states = {one: progress.state(one) for one in accepted}
            await _lift(admin, placements)
        return [
            (*one, before[one], targets[one], str(problems[one]) if one in problems else states[one])
            for one in sorted(results)
        ]

    _finish(as_json, ["topic", "partition", "before", "target", "result"], connection.run(work), {DONE, BEGUN})


@app.command()
@over_network
def verify(
    connection: ClusterConnection,
    file: PlanArgument,
    preserve_throttles: Annotated[
        bool, typer.Option("--preserve-throttles", help="Keep the throttles even if all moves are done.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the progress of a plan. When all of it is done, the throttles are removed; otherwise the exit code is 1."""
    placements = read_plan(file)

    async def work(admin: Admin) -> list[tuple[object, ...]]:
        progress = await fetch_progress(admin, placements)
        rows: list[tuple[object, ...]] = [
            (*one, progress.current[one], placement.replicas, progress.state(one))
            for one, placement in sorted(placements.items())
        ]
        if not progress.running and not preserve_throttles:
            await _lift(admin, placements)
        return rows

    _finish(as_json, ["topic", "partition", "replicas", "target", "state"], connection.run(work), {DONE})


@app.command()
@over_network
def cancel(
    connection: ClusterConnection,
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="The plan to cancel; default: all moves.")
    ] = None,
    preserve_throttles: Annotated[bool, typer.Option("--preserve-throttles", help="Keep the throttles.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Cancel moves: replicas being added are removed, and replicas being removed stay."""
    placements = read_plan(file) if file is not None else None

    async def work(admin: Admin) -> list[tuple[object, ...]]:
        running = await admin.partitions.reassignments(placements)
        results = await admin.partitions.reassign(dict.fromkeys(running)) if running else {}
        if not preserve_throttles:
            topics = {topic for topic, _ in (running if placements is None else placements)}
            await _lift(admin, ((topic, 0) for topic in topics))
        return [(*partition, _outcome(problem, "cancelled")) for partition, problem in sorted(results.items())]

    rows = connection.run(work)
    if not rows and not as_json:
        print("nothing to do: no partition is being moved")
        return
    _finish(as_json, ["topic", "partition", "result"], rows, {"cancelled"})


@app.command("list")
@over_network
def list_reassignments(connection: ClusterConnection, as_json: JsonOption = False) -> None:
    """Show the partitions that are being moved."""

    async def work(admin: Admin) -> dict[TopicPartition, Reassignment]:
        return await admin.partitions.reassignments()

    rows = [
        (*partition, move.replicas, move.adding, move.removing)
        for partition, move in sorted(connection.run(work).items())
    ]
    if rows or as_json:
        show(as_json, ["topic", "partition", "replicas", "adding", "removing"], rows)
    else:
        print("no partition is being moved")


def _broker_ids(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise CommandFailed(f"--brokers {text}: expected broker ids as 1,2,3", code=EXIT_USAGE) from None


async def _move_between_directories(
    admin: Admin, placements: Mapping[TopicPartition, Placement]
) -> dict[TopicPartition, KafkaError]:
    """Request the brokers to move replicas to the log directories that the plan names. This is requested before the
    plan starts: a new replica is then created in the right directory. Return the errors."""
    from kraft.wire.error_codes import ErrorCode

    wanted: dict[int, dict[TopicPartition, str]] = {}
    for partition, placement in placements.items():
        for broker, path in placement.directories.items():
            wanted.setdefault(broker, {})[partition] = path
    refused: dict[TopicPartition, KafkaError] = {}
    for broker, paths in sorted(wanted.items()):
        for partition, problem in (await admin.nodes.move_replicas(broker, paths)).items():
            if problem is not None and problem.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
                refused[partition] = problem
    return refused


async def _lift(admin: Admin, partitions: Iterable[TopicPartition]) -> None:
    from kraft.client.admin.reassign_throttle import remove_throttle

    brokers = [one.node_id for one in (await admin.nodes.cluster()).brokers]
    await remove_throttle(admin, {topic for topic, _ in partitions}, brokers)


def _outcome(problem: KafkaError | None, success: str) -> str:
    return success if problem is None else str(problem)


def _finish(as_json: bool, columns: list[str], rows: list[tuple[object, ...]], good: set[str]) -> None:
    """Print the rows; the last column has the result of each row. Exit with code 1 unless every result is fine."""
    show(as_json, columns, rows)
    if any(row[-1] not in good for row in rows):
        raise typer.Exit(EXIT_FAILED)
