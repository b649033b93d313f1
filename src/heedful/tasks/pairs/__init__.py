"""What the tasks of pairs of texts have in common."""
