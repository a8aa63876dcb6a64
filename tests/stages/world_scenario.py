"""A small simulated cluster whose nodes send, write and crash. As a program, it prints the trace hash of a seed:

python -m tests.stages.world_scenario SEED
"""

from __future__ import annotations

import sys

import trio

from kraft.seam import Address, Binding, Connection, DialFailed, FileRange, Peer, Seam, Transport
from kraft.sim.world import World
from tests.stages.recorder import Recorder, echo

LISTENER = "PLAINTEXT"
PORT = 9092
NAMES = ("one", "two", "three")


async def serve(seam: Seam) -> None:
    """Store the received bytes in a file, and send them back from that file."""
    seam.disk.make_directory("/data")
    file = seam.disk.create("/data/log")

    def make(transport: Transport) -> Connection:
        connection = Recorder(transport)

        def keep(connection: Recorder) -> None:
            position = file.size
            file.append(connection.heard[-connection.reads[-1] :])
            connection.output().append(FileRange(file, position, connection.reads[-1]))

        connection.on_heard = keep
        return connection

    seam.network.serve(Binding(LISTENER, Address("", PORT)), make)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.sleep_forever)
        while True:
            await seam.clock.sleep_ms(seam.random.below(50))
            await seam.disk.sync(file)


async def talk(seam: Seam, name: str) -> None:
    """Dial one node in a loop, and exchange data with it until each connection ends."""
    while True:
        try:
            peer = Peer(None, LISTENER, Address(name, PORT))
            near = await seam.network.dial(peer, Recorder, timeout_ms=500)
        except DialFailed:
            await seam.clock.sleep_ms(20 + seam.random.below(20))
            continue
        near.on_heard = echo
        near.say(seam.random.uuid().bytes)
        with trio.move_on_after(3):
            await near.wait_closed()


async def main(world: World) -> str:
    seam = world.node("client")
    for name in NAMES:
        world.start(name, serve)
    async with trio.open_nursery() as nursery:
        for name in NAMES:
            nursery.start_soon(talk, seam, name)
        await world.sleep_ms(300)
        world.kill("one")
        world.partition("client", "two")
        await world.sleep_ms(300)
        world.restart("one")
        world.power_off("three")
        world.heal_all()
        await world.sleep_ms(300)
        world.restart("three")
        world.reset_links("client", "one")
        await world.sleep_ms(300)
        nursery.cancel_scope.cancel()
    return world.trace_hash


if __name__ == "__main__":
    print(World(int(sys.argv[1])).run(main))
