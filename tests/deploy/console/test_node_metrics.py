"""The console scrapes the nodes' /metrics, also if a node dies during its response."""

from __future__ import annotations

import socket
import struct

import trio

from kraft.deploy.console.node_metrics import NodeMetrics
from tests.deploy.console.plain_settings import plain_settings

RESET_ON_CLOSE = struct.pack("ii", 1, 0)


async def _die(stream: trio.SocketStream) -> None:
    """Reset the connection, as the kernel does when the process is killed."""
    await stream.receive_some()
    await stream.send_all(b"HTTP/1.1 200 OK\r\n")
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    stream.socket.close()


def test_a_node_that_dies_during_a_scrape_affects_only_its_own_metrics() -> None:
    async def main() -> None:
        async with trio.open_nursery() as nursery:
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            address = f"127.0.0.1:{listener.socket.getsockname()[1]}"
            nursery.start_soon(trio.serve_listeners, _die, [listener])
            metrics = NodeMetrics(plain_settings("h:1", metrics={7: address}))
            await metrics.scrape(7, address)
            assert metrics.problems[7].startswith(f"http://{address}/metrics: ")
            nursery.cancel_scope.cancel()

    trio.run(main)
