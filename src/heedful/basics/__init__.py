"""What every room may use: the user's errors, files written whole, notices, progress, settings."""
