"""Scenarios as files: those that come with the package, and those that users write.

Files are read strictly: an unknown key, a value of a wrong type, or an impossible fault is a ScenarioError. It names
the table, the key, the expected value, and the nearest known name. Times in files are seconds; amounts have their unit
in their names. `kraft.sim.chaos.scenarios.scenario` shows a file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kraft.config import ConfigError, broker_key, validate_topic_config
from kraft.sim.chaos.judge.anomaly_words import MEANINGS
from kraft.sim.chaos.scenarios.fault_tables import planned_end_ms, read_faults
from kraft.sim.chaos.scenarios.file_rules import (
    flag,
    names_of,
    nearest,
    number,
    one_of,
    read_table,
    seconds,
    text,
    texts,
    whole,
)
from kraft.sim.chaos.scenarios.scenario import (
    Scenario,
    ScenarioCluster,
    ScenarioError,
    ScenarioExpectation,
    ScenarioFault,
    ScenarioTopic,
    ScenarioWorkload,
)
from kraft.sim.cluster.shape import ClusterShape

FOLDER = Path(__file__).parent
SUFFIX = ".toml"
BUILT_IN = (
    "broker-crash",
    "rolling-restart",
    "controller-crash",
    "quorum-loss",
    "isolate-leader",
    "isolate-controller",
    "one-way-partition",
    "split-brain",
    "lossy-links",
    "flapping-link",
    "clients-cut",
    "toxics",
    "min-isr",
    "unclean-election-off",
    "unclean-election-on",
    "slow-follower",
    "slow-leader",
    "paused-leader",
    "clock-jump",
    "slow-disk",
    "disk-full",
    "disk-lost",
    "rebalance-storm",
    "topic-churn",
    "voter-replacement",
    "everything",
)
"""Built-in scenarios in the order of the documentation."""
DURATION_MS = 20_000
"""Duration of a scenario whose file gives no duration."""
WORK_AFTER_FAULTS_MS = 5_000
"""Minimum time for which clients work after the last fault, if the user chooses the duration (`with_duration`)."""

_TOP = MappingProxyType(
    {
        "title": ("title", text),
        "about": ("about", text),
        "duration_s": ("duration_ms", seconds(1)),
        "core": ("is_core", flag),
        "random_faults": ("random_faults", flag),
    }
)
_CLUSTER = MappingProxyType(
    {
        "controllers": ("controllers", whole(1)),
        "brokers": ("brokers", whole(1)),
        "combined": ("combined", whole(1)),
        "dynamic_voters": ("dynamic_voters", flag),
        "settings": ("settings", texts),
    }
)
_TOPIC = MappingProxyType(
    {
        "partitions": ("partitions", whole(1)),
        "replicas": ("replicas", whole(1)),
        "configs": ("configs", texts),
    }
)
_WORKLOAD = MappingProxyType(
    {
        "producers": ("producers", whole(0)),
        "rate": ("rate", number(0.1)),
        "acks": ("acks", one_of(("all", "1", "0"))),
        "idempotent": ("idempotent", flag),
        "delivery_timeout_s": ("delivery_timeout_ms", seconds(6)),
        "value_bytes": ("value_bytes", whole(0)),
        "readers": ("readers", whole(0)),
        "group_members": ("group_members", whole(0)),
        "group_churn_s": ("group_churn_s", number(0)),
        "topic_churn": ("topic_churn", whole(0)),
    }
)
_EXPECTS = MappingProxyType(
    {
        "allowed": ("allowed", names_of(tuple(MEANINGS))),
        "must_find": ("must_find", names_of(tuple(MEANINGS))),
        "gap_s_max": ("gap_ms_max", seconds(0)),
    }
)
NODES = ("controllers", "brokers", "combined")
"""Keys of [cluster] that define the nodes."""
_TABLES = ("cluster", "topic", "workload", "expects", "fault")


def builtin_scenarios() -> list[Scenario]:
    """Return the scenarios that come with the package, in the order of the documentation."""
    return [read_scenario(name) for name in BUILT_IN]


def read_scenario(name_or_path: str) -> Scenario:
    """Return a scenario by its name, or from a file that ends with .toml. Raises ScenarioError."""
    if name_or_path in BUILT_IN:
        path = FOLDER / f"{name_or_path}{SUFFIX}"
    elif name_or_path.endswith(SUFFIX):
        path = Path(name_or_path)
    else:
        hint = nearest(name_or_path, BUILT_IN) or f"scenarios are {', '.join(BUILT_IN)}"
        raise ScenarioError(
            f"there is no scenario {name_or_path!r}: {hint}; a file of your own is named with its {SUFFIX}"
        )
    try:
        return parse_scenario(path.read_text(encoding="utf-8"), path.stem)
    except OSError as problem:
        raise ScenarioError(f"{path} cannot be read: {problem.strerror}") from problem
    except UnicodeDecodeError as problem:
        raise ScenarioError(f"{path} is not UTF-8 text") from problem


def parse_scenario(source: str, name: str) -> Scenario:
    """Parse the text of a scenario file. Raises ScenarioError with what is wrong, and where."""
    try:
        return _parsed(source, name)
    except ScenarioError as problem:
        raise ScenarioError(f"{name}: {problem}") from None


def _parsed(source: str, name: str, nodes: Mapping[str, int] | None = None) -> Scenario:
    """Parse a file. `nodes`: see with_nodes."""
    try:
        data = tomllib.loads(source)
    except tomllib.TOMLDecodeError as problem:
        raise ScenarioError(f"this is not TOML: {problem}") from problem
    tables = {table: data.pop(table, {}) for table in _TABLES[:-1]}
    if nodes is not None:
        tables["cluster"] = {key: value for key, value in tables["cluster"].items() if key not in NODES} | {**nodes}
    faults = data.pop("fault", [])
    top = read_table("the file", data, _TOP, others=_TABLES)
    cluster = _cluster(read_table("[cluster]", tables["cluster"], _CLUSTER))
    shape = shape_of_scenario(cluster)
    return Scenario(
        name=name,
        **{"title": name, **top},
        cluster=cluster,
        topic=_topic(read_table("[topic]", tables["topic"], _TOPIC), shape),
        workload=_workload(read_table("[workload]", tables["workload"], _WORKLOAD)),
        faults=read_faults(faults, shape, top.get("duration_ms", DURATION_MS)),
        expects=ScenarioExpectation(**read_table("[expects]", tables["expects"], _EXPECTS)),
        text=source,
    )


def shape_of_scenario(cluster: ScenarioCluster) -> ClusterShape:
    """Return the shape of the scenario's cluster."""
    shape = ClusterShape(cluster.controllers, cluster.brokers, cluster.settings, dynamic_voters=cluster.dynamic_voters)
    if cluster.combined:
        nodes = cluster.combined
        shape = replace(shape, controllers=nodes, brokers=nodes, combined=nodes)
    return shape


def _cluster(given: dict[str, Any]) -> ScenarioCluster:
    if "combined" in given and {"controllers", "brokers"} & given.keys():
        raise ScenarioError("[cluster]: a cluster has combined nodes, or controllers and brokers: not both")
    for name, value in given.get("settings", {}).items():
        try:
            broker_key(name).parse(value)
        except ConfigError as problem:
            raise ScenarioError(f"[cluster.settings]: {problem}") from None
    return ScenarioCluster(**given)


def _topic(given: dict[str, Any], shape: ClusterShape) -> ScenarioTopic:
    for name, value in given.get("configs", {}).items():
        try:
            validate_topic_config(name, value)
        except ConfigError as problem:
            raise ScenarioError(f"[topic.configs]: {problem}") from None
    brokers = len(shape.broker_ids)
    topic = ScenarioTopic(**{"replicas": min(ScenarioTopic().replicas, brokers), **given})
    if topic.replicas > brokers:
        raise ScenarioError(f"[topic]: replicas is {topic.replicas}, and the cluster has {brokers} brokers")
    return topic


def _workload(given: dict[str, Any]) -> ScenarioWorkload:
    is_all = given.get("acks", "all") == "all"
    if given.get("idempotent") and not is_all:
        raise ScenarioError('[workload]: an idempotent producer has acks = "all"')
    workload = ScenarioWorkload(**{"idempotent": is_all, **given})
    if workload.group_churn_s and not workload.group_members:
        raise ScenarioError("[workload]: group_churn_s needs group_members, the members that leave and join")
    return workload


def with_nodes(scenario: Scenario, nodes: Mapping[str, int]) -> Scenario:
    """Return the scenario of the same file for other nodes, given by the keys NODES. ScenarioError if its topic or a
    fault does not fit them."""
    try:
        return _parsed(scenario.text, scenario.name, nodes)
    except ScenarioError as problem:
        raise ScenarioError(f"{scenario.name}: {problem}") from None


def with_duration(scenario: Scenario, duration_ms: int) -> Scenario:
    """Return the scenario with another duration. In a longer run the faults repeat with each period of the scenario's
    own duration. A fault is omitted if less than WORK_AFTER_FAULTS_MS would remain after its planned end. ScenarioError
    if it has faults and none remains."""
    if duration_ms <= 0:
        raise ScenarioError(f"a duration is more than 0 s, and not {duration_ms / 1000:g} s")
    period_ms = scenario.duration_ms
    repeated = (_later(one, begin_ms) for begin_ms in range(0, duration_ms, period_ms) for one in scenario.faults)
    is_same = duration_ms == period_ms
    kept = tuple(one for one in repeated if is_same or planned_end_ms(one.fault) + WORK_AFTER_FAULTS_MS <= duration_ms)
    if scenario.faults and not kept:
        least_ms = min(planned_end_ms(one.fault) for one in scenario.faults) + WORK_AFTER_FAULTS_MS
        raise ScenarioError(
            f"{scenario.name} has no fault that fits into {duration_ms / 1000:g} s: it takes {least_ms / 1000:g} s"
        )
    return replace(scenario, duration_ms=duration_ms, faults=kept)


def _later(one: ScenarioFault, by_ms: int) -> ScenarioFault:
    return replace(one, fault=replace(one.fault, at_ms=one.fault.at_ms + by_ms))
