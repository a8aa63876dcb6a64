"""Async: the admin listener of a node: health, metrics and identity over HTTP, for probes, Prometheus and people. May
import kraft.broker.serving and everything below kraft.broker. Imported only by nodes that have
`kraft.admin.listener`."""
