"""What the server of forks imports (``command_help``), without a garbage collection in between.

Each of them would take longer than the one before it. What is imported here is left out of those
of the forks, too.
"""

import gc
import importlib
import pkgutil

import heedful

gc.disable()
for _one in pkgutil.walk_packages(heedful.__path__, "heedful."):
    if "__main__" not in _one.name:
        importlib.import_module(_one.name)
# PyTorch imports these when it first builds a model without data, and with FSDP2; heedful imports
# the last one for some figures.
for _name in ("torch._dynamo", "torch._refs", "torch.distributed.fsdp", "sklearn.metrics"):
    importlib.import_module(_name)
gc.collect()
gc.freeze()
gc.enable()
