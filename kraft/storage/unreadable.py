"""UnreadableBatch: a stored batch whose CRC is right and whose records do not parse.

A producer sent it so, and every replica has the same bytes. It is therefore not damage (`StorageCorrupt`): no replica
stops because of it, and fetching it from another replica would not help.
"""

from __future__ import annotations

from kraft.seam import WireError


class UnreadableBatch(Exception):
    """The batch at `offset` cannot be decoded. The message names its file or log, and the reason."""

    def __init__(self, where: str, offset: int, why: WireError) -> None:
        super().__init__(
            f"{where}: the records of the batch at offset {offset} do not parse: {why}. Its producer sent it so. To "
            "continue: have consumers skip it, or delete the records up to it"
        )
        self.offset = offset
