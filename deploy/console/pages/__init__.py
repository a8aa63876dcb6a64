"""Async: pages that show the cluster view, or data that only one page requests. Each module has a function
`routes()`."""
