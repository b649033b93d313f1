"""Layers: the blocks that models are made of."""
