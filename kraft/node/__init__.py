"""Async: services of every node, whatever its roles: connections to other nodes, loggers, injected reply faults. May
import everything below it, never kraft.runtime.
"""
