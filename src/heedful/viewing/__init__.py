"""Pictures of what a model attends to and of how it learned, drawn from traces and records."""
