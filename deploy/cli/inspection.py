"""`kraft brokers` and `kraft quorum`: who is there, who leads, who is behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft.deploy.cli.output import BootstrapOption, JsonOption, print_json, print_table, warn

if TYPE_CHECKING:
    from kraft.deploy.cli.admin import Admin


def brokers(bootstrap: BootstrapOption = None, as_json: JsonOption = False) -> None:
    """Show the brokers: address, rack, fenced or not, partitions led, partitions not fully in sync."""
    from kraft.deploy.cli.admin import run_admin

    described, metadata = run_admin(bootstrap, _brokers)
    partitions = [part for topic in metadata.topics for part in topic.partitions]
    rows = []
    for broker in sorted(described.brokers, key=lambda item: int(item.broker_id)):
        number = int(broker.broker_id)
        led = sum(1 for part in partitions if part.leader_id == number)
        held = [part for part in partitions if number in part.replica_nodes]
        behind = sum(1 for part in held if number not in part.isr_nodes)
        state = "fenced" if broker.is_fenced else "active"
        rows.append((number, f"{broker.host}:{int(broker.port)}", broker.rack, state, led, len(held), behind))
    columns = ["broker", "address", "rack", "state", "leads", "replicas", "out_of_sync"]
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)
    _warn_of_one_host(described, partitions)


def quorum(bootstrap: BootstrapOption = None, as_json: JsonOption = False) -> None:
    """Show the metadata quorum: leader, epoch, high watermark, and how far each voter and observer is."""
    from kraft.deploy.cli.admin import run_admin

    answer = run_admin(bootstrap, lambda admin: admin.describe_quorum())
    partition = answer.topics[0].partitions[0]
    leader, end = int(partition.leader_id), _end_of_leader(partition)
    rows = [
        (int(replica.replica_id), _role(int(replica.replica_id), leader, role), int(replica.log_end_offset), end)
        for role, replicas in (("voter", partition.current_voters), ("observer", partition.observers))
        for replica in sorted(replicas, key=lambda item: int(item.replica_id))
    ]
    table = [(node, role, offset, max(0, last - offset)) for node, role, offset, last in rows]
    columns = ["node", "role", "log_end_offset", "lag"]
    head = {"leader": leader, "epoch": int(partition.leader_epoch), "high_watermark": int(partition.high_watermark)}
    if as_json:
        print_json({**head, "replicas": [dict(zip(columns, row, strict=True)) for row in table]})
        return
    print("  ".join(f"{name.replace('_', ' ')} {value}" for name, value in head.items()))
    print_table(columns, table)


async def _brokers(admin: Admin) -> tuple[Any, Any]:
    return await admin.describe_cluster(), await admin.metadata(None)


def _warn_of_one_host(described: Any, partitions: list[Any]) -> None:
    """A replicated partition whose in-sync replicas all lie on one host dies with that host."""
    hosts = {int(broker.broker_id): str(broker.host) for broker in described.brokers}
    if len(set(hosts.values())) < 2:
        return
    exposed = [
        part for part in partitions if len(part.isr_nodes) > 1 and len({hosts.get(n) for n in part.isr_nodes}) == 1
    ]
    if exposed:
        warn(f"warning: all in-sync replicas of {len(exposed)} partitions lie on one host each")


def _end_of_leader(partition: Any) -> int:
    ends = [int(voter.log_end_offset) for voter in partition.current_voters if voter.replica_id == partition.leader_id]
    return ends[0] if ends else 0


def _role(node: int, leader: int, role: str) -> str:
    return "leader" if node == leader else role
