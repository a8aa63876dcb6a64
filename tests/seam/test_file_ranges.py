"""File ranges in a connection's output: the same bytes in the same order, over the real network and the simulated
one.
"""

from __future__ import annotations

from kraft.seam import CloseReason, FileRange
from tests.seam.sites import Listening, RealSite, Site, WorldSite
from tests.seam.test_network import pattern

AnySite = RealSite | WorldSite


def test_small_and_large_file_ranges_are_sent_in_order_between_bytes(site: AnySite) -> None:
    async def body(site: Site) -> None:
        data = pattern(3_000_000)
        file = site.server.disk.create(f"{site.folder}/segment")
        file.append(data)
        near, far = await Listening(site).connect()
        far.say(b"head", FileRange(file, 8, 100), b"middle", FileRange(file, 1_000, 2_500_000), b"tail")
        far.say(FileRange(file, 40, 31 * 1024), FileRange(file, 44, 33 * 1024))
        expected = b"head" + data[8:108] + b"middle" + data[1_000:2_501_000] + b"tail"
        expected += data[40 : 40 + 31 * 1024] + data[44 : 44 + 33 * 1024]
        assert await near.wait_heard(len(expected)) == expected
        assert not far.output()

    site.run(body)


def test_many_small_file_ranges_are_sent_with_one_send_call(site: AnySite) -> None:
    async def body(site: Site) -> None:
        data = pattern(400_000)
        file = site.server.disk.create(f"{site.folder}/segment")
        file.append(data)
        near, far = await Listening(site).connect()
        for at in range(0, len(data), 500):
            far.say(FileRange(file, at, 500), b"-")
        heard = await near.wait_heard(len(data) + len(data) // 500)
        assert heard == b"".join(data[at : at + 500] + b"-" for at in range(0, len(data), 500))

    site.run(body)


def test_a_file_range_stays_readable_after_close_and_unlink(site: AnySite) -> None:
    async def body(site: Site) -> None:
        data = pattern(2_000_000)
        path = f"{site.folder}/segment"
        file = site.server.disk.create(path)
        file.append(data)
        near, far = await Listening(site).connect()
        taken = FileRange(file, 0, len(data))
        file.close()
        site.server.disk.unlink(path)
        del file
        far.say(taken)
        del taken
        assert await near.wait_heard(len(data)) == data

    site.run(body)


def test_a_file_range_beyond_the_end_of_its_file_closes_the_connection(site: AnySite) -> None:
    async def body(site: Site) -> None:
        file = site.server.disk.create(f"{site.folder}/segment")
        file.append(bytes(100_000))
        for position, count in ((0, 150_000), (99_990, 20)):
            near, far = await Listening(site).connect()
            far.say(b"length", FileRange(file, position, count))
            assert await far.wait_closed() is CloseReason.RESET
            await near.wait_closed()
            assert len(near.heard) < 6 + count

    site.run(body)


def test_a_file_range_is_sent_while_its_file_grows(site: AnySite) -> None:
    async def body(site: Site) -> None:
        file = site.server.disk.create(f"{site.folder}/segment")
        near, far = await Listening(site).connect()
        expected = b""
        for number in range(50):
            piece = pattern(40_000, number * 10_000)
            position = file.size
            file.append(piece)
            far.say(FileRange(file, position, len(piece)))
            expected += piece
        assert await near.wait_heard(len(expected)) == expected

    site.run(body)
