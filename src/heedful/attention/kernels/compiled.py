"""The additive score's reductions in C (``additive.c``), where there is a compiler.

The file is compiled once for the processor at hand and kept in the user's cache folder. Without a
compiler, a writable cache or single precision, :class:`~.tiles.PlainTiles` does the work.
"""

import ctypes
import functools
import hashlib
import itertools
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from heedful.attention.kernels.tiles import LIMIT, Tiles, fits
from heedful.basics.notices import notice

_SOURCE = Path(__file__).with_name("additive.c")
_PADDING = 16  # units are a multiple of the widest vector's lanes
_FLAGS = ["-O3", "-std=gnu11", "-shared", "-fPIC"]


class _Shape(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("n", "q", "k", "d", "first_key", "last_key")]


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled reductions; None where they cannot be had, which is said once."""
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None or sys.platform == "win32":
        return None
    try:
        return ctypes.CDLL(str(_built(compiler)))
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        notice(
            "additive attention runs without its compiled form: "
            f"{reason.strip().splitlines()[-1] if reason.strip() else compiler}"
        )
        return None


def _built(compiler: str) -> Path:
    version = subprocess.run(
        [compiler, "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    native = _processor()
    made_of = "\n".join([_SOURCE.read_text(), version, native, *_FLAGS])
    name = f"additive-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}.so"
    folder = _cache()
    built = folder / name
    if not built.exists():
        with tempfile.TemporaryDirectory(dir=folder) as beside:
            made = Path(beside) / name
            command = [compiler, *_FLAGS, "-march=native", str(_SOURCE), "-o", str(made), "-lm"]
            subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
            made.replace(built)
    return built


def _processor() -> str:
    """What ``-march=native`` depends on, so that a home shared by machines is no trap."""
    told = Path("/proc/cpuinfo")
    lines = told.read_text().splitlines() if told.exists() else [platform.processor()]
    first = {line.partition(":")[0].strip(): line for line in reversed(lines)}
    kept = [first.get(key, "") for key in ("model name", "flags", "Features")]
    return "\n".join([platform.machine(), *(kept if any(kept) else lines[:1])])


def _cache() -> Path:
    """A folder that only this user writes to."""
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    folder = Path(root).expanduser() / "heedful"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise OSError(f"{folder} can be written to by others; libraries are not loaded from it")
    return folder


@functools.cache
def _workers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="heedful-additive")


class CompiledTiles(Tiles):
    """In C, on as many threads as PyTorch uses: each takes a share of the keys."""

    def __init__(self, library: ctypes.CDLL, a: Tensor, b: Tensor, v: Tensor) -> None:
        super().__init__(a, b, v)
        self.library = library
        self.units = v.numel()
        self.a2, self.b2 = _padded(2.0 * a), _padded(2.0 * b)
        self.padded_v = _padded(v)
        self.ea, self.eb = self.a2.exp(), self.b2.exp()
        limit = LIMIT[torch.float32]
        self.fits_a, self.fits_b = fits(self.a2, limit), fits(self.b2, limit)

    def _prepare(self, rows: slice) -> list[Tensor]:
        """What both reductions begin with."""
        queries = (part[:, rows].contiguous() for part in (self.a2, self.ea, self.fits_a))
        return [*queries, self.b2, self.eb, self.fits_b]

    def _shares(self, rows: slice, keys: slice) -> list[_Shape]:
        n, _, d = self.a2.shape
        queries, count = rows.stop - rows.start, keys.stop - keys.start
        threads = max(1, min(torch.get_num_threads(), count // 8))
        edges = [keys.start + count * i // threads for i in range(threads + 1)]
        return [
            _Shape(n, queries, self.b.shape[1], d, first, last)
            for first, last in itertools.pairwise(edges)
        ]

    def weighted(self, rows: slice, keys: slice) -> Tensor:
        n, k = self.b.shape[:2]
        out = self.a.new_empty(n, rows.stop - rows.start, k)
        given = [*self._prepare(rows), self.padded_v, out]
        shares = self._shares(rows, keys)
        self._run(self.library.heedful_scores, [given] * len(shares), shares)
        return out[:, :, keys]

    def start_gradients(self) -> None:
        super().start_gradients()
        self.padded_db = torch.zeros_like(self.b2)

    def add_gradients(self, rows: slice, keys: slice, g: Tensor) -> None:
        n, k = self.b.shape[:2]
        whole = g
        if g.shape[-1] != k or not g.is_contiguous():
            whole = g.new_empty(n, rows.stop - rows.start, k)
            whole[:, :, keys] = g
        shares = self._shares(rows, keys)
        # The keys' sums are apart by themselves; those of queries and units are one a thread.
        da = self.a2.new_zeros(len(shares), n, rows.stop - rows.start, self.a2.shape[-1])
        dr = self.a2.new_zeros(len(shares), self.a2.shape[-1])
        given = [*self._prepare(rows), whole]
        self._run(
            self.library.heedful_gradients,
            [[*given, da[i], self.padded_db, dr[i]] for i in range(len(shares))],
            shares,
        )
        self.da[:, rows] += da.sum(0)[..., : self.units]
        self.dr += dr.sum(0)[: self.units]

    def collect(self) -> tuple[Tensor, Tensor, Tensor]:
        self.db = self.padded_db[..., : self.units]
        return super().collect()

    @staticmethod
    def _run(function: object, given: list[list[Tensor]], shares: list[_Shape]) -> None:
        calls = [
            (*(ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors), ctypes.byref(share))
            for tensors, share in zip(given, shares, strict=True)
        ]
        assert callable(function)
        if len(calls) == 1:
            function(*calls[0])
            return
        # ctypes lets go of the interpreter while C runs.
        futures = [_workers(len(calls)).submit(function, *call) for call in calls[1:]]
        function(*calls[0])
        for future in futures:
            future.result()


def _padded(numbers: Tensor) -> Tensor:
    return F.pad(numbers, (0, -numbers.shape[-1] % _PADDING)).contiguous()
