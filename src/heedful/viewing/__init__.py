"""Figures and views of traces (attention weights) and of training records."""
