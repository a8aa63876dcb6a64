"""Async and synchronous: how nodes are started on this machine, and the kraft command."""
