"""How good an output is: corpus scores with intervals, significance, breakdowns, alignment error.

Everything here takes plain lists of strings (or of links) and knows nothing of models, so that the
output of any system can be scored.
"""
