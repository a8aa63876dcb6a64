"""Async: pages over what the cluster view knows, and what only one page asks for. Each module has `routes()`."""
