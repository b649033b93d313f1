"""Shared by the tasks of single texts."""
