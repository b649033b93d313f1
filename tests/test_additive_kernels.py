"""The fast kernels of the additive score against the plain formula."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from heedful.attention import Attention, attend, masks, use_kernel, watch
from heedful.attention.scores import Additive, Concat, Score
from heedful.kernels import additive_compiled as compiled
from heedful.kernels import additive_rows as rows
from heedful.kernels.additive import additive_scores, plain_scores
from heedful.kernels.additive_selection import Kernel
from heedful.kernels.additive_tiles import LIMIT, PlainTiles

HAS_COMPILER = compiled.library() is not None
KERNELS = [
    "tiles",
    pytest.param(
        "compiled",
        marks=pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler here"),
    ),
]


def inputs(dtype: torch.dtype, spread: float = 1.0) -> tuple[Additive, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    score = Additive(6, 7, 37).to(dtype)
    query = torch.randn(2, 3, 33, 6, dtype=dtype).mul_(spread).requires_grad_()
    key = torch.randn(2, 1, 45, 7, dtype=dtype).mul_(spread).requires_grad_()
    value = torch.randn(2, 3, 45, 5, dtype=dtype, requires_grad=True)
    return score, query, key, value


def results(call: Callable[[], Tensor], wanted: list[Tensor]) -> list[Tensor]:
    out = call()
    weights = torch.linspace(-1, 1, out.shape[-1], dtype=out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), wanted)]


def far(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference, relative to the largest value of each tensor."""
    return max(
        float((x.double() - y.double()).abs().max() / y.double().abs().max().clamp(min=1e-30))
        for x, y in zip(map(Tensor.detach, found), map(Tensor.detach, expected), strict=True)
    )


MASKS = {
    "nothing": None,
    "causal and padded": masks.causal() & masks.padding(torch.tensor([20, 45])),
    "window": masks.window(3),
    "no key at all": masks.padding(torch.tensor([0, 9])),
    "dense": torch.rand(2, 1, 33, 45, generator=torch.Generator().manual_seed(3)) > 0.5,
    "one row for all": torch.arange(45) % 3 > 0,
}


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("concat", [False, True])
def test_context_and_gradients_match_the_formula(
    kernel: Kernel, name: str, concat: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "_BLOCK", 500)  # several blocks of rows
    single = kernel == "compiled"
    score: Score
    score, query, key, value = inputs(torch.float32 if single else torch.float64)
    if concat:
        score = Concat(6, 7, 37).to(query.dtype)
    wanted = [query, key, value, *score.parameters()]

    def call() -> Tensor:
        return attend(query, key, value, score=score, mask=MASKS[name])

    with use_kernel("plain"):
        expected = results(call, wanted)
    with use_kernel(kernel):
        found = results(call, wanted)
    assert all(part.isfinite().all() for part in found)
    assert far(found, expected) < (3e-5 if single else 1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_scores_match_the_formula(kernel: Kernel) -> None:
    """Scores are needed for normalizers other than softmax, and for watching."""
    single = kernel == "compiled"
    dtype = torch.float32 if single else torch.float64
    torch.manual_seed(2)
    parts = [torch.randn(*n, dtype=dtype, requires_grad=True) for n in ((3, 1, 70, 90), (50, 90))]
    parts.append(torch.randn(90, dtype=dtype, requires_grad=True))
    expected = results(lambda: plain_scores(*parts), parts)
    with use_kernel(kernel):
        found = results(lambda: additive_scores(*parts), parts)
    assert far(found, expected) < (3e-5 if single else 1e-12)


def test_gradients_match_finite_differences() -> None:
    score, query, key, value = inputs(torch.float64)
    small = [part[:1, :1, :4].detach().requires_grad_() for part in (query, key, value)]
    with use_kernel("tiles"):
        assert torch.autograd.gradcheck(
            lambda q, k, v, w: attend(
                score.project_query(q),
                score.project_key(k),
                v,
                score=_Vector(w),
                mask=masks.causal(),
            ),
            (*small, score.v),
        )


class _Vector(Additive):
    """The additive score of what is projected already, with a given v."""

    def __init__(self, v: Tensor) -> None:
        super().__init__(1, 1, v.numel(), vector=False)
        self.v = v

    def project_query(self, query: Tensor) -> Tensor:
        return query

    def project_key(self, key: Tensor) -> Tensor:
        return key


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("units", [16, 37, 64])
@pytest.mark.parametrize("nothing", [0, 3, "all"])
def test_a_vector_with_zeros_and_rows_with_large_values(
    kernel: Kernel, units: int, nothing: int | str
) -> None:
    """Units with v = 0, and rows whose exponentials overflow or whose products do."""
    torch.manual_seed(2)
    query, key = torch.randn(2, 30, units), torch.randn(2, 50, units)
    for row, size in enumerate((8.0, 12.0, 25.0, 60.0, -12.0, -60.0)):
        query[:, row] += size
        key[:, 8 * row] += size
    v = torch.randn(units)
    v[: units if nothing == "all" else nothing] = 0.0
    v[4] *= 1e-20
    with use_kernel(kernel):
        found = additive_scores(query, key, v)
    expected = plain_scores(query.double(), key.double(), v.double())
    assert far([found], [expected]) < 1e-6


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("spread", [1e-4, 1.0, 30.0, 200.0, 1e4])
def test_all_magnitudes_are_as_accurate_as_the_formula_in_float32(
    kernel: Kernel, spread: float
) -> None:
    """Includes values whose exponentials overflow, for which a tile uses the formula."""
    torch.manual_seed(4)
    a, b = torch.randn(1, 64, 48) * spread, torch.randn(1, 64, 48) * spread
    v = torch.randn(48)
    g = torch.randn(1, 64, 64)
    exact = [part.double().requires_grad_() for part in (a, b, v)]
    expected = plain_scores(*exact)
    (expected * g.double()).sum().backward()
    single = [part.clone().requires_grad_() for part in (a, b, v)]
    with use_kernel(kernel):
        found = additive_scores(*single)
        (found * g).sum().backward()
    formula = (plain_scores(a, b, v).double() - expected).abs().max()
    error = (found.double() - expected).abs().max()
    assert error <= 2 * formula + 1e-7 * v.abs().sum()
    for ours, theirs in zip(single, exact, strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert ours.grad.isfinite().all()
        largest = theirs.grad.abs().max().clamp(min=1.0)
        assert (ours.grad.double() - theirs.grad).abs().max() <= 5e-5 * largest


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    n=st.integers(1, 3),
    q=st.integers(1, 9),
    k=st.integers(1, 23),
    d=st.integers(1, 40),
    large=st.sets(st.integers(0, 8), max_size=3),
)
@settings(max_examples=25, deadline=None)
def test_any_shape_and_rows_out_of_range(
    kernel: Kernel, n: int, q: int, k: int, d: int, large: set[int]
) -> None:
    torch.manual_seed(n * 1000 + q * 100 + k)
    a, b, v = torch.randn(n, q, d), torch.randn(n, k, d), torch.randn(d)
    for row in large:
        a[:, row % q] += 100.0
        b[:, row % k] -= 90.0
    exact = plain_scores(a.double(), b.double(), v.double())
    with use_kernel(kernel):
        found = additive_scores(a, b, v)
    torch.testing.assert_close(found.double(), exact, rtol=0, atol=1e-6 * float(v.abs().sum() + 1))


@pytest.mark.parametrize("kernel", ["plain", *KERNELS])
@pytest.mark.parametrize(("n", "q", "k"), [(2, 3, 0), (0, 3, 4), (2, 0, 4)])
def test_empty_inputs_and_rows_without_keys_give_zeros(
    kernel: Kernel, n: int, q: int, k: int
) -> None:
    query, key = torch.randn(n, q, 8, requires_grad=True), torch.randn(n, k, 8)
    mask = masks.causal() & masks.padding(torch.zeros(n, dtype=torch.long))
    with use_kernel(kernel):
        for allowed in (None, mask):
            context = attend(query, key, key, score=Additive(8, 8, 8), mask=allowed)
            assert context.shape == (n, q, 8)
            if k == 0 or allowed is not None:
                assert context.eq(0).all()
            context.sum().backward()


def test_nan_gives_nan() -> None:
    a, b, v = torch.zeros(1, 3, 4), torch.zeros(1, 5, 4), torch.ones(4)
    a[0, 1, 2] = float("nan")
    for kernel in ("tiles", "compiled") if HAS_COMPILER else ("tiles",):
        with use_kernel(kernel):
            found = additive_scores(a, b, v)
        assert found[0, 1].isnan().all()
        assert found[0, [0, 2]].isfinite().all()


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no C compiler here")
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_the_keys(threads: int) -> None:
    torch.manual_seed(5)
    a, b, v = torch.randn(2, 17, 24), torch.randn(2, 41, 24), torch.randn(24)
    exact = PlainTiles(a.double(), b.double(), v.double())
    some_rows, keys = slice(2, 15), slice(3, 39)
    g = torch.randn(2, 13, 36)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        library = compiled.library()
        assert library is not None
        tiles = compiled.CompiledTiles(library, a, b, v)
        found = [tiles.scores(some_rows, keys)]
        for some in (tiles, exact):
            some.start_gradients()
        tiles.add_gradients(some_rows, keys, g)
        found += tiles.collect()
    finally:
        torch.set_num_threads(before)
    exact.add_gradients(some_rows, keys, g.double())
    assert far(found, [exact.scores(some_rows, keys), *exact.collect()]) < 1e-5


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype: torch.dtype) -> None:
    score, query, key, value = inputs(torch.float64)
    half = [part.detach().to(dtype) for part in (query, key, value)]
    exact = attend(*(part.double() for part in half), score=score.to(dtype).double())
    with use_kernel("tiles"):
        found = attend(*half, score=score.to(dtype))
    assert found.dtype == dtype
    # The projections round to the type, and so does the result.
    assert far([found], [exact]) < 8 * torch.finfo(dtype).eps


def test_exponentials_are_float32_under_autocast() -> None:
    score, query, key, value = inputs(torch.float32, spread=4.0)
    exact = attend(query, key, value, score=score)
    with torch.autocast("cpu", torch.bfloat16), use_kernel("tiles"):
        found = attend(query, key, value, score=score)
    assert far([found.detach()], [exact.detach()]) < 0.05


@pytest.mark.parametrize("kernel", ["plain", *KERNELS])
def test_dropout_is_the_same_forward_and_backward(kernel: Kernel) -> None:
    """With values of one, the context is the kept fraction; its gradient shows the kept weights."""
    score, query, key, _ = inputs(torch.float32)
    value = torch.ones(2, 3, 45, 1, requires_grad=True)
    torch.manual_seed(7)
    with use_kernel(kernel):
        context = attend(query, key, value, score=score, dropout=0.5)
    kept = context.sum((0, 1, 2))
    (by_value,) = torch.autograd.grad(context.sum(), value)
    torch.testing.assert_close(by_value.sum(), kept[0])
    assert abs(float(context.detach().mean()) - 1.0) < 0.1
    assert float(context.detach().std()) > 0.02
    torch.manual_seed(7)
    with use_kernel(kernel):
        torch.testing.assert_close(attend(query, key, value, score=score, dropout=0.5), context)


def test_a_long_causal_mask_is_never_stored_as_a_whole() -> None:
    asked: list[int] = []

    class Counted(type(masks.causal())):  # type: ignore[misc]
        def rule(self, grid: masks.Grid) -> Tensor:
            asked.append(grid.query.shape[0] * grid.key.shape[0])
            allowed: Tensor = super().rule(grid)
            return allowed

    x = torch.randn(3000, 8)
    attend(x, x, x, score=Additive(8, 8, 4), mask=Counted())
    assert len(asked) > 1
    assert max(asked) <= rows._BLOCK
    assert sum(asked) == 3000 * 3000


def test_torch_compile_without_graph_breaks_or_recompilation_for_lengths() -> None:
    torch._dynamo.reset()
    attention = Attention(Additive(6, 7, 16))
    fast = torch.compile(attention, fullgraph=True, backend="aot_eager", dynamic=True)
    compiled_before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for length in (40, 41, 57, 90, 33):
        query = torch.randn(2, length, 6, requires_grad=True)
        key, value = torch.randn(2, length + 3, 7), torch.randn(2, length + 3, 5)
        mask = masks.causal() & masks.padding(torch.tensor([length, length + 3]))
        wanted = [query, attention.score.v]
        found = results(functools.partial(fast, query, key, value, mask), wanted)
        with use_kernel("plain"):
            expected = results(functools.partial(attention, query, key, value, mask), wanted)
        assert far(found, expected) < 1e-4
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - compiled_before <= 2


def test_watching_shows_the_weights_of_the_fast_path() -> None:
    score, query, key, value = inputs(torch.float32)
    attention = Attention(score)
    plainly = attention(query[:, 0], key[:, 0], value[:, 0])
    with watch(attention) as seen:
        watched = attention(query[:, 0], key[:, 0], value[:, 0])
    torch.testing.assert_close(watched, plainly, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(seen[""][0][:, 0] @ value[:, 0], plainly, rtol=1e-5, atol=1e-6)


def test_triton_kernel_in_its_interpreter() -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    code = """
import torch
from heedful.kernels.additive_tiles import PlainTiles
from heedful.kernels.additive_triton import TritonTiles
torch.manual_seed(0)
a, b, v = torch.randn(2, 20, 40), torch.randn(2, 50, 40), torch.randn(40)
a[0, 3, 5], b[1, 2, 3] = 60, -200
ours, exact = TritonTiles(a, b, v), PlainTiles(a.double(), b.double(), v.double())
for rows, keys in ((slice(0, 20), slice(0, 50)), (slice(3, 19), slice(7, 40))):
    g = torch.randn(2, rows.stop - rows.start, keys.stop - keys.start)
    found, expected = [ours.scores(rows, keys)], [exact.scores(rows, keys)]
    ours.start_gradients(), exact.start_gradients()
    ours.add_gradients(rows, keys, g), exact.add_gradients(rows, keys, g.double())
    for x, y in zip([*found, *ours.collect()], [*expected, *exact.collect()]):
        assert (x - y).abs().max() < 1e-5 * max(1, y.abs().max())
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_an_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="kernel must be one of"), use_kernel("fast"):  # type: ignore[arg-type]
        pass
    x = torch.randn(1, 9, 4, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="compiled kernel cannot run here"):  # noqa: SIM117
        with use_kernel("compiled"):
            attend(x, x, x, score=Additive(4, 4, 4).double())


def test_limits_match_the_dtypes() -> None:
    for dtype, limit in LIMIT.items():
        most = torch.tensor(limit, dtype=dtype)
        assert most.exp().isfinite()
        assert (-most).exp() > torch.finfo(dtype).tiny


def test_it_runs_without_a_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a failing compiler, or a cache that others can write to, a notice has the reason."""
    find = compiled.library.__wrapped__
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "none")
    assert find() is None
    assert capsys.readouterr().err == ""
    failing = tmp_path / "cc"
    failing.write_text("#!/bin/sh\necho 'no such processor' >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CC", str(failing))
    assert find() is None
    assert "no such processor" in capsys.readouterr().err
    failing.write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "heedful").mkdir(exist_ok=True)
    (tmp_path / "heedful").chmod(0o777)
    assert find() is None
    assert "other users can write to" in capsys.readouterr().err
    monkeypatch.setattr(compiled, "library", lambda: None)
    x = torch.randn(100, 64)
    assert attend(x, x, x, score=Additive(64, 64, 64)).shape == (100, 64)
