"""`kraft brokers`: list the brokers and what they serve; drain a broker of its replicas before it is removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from kraft.deploy.cli.completing import complete_broker
from kraft.deploy.cli.connection import ClusterConnection, over_network, refuse_options_before
from kraft.deploy.cli.output import (
    CommandFailed,
    JsonOption,
    YesOption,
    confirm,
    plural,
    print_json,
    show,
    warn,
)
from kraft.deploy.cli.partitions.draining import DrainPlan, carry_out, find_drain_plan

if TYPE_CHECKING:
    from kraft.client.admin import Admin, ClusterDescription, PartitionDescription, TopicDescription

app = typer.Typer(
    help="Show the brokers; drain one of its replicas.", invoke_without_command=True, rich_markup_mode=None
)


@app.callback()
@over_network
def show_brokers(connection: ClusterConnection, ctx: typer.Context, as_json: JsonOption = False) -> None:
    """Show the brokers: address, rack, fenced or not, partitions led, replicas not in sync."""
    if ctx.invoked_subcommand is None:
        _list_brokers(connection, as_json)
        return
    refuse_options_before(ctx, ctx.invoked_subcommand)


@app.command("list")
@over_network
def list_brokers(connection: ClusterConnection, as_json: JsonOption = False) -> None:
    """Same as `kraft brokers`."""
    _list_brokers(connection, as_json)


def _list_brokers(connection: ClusterConnection, as_json: bool) -> None:

    async def work(admin: Admin) -> tuple[ClusterDescription, tuple[TopicDescription, ...]]:
        return await admin.nodes.cluster(), await admin.topics.list()

    described, topics = connection.run(work)
    partitions = [part for topic in topics for part in topic.partitions]
    rows = []
    for broker in described.brokers:
        held = [part for part in partitions if broker.node_id in part.replicas]
        led = sum(1 for part in partitions if part.leader == broker.node_id)
        behind = sum(1 for part in held if broker.node_id not in part.isr)
        state = "fenced" if broker.is_fenced else "active"
        rows.append((broker.node_id, str(broker.address), broker.rack, state, led, len(held), behind))
    show(as_json, ["broker", "address", "rack", "state", "leads", "replicas", "out_of_sync"], rows)
    _warn_of_one_host(described, partitions)


@app.command()
@over_network
def drain(
    connection: ClusterConnection,
    broker: Annotated[
        int,
        typer.Argument(metavar="BROKER", help="Its id, as kraft brokers shows it.", autocompletion=complete_broker),
    ],
    throttle: Annotated[
        int | None,
        typer.Option(metavar="BYTES", min=1, help="Maximum bytes per second that each broker uses for the moves."),
    ] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="Show the plan and do nothing.")] = False,
    unregister: Annotated[
        bool, typer.Option("--unregister", help="Unregister the broker afterwards; it must be stopped by then.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move all replicas away from a broker, so that it can be stopped and unregistered. If this command is interrupted,
    moves in progress continue; run it again to move the rest."""

    plan = connection.run(lambda admin: find_drain_plan(admin, broker))
    if plan_only or not as_json:
        _show_plan(plan, as_json)
    if plan_only:
        return
    if plan.targets:
        confirm(f"move {plural(len(plan.targets), 'replica')} away from broker {broker}?", is_confirmed=yes)
    _carry_out(connection, plan, throttle)
    if unregister:
        connection.run(lambda admin: _unregister(admin, broker))
    if as_json:
        print_json({"broker": broker, "moved": len(plan.targets), "drained": True, "unregistered": unregister})
    elif unregister:
        print(f"broker {broker} is drained and unregistered")
    else:
        print(f"broker {broker} is drained: stop it (kraft stop {broker}), then kraft unregister {broker}")


def _carry_out(connection: ClusterConnection, plan: DrainPlan, throttle: int | None) -> None:
    """Carry out the plan, also if it is empty: an interrupted drain may have left its throttle set."""
    broker = plan.broker
    try:
        connection.run(lambda admin: carry_out(admin, plan, throttle))
    except KeyboardInterrupt:
        warn(
            "interrupted: moves in progress continue, see kraft partitions reassign list; kraft brokers drain "
            f"{broker} moves the rest{'' if throttle is None else ' and removes the throttle'}"
        )
        raise
    left = connection.run(lambda admin: find_drain_plan(admin, broker)).before
    if left:
        raise CommandFailed(
            f"{plural(len(left), 'replica')} came to broker {broker} meanwhile (new topics): run this command again"
        )


def _show_plan(plan: DrainPlan, as_json: bool) -> None:
    rows = [(*one, plan.before[one], target) for one, target in sorted(plan.targets.items())]
    if rows or as_json:
        show(as_json, ["topic", "partition", "before", "target"], rows)
    else:
        print(f"broker {plan.broker} has no replicas: nothing to move")


async def _unregister(admin: Admin, broker: int) -> None:
    """Unregister a broker that is stopped. Raise CommandFailed for an active one: it would register again."""
    for known in (await admin.nodes.cluster()).brokers:
        if known.node_id == broker and not known.is_fenced:
            raise CommandFailed(
                f"broker {broker} is drained, but active: stop it (kraft stop {broker}), then give this command again"
            )
    await admin.nodes.unregister_broker(broker)


def _warn_of_one_host(described: ClusterDescription, partitions: list[PartitionDescription]) -> None:
    """Warn of replicated partitions whose in-sync replicas are all on one host: if that host fails, they are lost."""
    hosts = {broker.node_id: broker.address.host for broker in described.brokers}
    if len(set(hosts.values())) < 2:
        return
    exposed = [part for part in partitions if len(part.isr) > 1 and len({hosts.get(node) for node in part.isr}) == 1]
    if exposed:
        warn(f"warning: all in-sync replicas of {plural(len(exposed), 'partition')} are on a single host each")
