"""The first four symbols of every vocabulary."""

PAD = 0
UNKNOWN = 1
BEGIN = 2
END = 3
