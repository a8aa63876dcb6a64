"""Synchronous: scenarios as values, the reader of scenario files, and the files that come with the package."""
