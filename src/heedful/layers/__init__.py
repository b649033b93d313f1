"""Layers: the building blocks of models."""
