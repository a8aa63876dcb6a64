"""A typed interface to toxiproxy-python: the calls that link proxies need, each with its HTTP status checked.

The package keeps the server's address in class attributes of its `APIConsumer`. Each `ToxiproxyApi` has its own
subclass with its own address, so that several servers and threads in one process do not interfere. The package's
higher-level calls are not used where they hide a response: they report only statuses 400, 404 and 409. A listener that
cannot be opened is a 500.
"""

from __future__ import annotations

from typing import Any

import requests
from toxiproxy.api import APIConsumer
from toxiproxy.exceptions import InvalidToxic, NotFound, ProxyExists

from kraft.seam import Address
from kraft.sim.chaos.proxies.errors import ToxiproxyError
from kraft.sim.chaos.proxies.toxics import Toxic

CALL_SECONDS_MAX = 10.0
"""Timeout of a call. A call that changes toxics waits until every connection of the proxy has passed on its current
chunk."""

UPSTREAM, DOWNSTREAM = "upstream", "downstream"
"""Streams of a connection: bytes from the process that dialled, and bytes to it."""


class ToxiproxyApi:
    """The HTTP interface of one server. Every call raises ToxiproxyError if it was not carried out."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._consumer: Any = type("Consumer", (APIConsumer,), {"host": address.host, "port": address.port})

    def version(self) -> str:
        return str(self._call("get", "/version").json()["version"])

    def create_proxy(self, name: str, listen: Address, upstream: Address, *, is_enabled: bool = True) -> None:
        """Create a proxy, which listens at once if it is enabled."""
        body = {"name": name, "listen": str(listen), "upstream": str(upstream), "enabled": is_enabled}
        self._call("post", "/proxies", json=body)

    def delete_proxy(self, name: str) -> None:
        self._call("delete", f"/proxies/{name}")

    def enable_proxy(self, name: str, is_enabled: bool) -> None:
        """Open a proxy's listener; or close its listener and all its connections, so that dials are refused."""
        self._call("post", f"/proxies/{name}", json={"enabled": is_enabled})

    def proxies(self) -> dict[str, dict[str, Any]]:
        """Return name → toxiproxy's description of a proxy ("enabled", "listen", "upstream", "toxics": a list)."""
        found: dict[str, dict[str, Any]] = self._call("get", "/proxies").json()
        return found

    def toxics(self, proxy: str, stream: str) -> dict[str, Toxic]:
        """Return the toxics of a stream by name, in the order of the chain."""
        found = self._call("get", f"/proxies/{proxy}/toxics").json()
        return {
            one["name"].removesuffix(f"@{stream}"): Toxic(one["type"], one["attributes"], toxicity=one["toxicity"])
            for one in found
            if one["stream"] == stream
        }

    def add_toxic(self, proxy: str, stream: str, name: str, toxic: Toxic) -> None:
        """Add a toxic at the end of the chain of a stream."""
        body = {"name": f"{name}@{stream}", "type": toxic.type, "stream": stream, **_body(toxic)}
        self._call("post", f"/proxies/{proxy}/toxics", json=body)

    def update_toxic(self, proxy: str, stream: str, name: str, toxic: Toxic) -> None:
        """Change the attributes and the toxicity of a toxic. This releases the data that the toxic holds back."""
        self._call("post", f"/proxies/{proxy}/toxics/{name}@{stream}", json=_body(toxic))

    def remove_toxic(self, proxy: str, stream: str, name: str) -> None:
        self._call("delete", f"/proxies/{proxy}/toxics/{name}@{stream}")

    def _call(self, method: str, path: str, **arguments: Any) -> Any:
        """Send a request and return the response. `no_proxy` keeps the environment's HTTP proxies away from a server on
        this host."""
        what = f"toxiproxy at {self.address}: {method.upper()} {path}"
        call = getattr(self._consumer, method)
        try:
            response = call(path, timeout=CALL_SECONDS_MAX, proxies={"no_proxy": self.address.host}, **arguments)
        except requests.Timeout as problem:
            raise ToxiproxyError(
                f"{what} was not carried out within {CALL_SECONDS_MAX:g} s: a connection of the proxy cannot pass on "
                "its bytes, as when a paused process reads nothing and its buffers are full; resume it first"
            ) from problem
        except requests.RequestException as problem:
            raise ToxiproxyError(f"{what} failed: {problem}") from problem
        except (ProxyExists, NotFound, InvalidToxic) as problem:
            raise ToxiproxyError(f"{what} was rejected: {problem}") from problem
        if not response.ok:
            raise ToxiproxyError(f"{what} was answered with status {response.status_code}: {response.text.strip()}")
        return response


def _body(toxic: Toxic) -> dict[str, Any]:
    return {"attributes": dict(toxic.attributes), "toxicity": toxic.toxicity}
