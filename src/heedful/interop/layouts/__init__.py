"""Layouts: how the tensors of other libraries map to those of heedful."""
