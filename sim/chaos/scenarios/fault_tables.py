"""The `[[fault]]` tables of a scenario file: which keys each kind has, which nodes it may affect, and its lane (a
sequence of faults that do not overlap).

A repeated fault (`times`, `every_s`) is read as several faults. An end of a link may be "clients". If the file gives no
lane, the lane follows from the times: faults that overlap as planned get different lanes, others share one. If a fault
takes longer than planned, for example because a node starts slowly, the next fault of its lane waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from kraft.sim.chaos.judge.evidence import FACT, SIGNS, is_evidence
from kraft.sim.chaos.scenarios.file_rules import Keys, Wrong, nearest, one_of, read_table, seconds, whole
from kraft.sim.chaos.scenarios.scenario import ScenarioError, ScenarioFault
from kraft.sim.cluster.shape import ClusterShape
from kraft.sim.nemesis import plan
from kraft.sim.nemesis.on_clusters import LINK_KINDS, ROLES_EVERYWHERE
from kraft.sim.nemesis.plan import Fault

NOT_IN_SCENARIOS = ("flap", plan.DIRECTORY, *plan.WEAR_KINDS, plan.BLACKOUT)
"""Kinds of faults that only `kraft sim` supports, because they need its checks."""
KINDS = (*(kind for kind in plan.FAULT_KINDS if kind not in NOT_IN_SCENARIOS), *plan.TOXIC_KINDS)
LASTING = (
    "pause",
    "stall",
    "slow disk",
    "full disk",
    "failing sync",
    plan.CUT,
    plan.CUT_ONE_WAY,
    plan.ISOLATE,
    *plan.SHAPE_KINDS,
    *plan.WAY_KINDS,
)
"""Kinds of faults that last: they need lasts_s. For a stepped clock lasts_s is optional."""
RETURNING = (*plan.CRASH_KINDS, plan.ROLLING, "stumble", plan.EMPTY_DISK, "full disk", "failing sync")
"""Kinds that take a node down: back_s is how long it stays down."""
AMOUNTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "step_ms": ("clock", "amount"),
        "latency_ms": (plan.LATENCY, "amount"),
        "jitter_ms": (plan.LATENCY, "jitter_ms"),
        "bytes_per_second": (plan.SLOW_LINK, "amount"),
        "bytes": (plan.BYTE_LIMIT, "amount"),
        "average_bytes": (plan.SLICER, "amount"),
        "variation_bytes": (plan.SLICER, "variation_bytes"),
        "delay_us": (plan.SLICER, "delay_us"),
        "delay_ms": (plan.SLOW_CLOSE, "amount"),
        "timeout_ms": (plan.TIMEOUT, "amount"),
        "after_ms": (plan.RESET_PEER, "amount"),
        "times": ("stumble", "amount"),
    }
)
"""Key → the kind of fault that it belongs to, and the field of Fault that it sets."""
OPTIONAL_AMOUNTS = ("jitter_ms", "variation_bytes", "delay_us")
FROM_ZERO = ("variation_bytes", "delay_us", "timeout_ms", "after_ms")
"""Amounts that may be 0. Other amounts are at least 1, except the step of a clock, which may be any number."""
WAY_KEYS = ("toxicity_percent", "stream")
"""Keys of faults of one direction of a link (`plan.WAY_KINDS`)."""
CLIENTS = "clients"
"""The name of all clients as `node` or `other` of a fault between two ends."""
CUTS = (plan.CUT, plan.ISOLATE, *plan.SHAPE_KINDS)
"""Kinds of faults that cut both directions of links. `manner` says how the cut links behave."""


def _evidence(value: object) -> tuple[str, ...]:
    """Read the evidence of a fault: a list of signs, or of facts as `fact:NAME`."""
    if isinstance(value, list) and all(isinstance(each, str) and is_evidence(each) for each in value):
        return tuple(value)
    wrong = value[0] if isinstance(value, list) and value else ""
    hint = nearest(wrong, SIGNS) if isinstance(wrong, str) else ""
    raise Wrong(f"a list of names of {', '.join(SIGNS)}, or {FACT}NAME{f' ({hint})' if hint else ''}")


def _percent(value: object) -> int:
    found: int = whole(1)(value)
    if found > 100:
        raise Wrong("a whole number from 1 to 100")
    return found


def _end(value: object) -> int:
    """Read one end of a link: a node's id, or "clients"."""
    if value == CLIENTS:
        return plan.ALL_CLIENTS
    try:
        found: int = whole(1)(value)
    except Wrong:
        raise Wrong(f"a node's id, or {CLIENTS!r}") from None
    return found


_KEYS: Keys = MappingProxyType(
    {
        "at_s": ("at_ms", seconds(0)),
        "kind": ("kind", one_of(KINDS)),
        "role": ("role", one_of(ROLES_EVERYWHERE)),
        "node": ("node", _end),
        "other": ("other", _end),
        "pick": ("pick", whole(0)),
        "lane": ("lane", whole(0)),
        "lasts_s": ("duration_ms", seconds(0.001)),
        "back_s": ("back_ms", seconds(0)),
        "manner": ("manner", one_of(plan.CUT_MANNERS)),
        "evidence": ("evidence", _evidence),
        "toxicity_percent": ("toxicity_percent", _percent),
        "stream": ("stream", one_of(plan.STREAMS[1:])),
        "every_s": ("every_ms", seconds(0.001)),
        "step_ms": ("step_ms", whole()),
        **{key: (key, whole(key not in FROM_ZERO)) for key in AMOUNTS if key != "step_ms"},
    }
)


def read_faults(given: object, shape: ClusterShape, duration_ms: int) -> tuple[ScenarioFault, ...]:
    """Return the faults in order of time, each with its lane (a sequence of faults that do not overlap). Raises
    ScenarioError."""
    if not isinstance(given, list):
        raise ScenarioError(f"faults are tables that begin with [[fault]], and not {given!r}")
    rows = [
        again
        for number, row in enumerate(given, start=1)
        for again in _rows(f"[[fault]] {number}", row, shape, duration_ms)
    ]
    rows.sort(key=lambda row: int(row["at_ms"]))
    return tuple(_in_lanes(rows))


def _rows(where: str, given: object, shape: ClusterShape, duration_ms: int) -> list[dict[str, Any]]:
    """Yield the fields of one fault and its evidence, once for each repetition."""
    row = read_table(where, given, _KEYS)
    for field, key in (("at_ms", "at_s"), ("kind", "kind")):
        if field not in row:
            raise ScenarioError(f"{where}: {key} is missing: every fault has at_s and kind")
    where = f"{where} ({row['kind']})"
    try:
        times, every_ms = _take_repeats(row)
        _check_times(row, duration_ms)
        _take_amounts(row)
        _check_ways(row)
        _check_nodes(row, shape)
        repeated = [{**row, "at_ms": row["at_ms"] + number * every_ms} for number in range(times)]
        _check_repeats(repeated, every_ms, duration_ms)
    except Wrong as problem:
        raise ScenarioError(f"{where}: {problem}") from None
    return repeated


def _take_repeats(row: dict[str, Any]) -> tuple[int, int]:
    """Remove and return the number of repetitions and their interval in ms. For a stumble the keys are left in place: a
    stumble is one fault that restarts a node several times."""
    if row["kind"] == "stumble" and "every_ms" not in row:
        return 1, 0
    if row["kind"] == "stumble":
        raise Wrong("every_s makes no sense here: times says how often the node is killed while it starts")
    if ("times" in row) != ("every_ms" in row):
        raise Wrong("times and every_s go together: without every_s, times is of a fault of kind 'stumble'")
    return row.pop("times", 1), row.pop("every_ms", 0)


def _check_repeats(rows: list[dict[str, Any]], every_ms: int, duration_ms: int) -> None:
    last = rows[-1]
    if last["at_ms"] >= duration_ms:
        raise Wrong(
            f"the last of {len(rows)} times begins at {last['at_ms'] / 1000:g} s, and the clients work for "
            f"{duration_ms / 1000:g} s (duration_s)"
        )
    takes_ms = last.get("duration_ms", 0) + last.get("back_ms", 0)
    if len(rows) > 1 and every_ms <= takes_ms:
        raise Wrong(f"every_s is {every_ms / 1000:g}, and each time takes {takes_ms / 1000:g} s: it must be longer")


def _check_ways(row: dict[str, Any]) -> None:
    """Check keys that only faults of one direction have, and the sizes of a slicer's pieces."""
    for key in WAY_KEYS:
        if key in row and row["kind"] not in plan.WAY_KINDS:
            raise Wrong(f"{key} is of {', '.join(plan.WAY_KINDS)}")
    if row["kind"] == plan.SLICER and row.get("variation_bytes", 0) >= row["amount"]:
        raise Wrong("variation_bytes must be less than average_bytes")
    dials = {("node", "down"): "what clients send is 'up'", ("other", "up"): "what is sent to clients is 'down'"}
    for (key, stream), truth in dials.items():
        if row.get(key) == plan.ALL_CLIENTS and row.get("other") and row.get("stream") == stream:
            raise Wrong(f"stream is {stream!r}, and clients are the end that dials: {truth}")


def _check_times(row: dict[str, Any], duration_ms: int) -> None:
    kind = row["kind"]
    if row["at_ms"] >= duration_ms:
        raise Wrong(f"at_s is {row['at_ms'] / 1000:g}, and the clients work for {duration_ms / 1000:g} s (duration_s)")
    if kind in LASTING and "duration_ms" not in row:
        raise Wrong("lasts_s is missing: how long it lasts")
    if "duration_ms" in row and kind not in (*LASTING, "clock", "stumble"):
        raise Wrong("lasts_s makes no sense here" + ("; how long a node is down is back_s" * (kind in RETURNING)))
    if "back_ms" in row and kind not in RETURNING:
        raise Wrong("back_s makes no sense here: no node goes down" + ("; lasts_s is how long" * (kind in LASTING)))
    if "manner" in row and kind not in CUTS:
        raise Wrong(f"manner is of faults that cut both ways: {', '.join(CUTS)}")


def _take_amounts(row: dict[str, Any]) -> None:
    """Remove amounts from the row, and return them by their field names in Fault."""
    kind = row["kind"]
    own = [key for key, (of, _) in AMOUNTS.items() if of == kind]
    for key, (of, _) in AMOUNTS.items():
        if key in row and of != kind:
            raise Wrong(f"{key} is of a fault of kind {of!r}" + (f"; this has {', '.join(own)}" if own else ""))
    for key in own:
        if key in row:
            row[AMOUNTS[key][1]] = row.pop(key)
        elif key not in OPTIONAL_AMOUNTS:
            raise Wrong(f"{key} is missing")


def _check_nodes(row: dict[str, Any], shape: ClusterShape) -> None:
    kind, node, other = row["kind"], row.get("node"), row.get("other")
    for key in ("node", "other"):
        if key in row and row[key] == plan.ALL_CLIENTS:
            _check_clients(row, shape)
        elif key in row and row[key] not in shape.node_ids:
            raise Wrong(f"{key} is {row[key]}, and the cluster has {', '.join(map(str, sorted(shape.node_ids)))}")
    if not plan.allows(shape, kind):
        raise Wrong("this cluster cannot have it: it has too few nodes, or no controllers apart from brokers")
    is_of_a_node = kind in plan.WAY_KINDS and other is None
    if kind in LINK_KINDS and not is_of_a_node:
        if "role" in row:
            is_link = node is None and other == plan.ALL_CLIENTS
        else:
            is_link = None not in (node, other) and node != other
        if not is_link:
            raise Wrong("a fault of a link names two nodes, node and other, and no role")
    elif other is not None:
        raise Wrong("other is of faults between two nodes")
    elif kind in plan.WHOLE_KINDS:
        if node is not None or "role" in row:
            raise Wrong("it is of the whole cluster and names neither node nor role")
    elif node is not None and "role" in row:
        raise Wrong("it names a node or a role, not both")
    elif node is None and "role" not in row and kind != plan.CLIENTS_CUT:
        raise Wrong(f"it names the affected node: node, or role ({', '.join(ROLES_EVERYWHERE)})")


def _check_clients(row: dict[str, Any], shape: ClusterShape) -> None:
    """Check a fault that names clients: they must be one end of a link to a broker, or the end of all their links."""
    if row["kind"] not in LINK_KINDS:
        raise Wrong(f"{CLIENTS} are an end of faults between two ends: {', '.join(LINK_KINDS)}")
    nodes = [row[key] for key in ("node", "other") if row.get(key, plan.ALL_CLIENTS) != plan.ALL_CLIENTS]
    if any(node not in shape.broker_ids for node in nodes):
        raise Wrong(f"{CLIENTS} have links to brokers only: {', '.join(map(str, sorted(shape.broker_ids)))}")


def _in_lanes(rows: list[dict[str, Any]]) -> Iterator[ScenarioFault]:
    """Assign each fault the first lane (sequence of faults that do not overlap) that is free at its planned time. A
    rolling restart has no known duration, so its lane is not used again."""
    ends: dict[int, float] = {}
    for row in rows:
        evidence = row.pop("evidence", ())
        if "lane" not in row:
            row["lane"] = next(lane for lane in range(len(ends) + 1) if ends.get(lane, 0) <= row["at_ms"])
        fault = Fault(**row)
        end = float("inf") if fault.kind == plan.ROLLING else planned_end_ms(fault)
        ends[fault.lane] = max(ends.get(fault.lane, 0), end)
        yield ScenarioFault(fault=fault, evidence=evidence)


def planned_end_ms(fault: Fault) -> int:
    """Return the time when a fault that begins on time is over and its node has restarted."""
    return fault.at_ms + (fault.duration_ms + fault.back_ms) * (fault.amount if fault.kind == "stumble" else 1)
