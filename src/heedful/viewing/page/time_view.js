// Weights over time, on the waveform or a picture of features.

import { element, focusedNear, messageOf, svgElement } from "./elements.js";
import { serializeSvg } from "./exporting.js";
import { argmax, matrixOf, rowOf, formatWeight } from "./matrices.js";
import { imageElements } from "./image_view.js";
import { PRINT_THEME, overlayImage, maxAbsolute, themeOf } from "./painting.js";
import { fromBase64 } from "./providers.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */
/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").AxisView} AxisView */
/** @typedef {import("./painting.js").Theme} Theme */

const LANE = 96;
const CURVE = 64;
const GAP = 8;
const TICKS = 22;
const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300];

/** @implements {AxisView} */
class TimeView {
  /** @param {Page} page @param {AxisFacts} axis */
  constructor(page, axis) {
    this.page = page;
    this.axis = axis;
    this.frames = axis.extent[0];
    this.seconds = axis.extent[1];
    this.lane = axis.media ? LANE + GAP : 0;
    this.height = this.lane + CURVE + TICKS;
    this.weights = new Float32Array(this.frames);
    this.cursor = -1;
    /** @type {AudioBuffer | null} */
    this.sound = null;
    this.wave = "";
    /** @type {(() => void) | null} */
    this.stop = null;
    this.svg = svgElement("svg", {
      class: "heed-time-view", tabindex: 0, role: "application", "aria-roledescription": "weights along time",
      "aria-label": "Weights over time. Use the arrow keys to move between frames.",
    });
    this.svg.style.height = `${this.height}px`;
    this.readout = element("p", { class: "heed-readout", "aria-live": "polite" });
    this.play = element("button", { type: "button", class: "heed-button", onclick: () => this.toggle() }, "Play the sound");
    this.play.hidden = true;
    this.body = element("div", { class: "heed-axis-view" }, this.svg, element("div", { class: "heed-player" }, this.play, this.readout));
    this.listen();
    this.load();
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => this.point(this.under(event)));
    this.svg.addEventListener("pointerleave", () => {
      if (focusedNear(this.svg) !== this.svg) this.point(-1);
    });
    this.svg.addEventListener("focus", () => {
      if (this.cursor < 0 && this.svg.matches(":focus-visible")) this.point(0);
    });
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
    this.page.onTheme(() => this.draw());
  }

  /** Decode the sound, if there is one. */
  async load() {
    const { media } = this.axis;
    if (media?.type !== "audio/wav") return;
    try {
      const bytes = fromBase64(media.url.slice(media.url.indexOf(",") + 1));
      // An offline context needs no permission to play audio.
      this.sound = await new OfflineAudioContext(1, 1, 44100).decodeAudioData(/** @type {ArrayBuffer} */ (bytes.buffer));
      this.play.hidden = false;
      this.draw();
    } catch (error) {
      this.readout.textContent = `the sound cannot be decoded: ${messageOf(error)}`;
    }
  }

  /** @param {MouseEvent} event */
  under(event) {
    const box = this.svg.getBoundingClientRect();
    const frame = Math.floor(((event.clientX - box.left) / box.width) * this.frames);
    return Math.min(Math.max(frame, 0), this.frames - 1);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const far = event.shiftKey ? 10 : 1;
    const at = Math.max(this.cursor, 0);
    /** @type {Record<string, number>} */
    const moves = { ArrowLeft: at - far, ArrowRight: at + far, Home: 0, End: this.frames };
    if (event.key === "Enter" && this.sound) this.toggle();
    else if (event.key in moves) this.point(Math.min(Math.max(moves[event.key], 0), this.frames - 1));
    else return;
    event.preventDefault();
  }

  /** @param {number} frame */
  point(frame) {
    if (frame === this.cursor) return;
    this.cursor = frame;
    this.mark();
  }

  /** Play from the cursor, or stop. */
  toggle() {
    if (this.stop) return this.stop();
    if (!this.sound) return;
    const context = new AudioContext();
    const source = context.createBufferSource();
    source.buffer = this.sound;
    source.connect(context.destination);
    const from = (Math.max(this.cursor, 0) / this.frames) * this.seconds;
    source.start(0, from);
    const started = context.currentTime;
    let timer = 0;
    this.stop = () => {
      cancelAnimationFrame(timer);
      this.stop = null;
      source.onended = null;
      context.close();
      this.play.textContent = "Play the sound";
      this.head(-1);
    };
    source.onended = this.stop;
    const move = () => {
      if (!this.svg.isConnected) return this.stop?.();
      this.head((from + context.currentTime - started) / this.seconds);
      timer = requestAnimationFrame(move);
    };
    this.play.textContent = "Stop";
    move();
  }

  /** @param {import("./types.js").Matrix} matrix @param {number} row */
  show(matrix, row) {
    this.weights = rowOf(matrix, row);
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!width) return;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${this.height}`);
    this.svg.replaceChildren(
      ...this.layers(width, themeOf(this.page.root)),
      svgElement("rect", { class: "heed-cursor", y: 0, height: this.lane + CURVE, visibility: "hidden" }),
      svgElement("line", { class: "heed-playhead", y1: 0, y2: this.lane + CURVE, visibility: "hidden" }),
    );
    this.mark();
  }

  /**
   * @param {number} width
   * @param {Theme} theme
   */
  layers(width, theme) {
    const bottom = this.lane + CURVE;
    return [
      ...this.medium(width, theme),
      svgElement("line", { x1: 0, x2: width, y1: bottom, y2: bottom, stroke: theme.line }),
      svgElement("path", { d: this.curve(width), fill: theme.accent }),
      ...this.ticks(width, theme),
    ];
  }

  /**
   * The waveform or the features, with the weights over them.
   * @param {number} width
   * @param {Theme} theme
   */
  medium(width, theme) {
    const { media } = this.axis;
    if (!media) return [];
    const size = { x: 0, y: 0, width, height: LANE, preserveAspectRatio: "none" };
    const weights = svgElement("image", { ...size, href: overlayImage(this.weights, this.frames), "image-rendering": "pixelated" });
    if (media.type !== "audio/wav") {
      return [...imageElements(media.url, size, true), weights];
    }
    return [
      svgElement("rect", { width, height: LANE, fill: theme.muted, "fill-opacity": 0.1 }), weights,
      svgElement("path", { d: this.waveform(width), fill: theme.ink, "fill-opacity": 0.8 }),
    ];
  }

  /** @param {number} width */
  curve(width) {
    const peak = maxAbsolute(this.weights) || 1;
    const bottom = this.lane + CURVE;
    const steps = Array.from(this.weights, (weight, i) => {
      const y = (bottom - (Math.abs(weight) / peak) * CURVE).toFixed(1);
      return `L${((i / this.frames) * width).toFixed(1)} ${y}L${(((i + 1) / this.frames) * width).toFixed(1)} ${y}`;
    });
    return `M0 ${bottom}${steps.join("")}L${width} ${bottom}Z`;
  }

  /**
   * The waveform: the peak amplitude at each pixel.
   * @param {number} width
   */
  waveform(width) {
    if (!this.sound) return "";
    const samples = this.sound.getChannelData(0);
    const each = samples.length / width;
    const heights = Array.from({ length: Math.floor(width) }, (_, x) =>
      maxAbsolute(samples.subarray(Math.floor(x * each), Math.max(Math.floor((x + 1) * each), Math.floor(x * each) + 1))));
    const loud = Math.max(...heights, 1e-6);
    const side = (/** @type {number} */ sign) =>
      heights.map((height, x) => `${x} ${(LANE / 2 + (sign * Math.max(height / loud, 0.01) * LANE) / 2.2).toFixed(1)}`);
    return `M${[...side(-1), ...side(1).reverse()].join("L")}Z`;
  }

  /** @param {number} width @param {Theme} theme */
  ticks(width, theme) {
    const step = STEPS.find((one) => (one / this.seconds) * width >= 64) ?? this.seconds;
    const places = step < 0.1 ? 2 : step < 1 ? 1 : 0;
    return Array.from({ length: Math.floor(this.seconds / step + 1e-9) + 1 }, (_, i) => {
      const x = ((i * step) / this.seconds) * width;
      return svgElement("text", {
        x, y: this.height - 6, "text-anchor": i === 0 ? "start" : x > width - 24 ? "end" : "middle", fill: theme.muted,
        "font-size": 12, "font-family": theme.font,
      }, `${(i * step).toFixed(places)} s`);
    });
  }

  /** @param {number} share the position in the sound from 0 to 1; -1 hides it */
  head(share) {
    const line = this.svg.querySelector(".heed-playhead");
    const x = share * this.svg.clientWidth;
    for (const [name, value] of Object.entries({ x1: x, x2: x, visibility: share < 0 ? "hidden" : "visible" })) {
      line?.setAttribute(name, String(value));
    }
  }

  mark() {
    const width = this.svg.clientWidth / this.frames;
    const box = this.svg.querySelector(".heed-cursor");
    const x = this.cursor * width;
    for (const [name, value] of Object.entries({ x, width: Math.max(width, 1.5), visibility: this.cursor < 0 ? "hidden" : "visible" })) {
      box?.setAttribute(name, String(value));
    }
    const maximum = argmax(matrixOf(1, this.frames, this.weights), 0);
    const frame = this.cursor >= 0 ? this.cursor : maximum;
    this.readout.classList.toggle("heed-idle", this.cursor < 0);
    this.readout.textContent = frame < 0 ? "All weights are 0."
      : `${this.cursor < 0 ? "Largest: " : ""}${this.time(frame)} to ${this.time(frame + 1)} s, ${formatWeight(this.weights[frame])}`;
  }

  /** @param {number} frame */
  time(frame) {
    return ((frame / this.frames) * this.seconds).toFixed(2);
  }

  drawing() {
    const width = 800;
    const size = { width, height: this.height, viewBox: `0 0 ${width} ${this.height}` };
    return serializeSvg(svgElement("svg", size, svgElement("rect", { ...size, fill: PRINT_THEME.surface }), ...this.layers(width, PRINT_THEME)));
  }
}

/**
 * @param {Page} page
 * @param {AxisFacts} axis
 * @returns {AxisView}
 */
export function timeView(page, axis) {
  return new TimeView(page, axis);
}
