"""What the tasks of single texts have in common."""
