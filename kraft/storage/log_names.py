"""Names of files and folders of logs, as Kafka writes them.

A partition's folder is `<topic>-<partition>`. A segment's files are named by its base offset in 20 digits.
Source: Kafka's UnifiedLog, LogFileUtils.
"""

from __future__ import annotations

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TXN_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

CLEANED_SUFFIX = ".cleaned"
SWAP_SUFFIX = ".swap"
DELETED_SUFFIX = ".deleted"

DELETE_DIRECTORY_SUFFIX = "-delete"
STRAY_DIRECTORY_SUFFIX = "-stray"
FUTURE_DIRECTORY_SUFFIX = "-future"
DIRECTORY_NAME_MAX = 255

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
METADATA_TOPIC = "__cluster_metadata"


def offset_name(base_offset: int) -> str:
    """Return the 20-digit stem of a segment's files."""
    return f"{base_offset:020d}"


def parse_segment_file(name: str) -> tuple[int, str] | None:
    """Return (base offset, everything after the digits) of a segment's file name, else None.

    `00000000000000000042.index.swap` gives `(42, ".index.swap")`."""
    stem, suffix = name[:20], name[20:]
    if len(stem) != 20 or not (stem.isascii() and stem.isdigit()) or not suffix.startswith("."):
        return None
    return int(stem), suffix


def partition_directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a live partition's folder, else None. Folders with the mark -delete, -stray or
    -future are not live."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not (number.isascii() and number.isdigit()):
        return None
    return topic, int(number)


def marked_directory_name(topic: str, partition: int, unique: str, suffix: str) -> str:
    """Return `<topic>-<partition>.<unique><suffix>`, with the topic shortened so that the whole fits a file name.

    Arguments: `unique` is 32 hexadecimal digits, `suffix` one of the -delete, -stray, -future constants."""
    tail = f"-{partition}.{unique}{suffix}"
    return topic[: DIRECTORY_NAME_MAX - len(tail)] + tail


def marked_directory_suffix(name: str) -> str | None:
    """Return the mark (-delete, -stray or -future) at the end of a folder's name, or None."""
    for suffix in (DELETE_DIRECTORY_SUFFIX, STRAY_DIRECTORY_SUFFIX, FUTURE_DIRECTORY_SUFFIX):
        if name.endswith(suffix) and "." in name:
            return suffix
    return None


def parse_marked_directory(name: str) -> tuple[str, int] | None:
    """Return (topic, partition) of a folder with a mark, else None. If the name was shortened, only the remaining part
    of the topic's name is returned."""
    if marked_directory_suffix(name) is None:
        return None
    return parse_partition_directory(name.rpartition(".")[0])
