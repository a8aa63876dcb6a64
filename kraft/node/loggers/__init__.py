"""Synchronous: the loggers of this process and their levels. Controllers and brokers answer about them by the same
rules. May import what kraft.node imports."""
