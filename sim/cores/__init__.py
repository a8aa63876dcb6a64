"""Synchronous: cores alone on a heap of events: no trio, no bytes, no files, so that many thousands of schedules can be
tried. May import kraft.raft, kraft.wire and kraft.seam."""
