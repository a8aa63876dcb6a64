"""Async: a whole broker: assembly of its parts, request dispatch, identity and lifecycle. `serve` runs a node with any
roles.

May import all other folders of kraft.broker and everything below.
"""
