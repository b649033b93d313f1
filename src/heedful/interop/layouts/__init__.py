"""Layouts: which tensor of another library is which of ours, and how each is rearranged."""
