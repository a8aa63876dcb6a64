"""Session: the peer of a connection, one frozen value per connection (and client id), created at accept and passed to
every handler.

Invariant: no handler learns about its peer in any other way, so authorization and quotas see the peer of the actual
connection.
"""

from __future__ import annotations

from dataclasses import dataclass

ANONYMOUS = "User:ANONYMOUS"


@dataclass(frozen=True, slots=True)
class Session:
    """The peer of one connection. `principal` is Kafka's `Type:name`; `client_address` has no port."""

    listener: str
    security_protocol: str
    principal: str
    client_address: str
    client_id: str = ""
