"""Synchronous: the generated pages of docs/, and the check that every link in the documentation resolves."""
