"""Which endpoints are there? One source a file."""
