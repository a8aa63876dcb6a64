"""Probes: send Identify to a broker's address, and turn the response or failure into a ProbeOutcome.

`kraft.control.brokers.probing` evaluates the outcomes; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from uuid import UUID

from kraft.config import ConfigError, NodeConfig, SecurityProtocol
from kraft.control.brokers.probing import PROBE_TIMEOUT_MS, ProbeOutcome
from kraft.image import BrokerRegistration, Endpoint
from kraft.node.peers import CallOutcome, Failed, Peers
from kraft.seam import Address, Peer
from kraft.wire.rpc.controller_messages import IdentifyRequest, IdentifyResponse

PURPOSE = "identify"

OUTCOMES: Mapping[CallOutcome, ProbeOutcome] = MappingProxyType(
    {
        CallOutcome.REFUSED: ProbeOutcome.REFUSED,
        CallOutcome.CLOSED: ProbeOutcome.CLOSED,
        CallOutcome.TIMED_OUT: ProbeOutcome.SILENT,
        CallOutcome.UNREACHABLE: ProbeOutcome.SILENT,
        CallOutcome.BAD_ANSWER: ProbeOutcome.SILENT,
        CallOutcome.NO_COMMON_VERSION: ProbeOutcome.SILENT,
        CallOutcome.ABANDONED: ProbeOutcome.SILENT,
    }
)
"""Probe outcome for each way in which a request can end without a valid response. A response that does not parse proves
nothing: it may come from a newer release."""


class Prober:
    """Sends probes to brokers over the node's pool of connections."""

    def __init__(
        self,
        config: NodeConfig,
        peers: Peers,
        cluster_id: str,
        *,
        timeout_ms: int = PROBE_TIMEOUT_MS,
        purpose: str = PURPOSE,
    ) -> None:
        self._config = config
        self._peers = peers
        self._cluster_id = cluster_id
        self._timeout_ms = timeout_ms
        self._purpose = purpose

    def endpoint_of(self, broker: BrokerRegistration) -> Endpoint:
        """Return the address at which a broker is probed: its inter-broker listener, or the first one that it
        registered."""
        return self._choose(broker.endpoints)

    def _choose(self, endpoints: Sequence[Endpoint]) -> Endpoint:
        wanted = self._config.inter_broker_listener_name
        return next((endpoint for endpoint in endpoints if endpoint.name == wanted), endpoints[0])

    def problem_with(self, endpoints: Sequence[Endpoint]) -> str | None:
        """Return why an active controller with this configuration could never probe a broker with these endpoints; None
        if it could."""
        for endpoint in endpoints:
            if endpoint.security_protocol not in SecurityProtocol.__members__:
                known = ", ".join(SecurityProtocol.__members__)
                return f"listener {endpoint.name} has the security protocol {endpoint.security_protocol}, not {known}"
        try:
            if endpoints:
                self._tls(self._choose(endpoints))
        except ConfigError as problem:
            return f"the active controller cannot reach its listener: {problem}"
        return None

    def probe(
        self, broker_id: int, incarnation_id: UUID, endpoint: Endpoint, on_outcome: Callable[[ProbeOutcome], None]
    ) -> None:
        """Send a probe; call back once with the outcome, never inside this call."""
        peer = Peer(broker_id, endpoint.name, Address(endpoint.host, endpoint.port), self._tls(endpoint))

        def answered(answer: object) -> None:
            on_outcome(self._outcome(broker_id, incarnation_id, answer))

        self._peers.send(peer, IdentifyRequest(), answered, timeout_ms=self._timeout_ms, purpose=self._purpose)

    def _tls(self, endpoint: Endpoint) -> object | None:
        return self._config.dial_tls(endpoint.name, SecurityProtocol[endpoint.security_protocol])

    def _outcome(self, broker_id: int, incarnation_id: UUID, answer: object) -> ProbeOutcome:
        if isinstance(answer, Failed):
            return OUTCOMES[answer.outcome]
        if not isinstance(answer, IdentifyResponse):
            return ProbeOutcome.OTHER
        is_same = (answer.cluster_id, answer.node_id, answer.incarnation_id) == (
            self._cluster_id,
            broker_id,
            incarnation_id,
        )
        return ProbeOutcome.SAME if is_same else ProbeOutcome.OTHER
