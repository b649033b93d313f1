"""Sockeye's training with its speed said every so many updates; run by Sockeye's own Python.

python sockeye_worker.py UPDATES [options of sockeye-train]
"""

import sys

import sockeye.constants
from sockeye import train

sockeye.constants.MEASURE_SPEED_EVERY = int(sys.argv.pop(1))
train.main()
