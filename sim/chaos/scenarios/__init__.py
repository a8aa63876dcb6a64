"""Synchronous: scenarios as values, how their files are read, and the files that come with the package."""
