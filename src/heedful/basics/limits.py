"""The largest sizes that settings and files may ask for.

Real models are far below them. They stop a mistyped or hostile number before anything is allocated;
what a whole model needs is compared with the machine's memory besides (`heedful.runs.model_size`).
"""

MOST_LAYERS = 1_000
MOST_WIDTH = 1 << 18
"""Of embeddings, hidden states and inner layers; also the number of heads."""
MOST_POSITIONS = 1 << 20
"""Tokens of a text."""
MOST_SYMBOLS = 1_000_000
"""Of a vocabulary."""
MOST_BEAM = 1_000
"""Hypotheses of a search for one source."""
MOST_SAMPLES = 10_000
"""Outputs for one source."""
MOST_BATCH_TOKENS = 1 << 24
MOST_THREADS = 1_024
