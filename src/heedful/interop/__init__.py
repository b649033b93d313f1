"""Runs from and for other libraries: the Hugging Face layout."""
