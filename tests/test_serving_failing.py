"""What fails in the engine, and what is given up: nobody else waits for it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from typing import Any

import httpx
import pytest

from heedful.basics.cancellation import CancelledWorkError, cancellable, check_cancelled
from heedful.basics.native import NativeError
from heedful.decoding import SearchOptions
from heedful.inference import Translator
from heedful.serving import Limits, Served, make_application
from heedful.serving.engine import Engine, QueueFullError
from heedful.serving.jobs import EngineFailedError, TooLongError
from serving_help import Held, running, serving, translator
from test_native import PANIC, panics
from test_serving_limits import later, until, waiting

ALONE: dict[str, dict[str, Any]] = {
    "/api/alternatives": {"text": "the cat.", "prefix": ""},
    "/api/translate": {"text": "the cat.", "prefix": "a"},
    "/api/trace": {"source": "the cat."},
    "/api/attention": {"source": "the cat.", "map": 0, "gradients": True},
    "/api/architecture": {"source": "the cat."},
    "/api/lens": {"source": "the cat."},
    "/api/removal": {
        "source": "the cat.",
        "heads": [{"module": "encoder.0.self_attention", "head": 0}],
    },
    "/api/equation": {
        "source": "the cat.",
        "module": "encoder.0.self_attention",
        "head": 0,
        "row": 0,
    },
    "/api/faithfulness": {"source": "the cat."},
}


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine(gather=0.0)
    yield made
    made.close()


def long_winded() -> Translator:
    """Its translations have 300 tokens, so that no search ends before."""
    return translator(max_length=400, options=SearchOptions(beam=2, forced_length=300))


def test_a_panic_is_its_requests_alone(engine: Engine) -> None:
    model = translator()
    failing: list[Callable[[], Any]] = [
        lambda: engine.run(lambda: panics(PANIC)),
        lambda: engine.translate(model, ["the cat."], on_part=lambda *_: panics(PANIC)),  # type: ignore[arg-type]
    ]
    for fails in failing:
        future, good = fails(), engine.translate(model, ["a dog."])
        with pytest.raises(NativeError) as error:
            future.result(20)
        assert "Plan" not in str(error.value)
        assert good.result(20)
    assert engine.waiting == 0


def test_a_thread_that_dies_is_replaced() -> None:
    """A panic where no request is at fault: where a slice's figures are told."""
    died = threading.Event()

    def dies(items: int, tokens: int, seconds: float) -> None:
        if not died.is_set():
            died.set()
            panics(PANIC)

    engine = Engine(gather=0.0, observe=dies)
    try:
        thread = engine._thread
        first = engine.translate(translator(), ["a dog."])
        works = [engine.translate(translator(), ["a dog."]) for _ in range(3)]
        assert first.result(20)
        until(lambda: engine._thread is not thread)
        assert all(work.result(20) for work in works)
        assert engine.run(lambda: 5).result(20) == 5
        assert died.is_set()
        assert engine.alive
    finally:
        engine.close()


def test_whose_work_is_lost_with_the_thread_is_told_at_once() -> None:
    """The thread dies while an answer is put together that others' items were searched with."""
    model, died = translator(), threading.Event()

    class Dies(BaseException):
        pass

    engine = Engine(gather=0.2)
    engine._scheduler.take_items = _dying(engine._scheduler.take_items, died, Dies)  # type: ignore[method-assign]
    try:
        lost = engine.translate(model, ["the cat."])
        later_one = engine.run(lambda: 5)
        assert later_one.result(20) == 5
        with pytest.raises(EngineFailedError):
            lost.result(20)
        assert engine.translate(model, ["the cat."]).result(20)
    finally:
        engine.close()


def _dying(take: Any, died: threading.Event, error: type[BaseException]) -> Any:
    def taken(*given: Any, **named: Any) -> Any:
        found = take(*given, **named)
        if found and not died.is_set():
            died.set()
            raise error
        return found

    return taken


def test_a_server_translates_what_its_library_panics_at() -> None:
    with serving(Served("one", translator(), "en", "de")) as client:
        for text in (PANIC, "Plan B\u3000.", "Plan B\u2028.", f"It is. {PANIC} So."):
            given = {"q": text, "source": "en", "target": "de"}
            assert client.post("/translate", json=given).status_code == 200
            for path in ("/api/translate", "/api/translate/stream"):
                assert client.post(path, json={"text": text}).status_code == 200
        assert client.get("/health").json() == {"status": "ok"}


def test_a_server_answers_although_its_engines_thread_dies() -> None:
    application = make_application(
        [Served("one", translator(), "en", "de")], limits=Limits(gather_ms=100)
    )
    turns = application.state.engine._scheduler
    turns.take_items = _dying(turns.take_items, threading.Event(), SystemExit)
    given = {"q": "the cat.", "source": "en", "target": "de"}
    with running(application) as address, httpx.Client(base_url=address, timeout=20) as client:
        answers = [later(lambda: client.post("/translate", json=given)) for _ in range(3)]
        found = [one.result(20) for one in answers]
        assert {one.status_code for one in found} <= {200, 503}
        lost = next(one for one in found if one.status_code == 503)
        assert lost.json() == {"error": "the engine failed and was restarted; try again"}
        until(lambda: client.get("/health").status_code == 200)
        assert client.post("/translate", json=given).status_code == 200


def test_work_ends_where_it_is_asked_for_when_nobody_wants_it() -> None:
    check_cancelled()
    wanted = [True, True, False]
    with cancellable(lambda: wanted.pop(0)):
        check_cancelled()
        check_cancelled()
        with pytest.raises(CancelledWorkError):
            check_cancelled()
    assert wanted == []
    check_cancelled()


@pytest.mark.parametrize("path", ALONE)
def test_a_client_that_leaves_holds_up_nobody(path: str) -> None:
    model = long_winded()
    steps = Held(model)
    other = translator(seed=2)
    served = [Served("one", model, "en", "de"), Served("two", other, "en", "fr")]
    with serving(*served) as client:
        for seconds in (0.25, 1, 4):  # on a busy machine, a client may leave before its turn
            with pytest.raises(httpx.ReadTimeout):
                client.post(path, json={**ALONE[path], "model": "one"}, timeout=seconds)
            if steps.began.is_set():
                break
        assert steps.began.is_set()
        given = {"q": "the cat.", "source": "en", "target": "fr"}
        second = later(lambda: client.post("/translate", json=given))
        until(lambda: waiting(client) == 1)  # the first has left
        steps.more.set()
        assert second.result(20).status_code == 200
        assert steps.count < 10


def test_what_is_too_late_is_given_up_while_it_is_done() -> None:
    model = long_winded()
    steps = Held(model)
    application = make_application([Served("one", model, "en", "de")], limits=Limits(timeout=0.5))
    with running(application) as address:
        answer = httpx.post(f"{address}/api/alternatives", json={"text": "the cat."})
        assert answer.status_code == 504
        steps.more.set()
        assert application.state.engine.run(lambda: 5).result(20) == 5
        assert steps.count < 10


def test_work_that_goes_alone_ends_when_others_wait_for_too_long() -> None:
    go_on, ended = threading.Event(), threading.Event()

    def endless() -> None:
        try:
            while not go_on.wait(0.001):
                check_cancelled()
        finally:
            ended.set()

    engine = Engine(job_time=0.05)
    try:
        alone = engine.run(endless)
        assert not ended.wait(0.3)  # nobody waits
        assert engine.run(lambda: 5).result(20) == 5
        with pytest.raises(TooLongError, match=r"stopped after 0\.05 seconds because other"):
            alone.result(20)
    finally:
        go_on.set()
        engine.close()


def test_two_clients_take_scheduler(engine: Engine) -> None:
    model, order, go_on = translator(), list[str](), threading.Event()
    engine.run(lambda: go_on.wait(20))
    jobs = [engine.run(lambda: order.append("first"), "first") for _ in range(4)]
    jobs += [engine.run(lambda: order.append("second"), "second") for _ in range(2)]
    texts = [
        engine.translate(one, ["the cat."], on_part=lambda *_: order.append("text"))
        for one in (model, translator(seed=2))
    ]
    go_on.set()
    wait([*jobs, *texts], 20)
    assert order == ["text", "first", "text", "second", "first", "second", "first", "first"]


def test_retry_after_is_when_there_is_room() -> None:
    """One is refused while ten wait: room for it is there when one has finished, not all ten."""
    go_on = threading.Event()
    engine = Engine(queue=10)
    try:
        engine._update_pace(8.0 * 5)  # about eight seconds a request
        pace = engine._pace
        held = [engine.run(lambda: go_on.wait(20)) for _ in range(10)]
        for count in range(1, 4):
            with pytest.raises(QueueFullError) as refused:
                engine.run(lambda: 5)
            assert pace * count <= refused.value.retry_after < pace * count + 1
        go_on.set()
        wait(held, 20)
        until(lambda: engine.waiting == 0)
        assert engine._refused == 0
    finally:
        engine.close()
