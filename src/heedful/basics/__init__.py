"""What every package may use: user errors, atomic files, locks, notices, progress, settings."""
