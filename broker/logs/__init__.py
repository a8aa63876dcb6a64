"""Async: background work on a broker's logs: opening, syncing, retention, removal, moves, damage. No request handler
does this work.

May import kraft.broker.partition and below.
"""
