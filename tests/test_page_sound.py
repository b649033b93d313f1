"""The page with sounds: a form whose field is a sound, the microphone, and weights over a sound."""

import base64
import io
import itertools
import json
import re
import wave
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heedful.inference import AttentionMap, Axis, Media, Trace, make_trace
from heedful.serving import make_application
from heedful.viewing.page import export_html
from page_help import CHROMIUM, needs_browser, opened, pixels, sound_axis
from serving_help import running

pytestmark = needs_browser()
FIELD = ".heed-sound-field"
SVG = "{http://www.w3.org/2000/svg}"
FAKE = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
"""A microphone that beeps every second, and that every page may use."""
SPY = """
window.played = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (...given) {
  if (this.context instanceof AudioContext) window.played.push([...given, this.buffer.duration]);
  return start.apply(this, given);
};
"""
"""Records what is played: when, from, how long, and the length of the sound."""
BODY = 2 << 20
"""The largest request."""
DROP = """([name, type, data]) => {
  const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
  const dropped = new DataTransfer();
  dropped.items.add(new File([bytes], name, { type }));
  return dropped;
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser with a microphone."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        one = play.chromium.launch(executable_path=CHROMIUM, args=[*FAKE, "--no-sandbox"])
        yield one
        one.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(make_application([])) as one:
        yield one


@contextmanager
def form(
    chromium: Any, address: str, before: str = "", body: int = BODY, **how: Any
) -> Iterator[tuple[Any, list[dict[str, str]]]]:
    """The page of a stand-in for a predictor, and the inputs that it gets."""
    inputs: list[dict[str, str]] = []
    field = {"type": "string", "title": "Sound", "contentMediaType": "audio/*", **how}
    models = {
        "models": [],
        "readers": [{"name": "listener", "task": "stand-in"}],
        "traces": [],
        "panels": [{"name": "predict", "title": "Predict", "models": ["listener"]}],
        "max_body": body,
        "inputs": {"listener": {"type": "object", "properties": {"sound": field}}},
    }

    def predict(route: Any) -> None:
        inputs.extend(route.request.post_data_json["inputs"])
        route.fulfill(json={"results": [{"text": f"sound {len(inputs)}"}]})

    with opened(chromium, "about:blank") as it:
        it.context.add_init_script(SPY + before)
        it.page.route("**/api/models", lambda route: route.fulfill(json=models))
        it.page.route("**/api/predict/listener", predict)
        it.page.goto(address)
        it.page.wait_for_selector(FIELD)
        yield it, inputs
        assert it.outside(address) == []
        it.requests.clear()


def sound_file(seconds: float = 0.5, rate: int = 8000) -> bytes:
    time = torch.arange(int(seconds * rate)) / rate
    return Media.sound(0.5 * torch.sin(2 * torch.pi * 440 * time), rate).data


def drop(it: Any, name: str, kind: str, data: bytes) -> None:
    given = it.page.evaluate_handle(DROP, [name, kind, base64.b64encode(data).decode()])
    it.page.dispatch_event(FIELD, "drop", {"dataTransfer": given})


def result(it: Any, number: int) -> None:
    it.page.wait_for_selector(f".heed-result >> text=sound {number}")


def notice(it: Any) -> str:
    it.page.wait_for_selector(f"{FIELD} .heed-notice:not(:empty)")
    return str(it.page.inner_text(f"{FIELD} .heed-notice"))


def played(it: Any) -> list[list[float]]:
    return list(it.page.evaluate("window.played"))


@pytest.mark.parametrize(("name", "kind"), [("a.wav", "audio/wav"), ("b.wav", "")])
def test_a_dropped_file_is_sent_unchanged(
    chromium: Any, address: str, name: str, kind: str
) -> None:
    """Also one whose type the browser does not know; and it can be heard."""
    data = sound_file(0.2)
    with form(chromium, address) as (it, inputs):
        drop(it, name, kind, data)
        result(it, 1)
        head, body = inputs[0]["sound"].split(",")
        assert head == "data:audio/wav;base64"
        assert base64.b64decode(body) == data
        assert it.page.inner_text(f"{FIELD} [role=status]") == name
        it.page.click(f"{FIELD} >> text=Play")
        assert played(it) == [[0, 0, 0.2, 0.2]]
        it.page.wait_for_selector(f"{FIELD} button:text-is('Play')")  # at its end
        it.page.click(f"{FIELD} >> text=Clear")
        assert not it.page.is_visible(f"{FIELD} .heed-listen")
        it.page.wait_for_selector(".heed-result", state="hidden")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (24 << 20, "18.0 MiB, a recording with the microphone up to 9 min 49 s."),
        (10 << 20, "7.5 MiB, a recording with the microphone up to 4 min 5 s."),
        (100_000, "0.1 MiB, a recording with the microphone up to 2 s."),
    ],
)
def test_the_limits_are_those_of_the_server(
    chromium: Any, address: str, body: int, said: str
) -> None:
    with form(chromium, address, body=body) as (it, _):
        hint = f"You can also drop a sound here. A file may have up to {said}"
        assert it.page.inner_text(f"{FIELD} .heed-hint") == hint


def test_files_that_cannot_be_sent(chromium: Any, address: str) -> None:
    with form(chromium, address, maxLength=4000) as (it, inputs):
        drop(it, "a.txt", "text/plain", b"a text")
        assert notice(it) == "a.txt is not a sound."
        drop(it, "long.wav", "audio/wav", sound_file())
        it.page.wait_for_selector(f"{FIELD} .heed-notice >> text=long.wav is too large")
        assert "\n" not in notice(it)
        it.page.wait_for_timeout(500)  # longer than the page waits before it sends
        assert inputs == []
        drop(it, "a.amr", "audio/amr", b"#!AMR")
        result(it, 1)
        said = it.page.inner_text(f"{FIELD} [role=status]")
        assert said == "a.amr is sent, but this browser cannot play it."


def test_a_recording_is_a_wav(chromium: Any, address: str) -> None:
    with form(chromium, address) as (it, inputs):
        it.page.click(f"{FIELD} >> text=Record")
        it.page.wait_for_selector(f"{FIELD} .heed-recording >> text=0:01 of 0:49")
        it.page.click(f"{FIELD} >> text=Stop")
        result(it, 1)
        assert it.page.is_visible(f"{FIELD} .heed-wave path")
        assert it.page.inner_text(f"{FIELD} .heed-notice") == ""
    head, body = inputs[0]["sound"].split(",")
    assert head == "data:audio/wav;base64"
    with wave.open(io.BytesIO(base64.b64decode(body))) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16000)
        samples = np.frombuffer(file.readframes(file.getnframes()), dtype="<i2")
    assert 0.9 * 16000 < len(samples) < 3 * 16000
    assert abs(samples).max() > 500
    assert len(set(samples.tolist())) > 50


def test_a_recording_ends_at_the_limit(chromium: Any, address: str) -> None:
    """The page's clock is that of the samples: here there are more of them than in real time."""
    faster = """
    const real = AudioWorkletNode;
    window.AudioWorkletNode = class extends real {
      constructor(...given) {
        super(...given);
        const port = super.port;
        Object.defineProperty(this, "port", { value: {
          postMessage: (message) => port.postMessage(message),
          set onmessage(listener) {
            port.onmessage = ({ data }) => {
              const many = new Float32Array(data.length * 1000);
              for (let i = 0; i < many.length; i++) many[i] = 0.1 * Math.sin(i / 9);
              listener({ data: many });
            };
          },
        } });
      }
    };
    """
    with form(chromium, address, faster) as (it, inputs):
        it.page.click(f"{FIELD} >> text=Record")
        result(it, 1)
        assert notice(it) == "The recording ended at the limit of 49 s."
    size = len(inputs[0]["sound"])
    assert size == pytest.approx((44 + 49 * 32000) * 4 / 3, abs=40)
    assert size < BODY < (44 + 50 * 32000) * 4 / 3


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ("Object.defineProperty(navigator, 'mediaDevices', { value: undefined });", "secure"),
        ("Object.defineProperty(window, 'isSecureContext', { value: false });", "secure"),
        ("{}.getUserMedia = async () => {{ throw new DOMException('', 'NotAllowedError'); }};",
         "does not allow"),
        ("{}.getUserMedia = async () => {{ throw new DOMException('', 'NotFoundError'); }};",
         "There is no microphone."),
    ],
)  # fmt: skip
def test_a_microphone_that_cannot_be_used(
    chromium: Any, address: str, before: str, said: str
) -> None:
    before = before.format("MediaDevices.prototype") if "{}" in before else before
    with form(chromium, address, before) as (it, inputs):
        it.page.click(f"{FIELD} >> text=Record")
        assert said in notice(it)
        assert "\n" not in notice(it)
        assert it.page.is_visible(f"{FIELD} >> text=Choose a sound…")
        assert inputs == []


def test_the_arithmetic_of_sounds(chromium: Any, address: str) -> None:
    """The Fourier transform, the WAV, the central part of weights, and the lower rate, against
    references."""
    generator = np.random.default_rng(1)
    values, imaginary = generator.normal(size=(2, 64))
    weights = generator.random((6, 40)) ** 6
    with form(chromium, address) as (it, _):
        found = it.page.evaluate(
            """async ([values, imaginary, weights]) => {
              const { fft } = await import("/page/spectrogram.js");
              const { encodeWav, wavRate } = await import("/page/wav.js");
              const { centralPart } = await import("/page/matrices.js");
              const [a, b] = [Float64Array.from(values), Float64Array.from(imaginary)];
              fft(a, b);
              const { resampled } = await import("/page/recorder.js");
              const sine = (hertz, rate) => (_, i) => 0.5 * Math.sin(2 * Math.PI * i * hertz/rate);
              const tone = (hertz, rate) => Float32Array.from({ length: rate }, sine(hertz, rate));
              const lower = [];
              for (const hertz of [1000, 15000]) {
                lower.push(await resampled(tone(hertz, 48000), 48000));
              }
              const wav = encodeWav(Float32Array.from([0, 0.5, -1, 1, 2]), 16000);
              return { real: [...a], imaginary: [...b], wav: [...wav], rate: wavRate(wav),
                lower: lower.map((one) => [...one]), tone: [...tone(1000, 16000)],
                parts: [...weights, [0, 0], [0, 1]].map((row) => centralPart(row, 0.9)) };
            }""",
            [values.tolist(), imaginary.tolist(), weights.tolist()],
        )
    expected = np.fft.fft(values + 1j * imaginary)
    np.testing.assert_allclose(found["real"], expected.real, atol=1e-12)
    np.testing.assert_allclose(found["imaginary"], expected.imag, atol=1e-12)
    own = Media.sound(torch.tensor([0, 0.5, -1, 1, 2]), 16000).data
    assert abs(np.frombuffer(bytes(found["wav"]), "<i2") - np.frombuffer(own, "<i2")).max() <= 1
    assert found["rate"] == 16000
    low, high = np.array(found["lower"])[:, 500:-500]
    np.testing.assert_allclose(low, np.array(found["tone"])[500:-500], atol=0.01)
    assert abs(high).max() < 0.01  # 15 kHz is above half of the lower rate
    *parts, empty, last = found["parts"]
    assert empty is None
    assert last == [1, 1]
    for row, (first, end) in zip(weights, parts, strict=True):
        assert row[:first].sum() <= 0.05 * row.sum() < row[: first + 1].sum()
        assert row[end + 1 :].sum() <= 0.05 * row.sum() < row[end:].sum()


FRAMES, SECONDS = 60, 1.5


def peaked() -> torch.Tensor:
    """Weights ``[1, 5, 60]``: of each token a bump, the last on one frame at the very end."""
    middles = torch.tensor([6.0, 20, 33, 47])
    bumps = torch.exp(-0.5 * ((torch.arange(FRAMES) - middles[:, None]) / 3) ** 2)
    found = torch.cat([bumps, torch.zeros(1, FRAMES)])
    found[4, -1] = 1
    return (found / found.sum(-1, keepdim=True))[None]


WEIGHTS = peaked()
TOKENS = ["▁a", "▁low", "▁high", "▁beep", "</s>"]


@pytest.fixture(scope="module")
def listened(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A page that was saved, with the weights of tokens over a sound."""
    axes = {"written": Axis("tokens", TOKENS, steps=True), "sound": sound_axis(FRAMES, SECONDS)}
    trace = Trace.of(axes, {"decoder.0": ("written", "sound", WEIGHTS)}, title="beeps")
    path = tmp_path_factory.mktemp("sound") / "view.html"
    export_html(trace, path)
    return path.as_uri()


def token(place: int) -> str:
    return f".heed-token-strip button >> visible=true >> nth={place}"


def spied(it: Any) -> None:
    it.context.add_init_script(SPY)
    it.page.reload()
    it.page.wait_for_selector("text=Play the sound")


def curve(svg: str) -> np.ndarray[Any, Any]:
    """The heights of the curve, one for each frame."""
    drawn = ET.fromstring(svg).findall(f".//{SVG}path")[-1].get("d") or ""
    points = [tuple(map(float, one.split())) for one in re.findall(r"L([\d. ]+)", drawn)[:-1]]
    bottom = float(drawn.split("L")[0].split()[1])
    return bottom - np.array(points)[::2, 1]


def test_the_curve_has_its_maximum_at_the_largest_weight(chromium: Any, listened: str) -> None:
    with opened(chromium, listened) as it:
        for place in range(len(TOKENS)):
            it.page.click(token(place))
            drawn = it.page.evaluate(
                "document.querySelector('main > :not([hidden]) .heed-time-view').outerHTML"
                ".replace('<svg', '<svg xmlns=\"http://www.w3.org/2000/svg\"')"
            )
            heights = curve(drawn)
            weights = WEIGHTS[0, place].numpy()
            assert heights.argmax() == weights.argmax()
            byte = WEIGHTS.max() / 255 / weights.max()
            np.testing.assert_allclose(heights / 64, weights / weights.max(), atol=byte + 0.002)
            said = it.page.inner_text(".heed-axis-view .heed-readout >> visible=true")
            begin = float(said.removeprefix("Largest: ").split(" ")[0])
            assert begin == pytest.approx(weights.argmax() * 0.025, abs=0.006)
        saved = curve(it.saved("svg").decode())
    assert saved.argmax() == FRAMES - 1


@pytest.mark.parametrize("tab", ["steps", "heads"])
def test_a_token_plays_the_part_that_it_attends_to(chromium: Any, listened: str, tab: str) -> None:
    with opened(chromium, listened) as it:
        spied(it)
        it.tab(tab)
        if tab == "heads":
            it.page.click("text=Along time")
        for place in (1, 3, 4):
            it.page.click(token(place))
        assert it.page.get_attribute(token(4), "aria-current") == "true"
        it.page.wait_for_function("window.played.length >= 3")
        it.page.wait_for_selector("text=Play the sound >> visible=true")  # at its end
        parts = played(it)
        it.page.keyboard.press("ArrowLeft")  # selects without playing
        assert it.page.get_attribute(token(3), "aria-current") == "true"
        assert len(played(it)) == 3
        it.page.keyboard.press("Enter")
        assert played(it)[3] == parts[1]
    for place, (_, begin, length, _) in zip((1, 3), parts[:2], strict=True):
        row = WEIGHTS[0, place].double()
        first, last = round(begin / 0.025), round((begin + length) / 0.025) - 1
        assert 0.9 <= float(row[first : last + 1].sum() / row.sum()) < 0.98
        assert begin == pytest.approx(first * 0.025)
    _, begin, length, _ = parts[2]  # one frame of 0.025 s at the end
    assert begin == pytest.approx(SECONDS - 0.15)
    assert length == pytest.approx(0.15)


def test_posteriors_are_views_beside_attention_and_alone(chromium: Any, tmp_path: Path) -> None:
    """An alignment that is no attention: Steps shows it if there is no attention."""
    axes = {"written": Axis("tokens", TOKENS, steps=True), "sound": sound_axis(FRAMES, SECONDS)}
    own = AttentionMap("ctc", "written", "sound", WEIGHTS * 3, "posterior")
    attention = AttentionMap("decoder", "written", "sound", WEIGHTS.roll(20, -1))
    for maps, place in (([own], 20), ([attention, own], 40), ([own, attention], 40)):
        export_html(make_trace(axes, maps, title="beeps"), tmp_path / "view.html")
        with opened(chromium, (tmp_path / "view.html").as_uri()) as it:
            it.tab("steps")
            it.page.click(token(1))
            said = it.page.inner_text(".heed-axis-view .heed-readout >> visible=true")
            begin = float(said.removeprefix("Largest: ").split(" ")[0])
            assert begin == pytest.approx(place * 0.025, abs=0.006)
            it.tab("heads")
            offered = it.page.locator("main > :not([hidden]) select option").all_inner_texts()
            assert "Posterior ctc: written over sound" in offered
            it.page.select_option("main > :not([hidden]) select", "posterior written sound ctc")
            it.page.wait_for_selector("h3 >> text=Posterior ctc: written over sound")
            assert not it.page.is_visible("text=Remove this head")


def test_a_click_on_the_picture_plays_from_there(chromium: Any, listened: str) -> None:
    with opened(chromium, listened) as it:
        spied(it)
        box = it.page.locator(".heed-time-view >> visible=true").bounding_box()
        it.page.mouse.click(box["x"] + 0.2 * box["width"], box["y"] + 30)
        [[_, begin, length, _]] = played(it)
        assert begin == pytest.approx(0.2 * SECONDS, abs=0.005)
        assert begin + length == pytest.approx(SECONDS)
        head = "main > :not([hidden]) .heed-playhead"
        it.page.wait_for_selector(f"{head}[visibility=visible]", state="attached")
        places = [float(it.page.get_attribute(head, "x1")) for _ in range(2)]
        assert 0.19 * box["width"] < places[0] <= places[1] <= box["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_spectrogram_has_the_frequencies_where_they_sound(
    chromium: Any, tmp_path: Path, scheme: str
) -> None:
    """A tone of 500 Hz, then one of 3 kHz; in the colours of the page and of a saved file."""
    rate, tones = 16000, (500, 3000)
    time = torch.arange(rate // 2) / rate
    samples = torch.cat([torch.sin(2 * torch.pi * one * time) for one in tones])
    axis = Axis("time", extent=(40, 1.0), media=Media.sound(0.5 * samples, rate))
    axes = {"written": Axis("tokens", ["a"], steps=True), "sound": axis}
    trace = Trace.of(axes, {"cross": ("written", "sound", torch.full((1, 1, 40), 1 / 40))})
    export_html(trace, tmp_path / "view.html")
    with opened(chromium, (tmp_path / "view.html").as_uri(), color_scheme=scheme) as it:
        it.page.wait_for_selector("text=Play the sound")
        shown = it.page.get_attribute(".heed-time-view image:nth-of-type(2)", "href")
        saved = ET.fromstring(it.saved("svg")).findall(f".//{SVG}image")[1].get("href")
    surfaces = {"light": 252, "dark": 20}
    for url, surface in ((shown, surfaces[scheme]), (saved, 255)):
        image = pixels(base64.b64decode(str(url).split(",")[1]))
        strength = abs(image[..., 0] - surface)
        high, wide = strength.shape
        assert high == 96
        assert wide <= 400
        for tone, column in zip(tones, (wide // 4, 3 * wide // 4), strict=True):
            row = int(strength[:, column].argmax())
            place = 1 - np.log1p(tone / 700) / np.log1p(8000 / 700)
            assert row == pytest.approx(place * high, abs=1.5)
        inner = strength[:8, 4 : wide // 2 - 4]  # the ends of a tone have all frequencies
        assert inner.max() < 0.2 * strength.max()  # nothing near 8 kHz


def test_weights_of_several_heads_share_one_sound(chromium: Any, tmp_path: Path) -> None:
    """It is decoded once, and stops when another panel is opened."""
    count = """
    window.decoded = 0;
    const decode = OfflineAudioContext.prototype.decodeAudioData;
    OfflineAudioContext.prototype.decodeAudioData = function (...given) {
      window.decoded += 1;
      return decode.apply(this, given);
    };
    """
    axes = {"written": Axis("tokens", TOKENS, steps=True), "sound": sound_axis(FRAMES, SECONDS)}
    maps = {"decoder.0": ("written", "sound", WEIGHTS.expand(4, -1, -1))}
    export_html(Trace.of(axes, maps, title="four"), tmp_path / "view.html")
    with opened(chromium, "about:blank") as it:
        it.context.add_init_script(SPY + count)
        it.page.goto((tmp_path / "view.html").as_uri())
        it.tab("heads")
        it.page.click("text=Along time")
        it.page.click("text=Whole layer")
        play = it.page.locator("text=Play the sound >> visible=true")
        for _ in itertools.takewhile(lambda _: play.count() < 4, range(100)):
            it.page.wait_for_timeout(20)
        assert it.page.evaluate("window.decoded") == 1
        play.nth(2).click()
        assert play.count() == 3
        it.page.locator("text=Play the sound >> visible=true").nth(0).click()
        assert it.page.locator("text=Stop >> visible=true").count() == 1
        it.tab("alignment")
        it.page.wait_for_timeout(100)
        it.tab("heads")
        assert it.page.locator("text=Stop >> visible=true").count() == 0
        assert len(played(it)) == 2
        it.requests.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessible_and_no_wider_than_a_phone(
    chromium: Any, address: str, listened: str, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")
    rules = (Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    run = "() => axe.run(document, { resultTypes: ['violations'] })"

    def check(it: Any) -> None:
        it.page.set_viewport_size({"width": 390, "height": 800})
        assert it.page.evaluate("document.documentElement.scrollWidth") <= 390
        it.page.evaluate(rules)
        assert [json.dumps(one)[:600] for one in it.page.evaluate(run)["violations"]] == []

    with form(chromium, address) as (it, _):
        it.page.emulate_media(color_scheme=scheme)
        drop(it, "a.wav", "audio/wav", sound_file())
        result(it, 1)
        check(it)
    with opened(chromium, listened, color_scheme=scheme) as it:
        it.page.wait_for_selector("text=Play the sound")
        check(it)
