"""UnreadableBatch: a stored batch whose CRC is right and whose records do not parse.

That is how a producer sent it and how every replica has it, so it is not damage (`StorageCorrupt`): no replica ends for
it, and no other replica has it better.
"""

from __future__ import annotations

from kraft.seam import WireError


class UnreadableBatch(Exception):
    """The batch at `offset` cannot be opened. The message names its file or log, and says why."""

    def __init__(self, where: str, offset: int, why: WireError) -> None:
        super().__init__(
            f"{where}: the records of the batch at offset {offset} do not parse: {why}. Its producer sent it so. To go "
            "on: have consumers skip it, or delete the records up to it"
        )
        self.offset = offset
