"""Synchronous: the clusters that a run breaks: our own nodes behind proxies or in namespaces, and one that the user
brings."""
