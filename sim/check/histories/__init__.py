"""Pure: histories of client requests and their responses, and the checks of these histories."""
