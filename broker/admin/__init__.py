"""Async: the admin listener of a node, which serves health, metrics and identity over HTTP to probes, Prometheus and
people.

May import kraft.broker.serving and everything below kraft.broker. Imported only by nodes that have
`kraft.admin.listener`.
"""
