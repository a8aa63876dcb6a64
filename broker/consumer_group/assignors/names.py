"""The assignors by the names that `group.consumer.assignors` and members use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from kraft.broker.consumer_group.assignors.contiguous import assign_ranges
from kraft.broker.consumer_group.assignors.members import Assignor
from kraft.broker.consumer_group.assignors.uniform import assign_uniform

ASSIGNORS: Mapping[str, Assignor] = MappingProxyType({"uniform": assign_uniform, "range": assign_ranges})
"""Name → assignor."""
