"""Synchronous: the loggers of this process, their levels (`levels`), and what a controller answers about them
(`answers`). Brokers answer by the same rules. May import what kraft.node imports."""
