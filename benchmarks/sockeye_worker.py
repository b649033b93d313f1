"""Sockeye's training, which logs its speed every UPDATES updates; runs in Sockeye's own Python.

python sockeye_worker.py UPDATES [options of sockeye-train]
"""

import sys

import sockeye.constants
from sockeye import train

sockeye.constants.MEASURE_SPEED_EVERY = int(sys.argv.pop(1))
train.main()
