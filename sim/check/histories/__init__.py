"""Pure: histories of client requests and their responses, and the checks that judge them."""
