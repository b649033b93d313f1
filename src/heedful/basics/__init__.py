"""What every room may use: the user's errors, whole files, locks, notices, progress, settings."""
