"""Output streams that drop the output that the system does not accept."""

from __future__ import annotations

import errno
import io

import pytest
import structlog

from kraft.deploy.launch import logs
from kraft.deploy.launch.streams import lossy


class Full(io.StringIO):
    """A file on a disk that is temporarily full."""

    has_room = False

    def write(self, text: str) -> int:
        if not self.has_room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


def test_a_lossy_stream_drops_writes_to_a_full_disk_and_resumes_later() -> None:
    file = Full()
    stream = lossy(file)
    print("lost", file=stream, flush=True)
    file.has_room = True
    print("kept", file=stream, flush=True)
    assert file.getvalue() == "kept\n"
    assert not stream.isatty()


@pytest.mark.parametrize("error", [errno.EPIPE, errno.ENOSPC, errno.EIO])
def test_a_log_line_that_cannot_be_written_raises_no_error(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    class Gone(io.StringIO):
        def flush(self) -> None:
            raise OSError(error, "gone")

    before = structlog.get_config()
    monkeypatch.setattr("sys.stderr", Gone())
    try:
        logs.configure_logs("info", node_id=1)
        structlog.get_logger("kraft.test.streams").info("anything")
    finally:
        structlog.configure(**before)
        structlog.contextvars.clear_contextvars()
