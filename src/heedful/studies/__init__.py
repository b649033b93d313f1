"""Studies of what attention computes: ``heedful study NAME``, one module per study.

A module of this package with a variable ``STUDY`` is a study; its file name is the study's name,
with underscores for hyphens. Other modules are shared by studies.
"""
