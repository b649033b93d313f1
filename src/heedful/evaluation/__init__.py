"""Evaluation: corpus scores with intervals, significance tests, breakdowns, alignment error.

Scores take plain lists of strings (or of links) and need no model, so that you can score the
output of any system.
"""
