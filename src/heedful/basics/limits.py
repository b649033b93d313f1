"""Upper limits of sizes in settings and files.

Real models are far below them. They reject a mistyped or hostile number before memory is
allocated. In addition, the size of a whole model is compared with the machine's memory
(`heedful.runs.model_size`).
"""

MOST_LAYERS = 1_000
MOST_WIDTH = 1 << 18
"""Maximum size of embeddings, hidden states and inner layers; also of the number of heads."""
MOST_POSITIONS = 1 << 20
"""Maximum tokens of a text."""
MOST_SYMBOLS = 1_000_000
"""Maximum size of a vocabulary."""
MOST_BEAM = 1_000
"""Maximum hypotheses of a search for one source."""
MOST_SAMPLES = 10_000
"""Maximum outputs for one source."""
MOST_FACTS = 1 << 16
"""Maximum facts of a story."""
MOST_BATCH_TOKENS = 1 << 24
MOST_THREADS = 1_024
MOST_SHARDS = 4_096
"""Maximum virtual shards of a step."""
LARGEST_NUMBER = 1e100
"""Largest absolute value of a number to be predicted; the squares of larger ones may overflow."""
