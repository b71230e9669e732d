"""Tessera: a router that knows what a picture costs before it is tokens."""
