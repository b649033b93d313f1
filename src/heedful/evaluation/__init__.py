"""Evaluation: corpus scores with intervals, significance, breakdowns, alignment error.

Scores take plain lists of strings (or of links) and need no model, so that the output of any system
can be scored.
"""
