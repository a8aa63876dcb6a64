"""Async: a whole broker: its parts assembled, request dispatch, identity and lifecycle. `serve` runs a node of any
roles. May import all other rooms of kraft.broker and everything below.
"""
