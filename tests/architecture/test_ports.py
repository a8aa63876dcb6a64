"""Parts of a broker get what they use: only what assembles a whole knows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft

BROKER = Path(kraft.__file__).parent / "broker"
REGISTERS_METRICS = frozenset({"node/node_metrics.py"})
"""Registers the metrics of all parts."""
HANDLERS = frozenset(
    f"api/{name}.py"
    for name in (
        "alter_log_dirs",
        "delete_records",
        "describe_cluster",
        "describe_configs",
        "describe_log_dirs",
        "describe_producers",
        "describe_topic_partitions",
        "find_coordinator",
        "group_membership",
        "group_offsets",
        "groups_admin",
        "init_producer_id",
        "list_config_resources",
        "list_offsets",
        "metadata",
        "offset_for_leader_epoch",
    )
)
"""The handlers that use many parts. All others, and Produce and Fetch, get less than the context."""
MAY_KNOW = {
    "ReplicaManager": frozenset({"node/broker.py", "node/broker_node.py"}),
    "Broker": frozenset({"node/broker_node.py", "node/request_parts.py"}) | REGISTERS_METRICS,
    "BrokerNode": frozenset({"node/serve.py"}),
    "Node": REGISTERS_METRICS,
    "HandlerContext": frozenset({"api/table.py", "node/request_parts.py"}) | HANDLERS,
    "HandlerParts": frozenset({"node/request_parts.py"}),
}
"""Class → the modules that may import it, for its type alone or not."""


def imports_of(name: str) -> Iterator[str]:
    """The modules of the broker that import a class of this name."""
    for path in sorted(BROKER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
                yield path.relative_to(BROKER).as_posix()


@pytest.mark.parametrize("name", MAY_KNOW)
def test_a_whole_is_imported_only_where_it_is_assembled(name: str) -> None:
    found = set(imports_of(name))
    assert found - MAY_KNOW[name] == set()
    assert found, "the class has another name now"


def test_the_allowed_importers_of_a_whole_still_import_it() -> None:
    unused = {name: allowed - set(imports_of(name)) for name, allowed in MAY_KNOW.items()}
    assert {name: modules for name, modules in unused.items() if modules} == {}


def test_no_part_takes_a_parameter_of_a_whole_by_another_way() -> None:
    """A module could get a whole without its import, as `Any` or through a module: no parameter has its name."""
    wholes = {"manager", "replica_manager", "broker_node"}
    found = [
        f"{path.relative_to(BROKER).as_posix()}: {node.name}"
        for path in sorted(BROKER.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and wholes & {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
    ]
    assert found == []
