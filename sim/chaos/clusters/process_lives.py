"""ProcessLives: which nodes run, and how often each was started, derived from periodic samples of their processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kraft.deploy.launch.processes import ProcessIdentity


class ProcessLives:
    """Receives the process of each node at every sample. A restart between two samples is noticed too, because the
    identity of the process changes."""

    def __init__(self) -> None:
        self._last: dict[int, ProcessIdentity] = {}
        self._starts: Counter[int] = Counter()

    def running(self, identities: Mapping[int, ProcessIdentity | None]) -> tuple[int, ...]:
        """Return the nodes whose process runs and is not frozen; count each new process."""
        for node, identity in identities.items():
            if identity is not None and self._last.get(node) != identity:
                self._last[node] = identity
                self._starts[node] += 1
        return tuple(node for node, one in identities.items() if one and one.is_alive and not one.is_stopped)

    def facts(self) -> dict[str, float]:
        """Return "starts NODE": how many processes of the node were seen."""
        return {f"starts {node}": float(count) for node, count in self._starts.items()}
