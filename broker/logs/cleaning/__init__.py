"""Async: compaction in a running broker: choosing the next log to clean, and one round over that log.

May import the same folders as kraft.broker.logs.
"""
