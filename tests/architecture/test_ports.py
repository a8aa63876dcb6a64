"""Parts of a broker get only what they use: a class that assembles many parts is imported only by listed modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import kraft

BROKER = Path(kraft.__file__).parent / "broker"
REGISTERS_METRICS = frozenset({"node/node_metrics.py"})
"""The module that registers the metrics of all parts."""
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
        "groups/assigned_groups",
        "groups/consumer_groups",
        "groups/group_membership",
        "groups/group_offsets",
        "groups/groups_admin",
        "groups/share_group_offsets",
        "groups/share_groups",
        "init_producer_id",
        "list_config_resources",
        "list_offsets",
        "metadata",
        "offset_for_leader_epoch",
        "share_fetch/handle_share_fetch",
        "share_fetch/pending_share_fetch",
        "share_fetch/share_acknowledgements",
        "share_state",
        "transactions",
        "transactions_admin",
        "write_txn_markers",
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
"""Class that assembles many parts → the modules that may import it, even if only for its type."""


def imports_of(name: str) -> Iterator[str]:
    """Yield the modules of the broker that import a class of this name."""
    for path in sorted(BROKER.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
                yield path.relative_to(BROKER).as_posix()


@pytest.mark.parametrize("name", MAY_KNOW)
def test_class_that_assembles_parts_of_a_broker_is_imported_only_by_its_listed_modules(name: str) -> None:
    found = set(imports_of(name))
    assert found - MAY_KNOW[name] == set()
    assert found, "the class has another name now"


def test_modules_listed_as_importers_of_an_assembling_class_still_import_it() -> None:
    unused = {name: allowed - set(imports_of(name)) for name, allowed in MAY_KNOW.items()}
    assert {name: modules for name, modules in unused.items() if modules} == {}


def test_no_part_of_a_broker_takes_a_parameter_named_like_an_assembling_class() -> None:
    """A module could get such a class without importing it, as `Any` or through another module. Therefore no parameter
    has its name."""
    wholes = {"manager", "replica_manager", "broker_node"}
    found = [
        f"{path.relative_to(BROKER).as_posix()}: {node.name}"
        for path in sorted(BROKER.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and wholes & {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
    ]
    assert found == []
