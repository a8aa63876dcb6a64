"""Async: what every node has, whatever its roles: connections to other nodes, loggers, injected reply faults. May
import everything below it, never kraft.runtime."""
