"""Shared by all packages: user errors, atomic files, locks, notices, progress, settings."""
