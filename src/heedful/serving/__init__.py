"""The HTTP API and the local page."""
