"""The user's cache folder, and the properties of this machine that its files depend on."""

import os
import platform
from pathlib import Path


def processor() -> str:
    """The processor's model and features: homes may be shared, and ``-march=native`` differs."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else [platform.processor()]
    first = {line.partition(":")[0].strip(): line for line in reversed(lines)}
    kept = [first.get(key, "") for key in ("model name", "flags", "Features")]
    return "\n".join([platform.machine(), *(kept if any(kept) else lines[:1])])


def cache_folder() -> Path:
    """A folder that only this user can write to."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(root).expanduser() / "heedful"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(f"other users can write to {folder}; libraries are not loaded from it")
    return folder
