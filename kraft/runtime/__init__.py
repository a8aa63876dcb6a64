"""Async: the real seam on trio: epoll driver, TLS, files and threads, clocks. May import kraft.seam and kraft.wire."""
