"""NodeNetworks: a network namespace per node, joined by a bridge. Packets can be cut, dropped or delayed in each
direction.

    if reason := can_use_namespaces():
        …                                              # not available here, and why
    networks = NodeNetworks([1, 2, 3, 101], warden)
    networks.open()
    networks.command_prefix(1)                         # starts a node inside
    networks.address(1)                                # what its listeners bind and advertise; clients reach it
    networks.apply({(1, 2): PacketConditions(is_cut=True)})         # nothing that 1 sends to 2 arrives

It shows what a proxy cannot: lost SYNs and FINs, retransmitted packets, and peers that time out silently. 0 (`CLIENTS`)
is the host's side of the bridge: clients, and whatever else runs there.

Every peer has a fixed MAC address. A cut sets, at the sender, the target's MAC address to an unused one: the frames are
dropped, also on open connections, and the sender gets no error. No firewall is needed. Packets to each target go
through a separate htb class, which counts them and limits their rate. It carries netem if the direction has latency,
loss, reordering or duplicates. Kernels without netem (`can_use_netem`) can cut and limit the rate. With nftables
(`can_lose_packets`) they can drop packets at the receiver, but not packets to the host.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kraft.seam import LinkQuality
from kraft.sim.chaos.hosts.network_commands import (
    COMMAND_SECONDS_MAX,
    CannotUseNamespaces,
    can_lose_packets,
    can_use_namespaces,
    can_use_netem,
    inside,
    run,
    run_batch,
)
from kraft.sim.chaos.hosts.warden import HeldResource, Warden
from kraft.sim.nemesis.partition_shapes import CLIENTS

DEVICE = "eth0"
"""Name, inside a node's namespace, of the end of its veth pair."""
NODES_MAX = 200
NO_HOST = 255
HOST = 1
"""Last parts of IPv4 addresses: NO_HOST is the number that no node has, HOST the host's number. Nodes use the numbers
from 2 on."""
UNLIMITED = "32gbit"
DRAWS_MAX = 100
REORDER_LATENCY_MS = 10
"""Latency that reordering adds, because packets can overtake only delayed packets."""

CLASS_SHOWN = re.compile(r"^class htb 1:(\w+) .*\n Sent \d+ bytes (\d+) pkt", re.MULTILINE)
"""Pattern for the host and the packet count of a class in the output of `tc -s class show`, which offers no JSON for
it."""

LEAF_SHOWN = re.compile(r"^qdisc netem 1(\w\w): .*\n Sent .* \(dropped (\d+),", re.MULTILINE)
"""Pattern for the host and the dropped packets of a class's netem."""
RULE_SHOWN = re.compile(r"ip saddr (\S+) numgen .* counter packets (\d+) ")
"""Pattern for the source and the dropped packets of an nft rule."""
LOSS_TABLE = "kraft"
LOSS_PARTS = 100_000
VOTERS = "controller.quorum.voters"
LISTENER_HOST = re.compile(r"(\w+://)[^:,]*(:\d+)")

Link = tuple[int, int]
"""Source and target: node ids, or CLIENTS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PacketConditions:
    """Conditions of the packets that one node sends to another. Shares are from 0 to 1. Latency varies by up to
    `jitter_ms` in both directions, so packets may overtake each other. TCP segments that are sent at once are dropped,
    delayed or duplicated together, as the kernel hands them over."""

    is_cut: bool = False
    latency_ms: int = 0
    jitter_ms: int = 0
    bytes_per_second: int = 0
    """Maximum rate in bytes per second; 0: unlimited."""
    loss: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0

    def __post_init__(self) -> None:
        if min(self.latency_ms, self.jitter_ms, self.bytes_per_second) < 0:
            raise ValueError(f"latency, jitter and bytes per second are 0 or more: {self}")
        if not all(0 <= share <= 1 for share in (self.loss, self.reorder, self.duplicate)):
            raise ValueError(f"loss, reorder and duplicate are shares from 0 to 1: {self}")

    @staticmethod
    def of(quality: LinkQuality) -> PacketConditions:
        """Convert a link quality. Jitter differs: a link quality with latency L and jitter J means a delay of L to L +
        J; packet conditions with latency M and jitter J mean M - J/2 to M + J/2. Raises CannotUseNamespaces for a limit
        of bytes per connection, because packets are not assigned to connections here."""
        if quality.bytes_max:
            raise CannotUseNamespaces(
                "a network namespace cannot end a connection after a number of bytes; use a proxy"
            )
        half_ms = quality.jitter_ms // 2
        return PacketConditions(
            is_cut=quality.is_cut,
            latency_ms=quality.latency_ms + half_ms,
            jitter_ms=half_ms,
            bytes_per_second=int(quality.bytes_per_second),
        )

    @property
    def netem(self) -> str:
        """The arguments of tc's netem, or "" if netem is not needed."""
        latency_ms = self.latency_ms or (REORDER_LATENCY_MS if self.reorder else 0)
        words = []
        if latency_ms or self.jitter_ms:
            words.append(f"delay {latency_ms}ms" + (f" {self.jitter_ms}ms" if self.jitter_ms else ""))
        for name in ("reorder", "loss", "duplicate"):
            share = getattr(self, name)
            words += [f"{name} {100 * share:g}%"] if share else []
        return " ".join(("limit 100000", *words)) if words else ""

    @property
    def rate(self) -> str:
        """The rate of tc's htb, with its burst size."""
        return f"{8 * self.bytes_per_second}bit" if self.bytes_per_second else f"{UNLIMITED} burst 1mb cburst 1mb"


WELL = PacketConditions()


class NodeNetworks:
    """The namespaces of a cluster's nodes; see the module. Names and the network 10.X.Y.0/24 are random; names have at
    most 15 letters."""

    def __init__(self, node_ids: Sequence[int], warden: Warden) -> None:
        if len(node_ids) > NODES_MAX:
            raise ValueError(f"a bridge joins {NODES_MAX} nodes at most, not {len(node_ids)}")
        chance = random.SystemRandom()
        self._word = "kc" + "".join(chance.choices("abcdefghijkmnpqrstuvwxyz23456789", k=5))
        self._hosts = {CLIENTS: HOST, **{node: HOST + 1 + index for index, node in enumerate(node_ids)}}
        self._parts = (0, 0)
        self._warden = warden
        self._held: list[HeldResource] = []
        self._ways: dict[Link, PacketConditions] = {}

    # names

    @property
    def bridge(self) -> str:
        """The bridge's name on the host."""
        return f"{self._word}b"

    @property
    def ways(self) -> Mapping[Link, PacketConditions]:
        """Direction → the conditions that were applied last. A direction that is not listed has none."""
        return dict(self._ways)

    def namespace(self, node: int) -> str:
        """The name of a node's namespace, as `ip netns` shows it."""
        return f"{self._word}n{node}"

    def address(self, node: int) -> str:
        """Return the node's IPv4 address; for CLIENTS the host's."""
        return f"{self._network}.{self._hosts[node]}"

    @property
    def _network(self) -> str:
        return f"10.{self._parts[0]}.{self._parts[1]}"

    def command_prefix(self, node: int) -> list[str]:
        """Return the words that make a command run in the node's namespace when they are put before it. They exec the
        command, so it keeps the process id."""
        return inside(self.namespace(node))

    def properties(self, node: int, properties: Mapping[str, str]) -> dict[str, str]:
        """Return a node's properties for running in its namespace: its listeners are bound to and advertised at its
        address there, and voters are listed with their addresses. Ports are unchanged."""
        moved = dict(properties)
        for key in ("listeners", "advertised.listeners"):
            if key in moved:
                moved[key] = LISTENER_HOST.sub(rf"\g<1>{self.address(node)}\g<2>", moved[key])
        if VOTERS in moved:
            parts = (voter.split("@") for voter in moved[VOTERS].split(","))
            moved[VOTERS] = ",".join(
                f"{voter}@{self.address(int(voter))}:{address.rpartition(':')[2]}" for voter, address in parts
            )
        return moved

    # lifecycle

    def open(self) -> None:
        """Create all namespaces and links. Raises CannotUseNamespaces; in that case everything that was created is
        removed again."""
        reason = can_use_namespaces()
        if reason:
            raise CannotUseNamespaces(reason)
        self._parts = _draw_network()
        nodes = [node for node in self._hosts if node != CLIENTS]
        try:
            self._held = [self._warden.namespace(self.namespace(node)) for node in nodes]
            self._held += [self._warden.link(name) for name in (self.bridge, *map(self._host_end, nodes))]
            run_batch("ip", self._bridge_lines(nodes))
            for node in nodes:
                run_batch("ip", self._inside_lines(node), namespace=self.namespace(node))
            for node in self._hosts:
                self._run_tc(node, self._class_lines(node))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove all namespaces and links. Processes inside must have ended: they would keep their namespace."""
        for resource in self._held:
            noun = ("netns", "del") if resource.kind == "namespace" else ("link", "del")
            subprocess.run(["ip", *noun, resource.name], capture_output=True, timeout=COMMAND_SECONDS_MAX, check=False)
            self._warden.release(resource)
        self._held = []
        self._ways = {}

    # directions

    def apply(self, ways: Mapping[Link, PacketConditions]) -> None:
        """Apply these conditions, and remove all conditions from directions that are not given. Packets in flight still
        arrive. Raises CannotUseNamespaces, without any change, if a direction needs netem and the kernel has none."""
        wanted = {link: way for link, way in ways.items() if way != WELL}
        for link in wanted:
            if link[0] == link[1] or not {*link} <= self._hosts.keys():
                raise ValueError(f"{link} is no direction between two of {sorted(self._hosts)}")
        _require_possible(wanted)
        changed = [link for link in {**self._ways, **wanted} if self._ways.get(link, WELL) != wanted.get(link, WELL)]
        for source in sorted({link[0] for link in changed}):
            pairs = [
                (target, self._ways.get((source, target), WELL), wanted.get((source, target), WELL))
                for one, target in changed
                if one == source
            ]
            self._run_ip(source, [self._neighbour_line(source, target, new) for target, _, new in pairs])
            self._run_tc(source, [line for pair in pairs for line in self._way_lines(source, *pair)])
        if can_use_netem():
            lossy = {link for link, way in (*self._ways.items(), *wanted.items()) if way.loss}
            self._lose_at_receivers(lossy.intersection(changed), wanted)
        self._ways = wanted

    def _lose_at_receivers(self, changed: Iterable[Link], wanted: Mapping[Link, PacketConditions]) -> None:
        for target in sorted({link[1] for link in changed}):
            shares = {source: way.loss for (source, to), way in wanted.items() if to == target and way.loss}
            run(inside(self.namespace(target), "nft", "-f", "-"), text=self._loss_rules(shares))

    def lost_packets(self) -> dict[Link, int]:
        """Return how many packets were dropped in each direction that has loss now, since the conditions of its target
        last changed."""
        found: dict[Link, int] = {}
        hosts = {self.address(node): node for node in self._hosts}
        for target in {link[1] for link, way in self._ways.items() if way.loss}:
            if can_use_netem():
                shown = run(inside(self.namespace(target), "nft", "list", "table", "ip", LOSS_TABLE))
                found |= {(hosts[address], target): int(count) for address, count in RULE_SHOWN.findall(shown)}
        for source in {link[0] for link, way in self._ways.items() if way.loss and not can_use_netem()}:
            shown = self._tc_output(source, "-s", "qdisc", "show", "dev", self._device(source))
            for host, count in LEAF_SHOWN.findall(shown):
                found[source, hosts[f"{self._network}.{int(host, 16)}"]] = int(count)
        return found

    def sent_packets(self) -> dict[Link, int]:
        """Return how many packets were sent in each direction since its creation, including those dropped by a cut. If
        the number increases while a direction is cut, the cut has had an effect."""
        found: dict[Link, int] = {}
        hosts = {host: node for node, host in self._hosts.items()}
        for source in self._hosts:
            shown = self._tc_output(source, "-s", "class", "show", "dev", self._device(source))
            for host, packets in CLASS_SHOWN.findall(shown):
                found[source, hosts[int(host, 16)]] = int(packets)
        return found

    # commands

    def _device(self, node: int) -> str:
        return self.bridge if node == CLIENTS else DEVICE

    def _host_end(self, node: int) -> str:
        return f"{self._word}v{node}"

    def _mac(self, host: int) -> str:
        return f"02:6b:63:{self._parts[0]:02x}:{self._parts[1]:02x}:{host:02x}"

    def _bridge_lines(self, nodes: Iterable[int]) -> list[str]:
        lines = [
            f"link add {self.bridge} address {self._mac(HOST)} type bridge stp_state 0",
            f"address add {self.address(CLIENTS)}/24 dev {self.bridge}",
            f"link set {self.bridge} up",
        ]
        for node in nodes:
            name, end, mac = self.namespace(node), self._host_end(node), self._mac(self._hosts[node])
            lines += [
                f"netns add {name}",
                f"link add {end} type veth peer name {DEVICE} address {mac} netns {name}",
                f"link set {end} master {self.bridge} up",
                self._neighbour_line(CLIENTS, node, WELL),
            ]
        return lines

    def _inside_lines(self, node: int) -> list[str]:
        others = [other for other in self._hosts if other != node]
        return [
            "link set lo up",
            f"address add {self.address(node)}/24 dev {DEVICE}",
            f"link set {DEVICE} up",
            *(self._neighbour_line(node, other, WELL) for other in others),
        ]

    def _neighbour_line(self, source: int, target: int, way: PacketConditions) -> str:
        mac = self._mac(NO_HOST if way.is_cut else self._hosts[target])
        return f"neighbour replace {self.address(target)} lladdr {mac} dev {self._device(source)} nud permanent"

    def _class_lines(self, source: int) -> list[str]:
        """Return tc lines that create a class for each target, selected by its address. Packets to other addresses,
        which do not occur, have no class."""
        device = self._device(source)
        lines = [f"qdisc add dev {device} root handle 1: htb"]
        for target in [node for node in self._hosts if node != source]:
            name = f"1:{self._hosts[target]:x}"
            lines += [
                self._class_line("add", source, target, WELL),
                f"filter add dev {device} parent 1: protocol ip prio 1 u32 match ip dst {self.address(target)}/32 "
                f"flowid {name}",
            ]
        return lines

    def _class_line(self, verb: str, source: int, target: int, way: PacketConditions) -> str:
        name = f"1:{self._hosts[target]:x}"
        return f"class {verb} dev {self._device(source)} parent 1: classid {name} htb rate {way.rate} quantum 60000"

    def _way_lines(self, source: int, target: int, old: PacketConditions, new: PacketConditions) -> list[str]:
        device, host = self._device(source), self._hosts[target]
        if can_use_netem():  # then the receiver drops packets
            old, new = replace(old, loss=0), replace(new, loss=0)
        lines = [self._class_line("change", source, target, new)] if old.rate != new.rate else []
        leaf = f"dev {device} parent 1:{host:x} handle {0x100 + host:x}:"
        if new.netem and new.netem != old.netem:
            lines.append(f"qdisc replace {leaf} netem {new.netem}")
        elif old.netem and not new.netem:
            lines.append(f"qdisc del {leaf}")
        return lines

    def _loss_rules(self, shares: Mapping[int, float]) -> str:
        """Return the nft lines with all loss rules of a target, one for each source. They replace the
        existing rules."""
        rules = [
            f"ip saddr {self.address(source)} numgen random mod {LOSS_PARTS} <= {_last_lost(share)} counter drop"
            for source, share in shares.items()
        ]
        lines = ["type filter hook prerouting priority raw;", *rules]
        chain = "".join(f"{line}\n" for line in ("chain in {", *lines, "}"))
        return f"table ip {LOSS_TABLE} {{}}\ndelete table ip {LOSS_TABLE}\ntable ip {LOSS_TABLE} {{\n{chain}}}\n"

    def _run_ip(self, node: int, lines: list[str]) -> None:
        run_batch("ip", lines, namespace="" if node == CLIENTS else self.namespace(node))

    def _run_tc(self, node: int, lines: list[str]) -> None:
        run_batch("tc", lines, namespace="" if node == CLIENTS else self.namespace(node))

    def _tc_output(self, node: int, *words: str) -> str:
        where = () if node == CLIENTS else ("-n", self.namespace(node))
        return run(["tc", *where, *words])


def _require_possible(ways: Mapping[Link, PacketConditions]) -> None:
    """Raise CannotUseNamespaces if these conditions need netem and the kernel has none."""
    reason = can_use_netem()
    if reason and any(replace(way, loss=0).netem for way in ways.values()):
        raise CannotUseNamespaces(reason)
    if any(way.loss for way in ways.values()) and (why := can_lose_packets()):
        raise CannotUseNamespaces(why)
    if reason and any(way.loss and link[1] == CLIENTS for link, way in ways.items()):
        raise CannotUseNamespaces(f"what is sent to clients cannot be lost without netem: {reason}")


def _last_lost(share: float) -> int:
    """Return the highest random number, from 0 to LOSS_PARTS - 1, at which a packet is dropped."""
    return max(1, round(LOSS_PARTS * share)) - 1


def _draw_network() -> tuple[int, int]:
    """Return random middle parts of a network 10.X.Y.0/24 to which the host has no route yet."""
    routes = json.loads(run(["ip", "-j", "-4", "route"]))
    taken = {tuple(row.get("dst", "").split(".")[:3]) for row in routes}
    chance = random.SystemRandom()
    for _ in range(DRAWS_MAX):
        parts = (chance.randrange(16, 240), chance.randrange(256))
        if ("10", str(parts[0]), str(parts[1])) not in taken and ("10", str(parts[0]), "0") not in taken:
            return parts
    raise CannotUseNamespaces("no free network 10.X.Y.0/24 was found: the host has routes to too many of them")
