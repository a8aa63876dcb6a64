"""Async: the admin listener of a node, where probes, Prometheus and people ask how it is, over HTTP.
Imported only by nodes that have `kraft.admin.listener`."""
