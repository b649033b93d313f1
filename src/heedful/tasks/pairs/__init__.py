"""Shared by the tasks of pairs of texts."""
