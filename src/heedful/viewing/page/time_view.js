// Weights over time, on a sound or a picture of features.

import { element, focusedNear, messageOf, svgElement } from "./elements.js";
import { serializeSvg } from "./exporting.js";
import { audiblePart, soundOf } from "./frame_player.js";
import { argmax, centralPart, matrixOf, rowOf, formatWeight } from "./matrices.js";
import { PRINT_THEME, themeOf } from "./painting.js";
import { SoundPlayer } from "./sound_player.js";
import { isSound, timeLayers, timeLayout } from "./time_layers.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */
/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").AxisView} AxisView */

/** The share of the weight in the part that is played for a token. */
const SHARE = 0.9;
/** @implements {AxisView} */
class TimeView {
  /** @param {Page} page @param {AxisFacts} axis */
  constructor(page, axis) {
    this.page = page;
    this.axis = axis;
    this.frames = axis.extent[0];
    this.seconds = axis.extent[1];
    this.layout = timeLayout(axis);
    this.weights = new Float32Array(this.frames);
    /** @type {[number, number] | null} the part that is played for the token, in seconds */
    this.part = null;
    this.cursor = -1;
    this.svg = svgElement("svg", {
      class: "heed-time-view", tabindex: 0, role: "application", "aria-roledescription": "weights along time",
      "aria-label": `Weights over time. Use the arrow keys to move between frames${isSound(axis) ? "; Enter plays from there" : ""}.`,
    });
    this.svg.style.height = `${this.layout.height}px`;
    this.readout = element("p", { class: "heed-readout", "aria-live": "polite" });
    this.playButton = element("button", { type: "button", class: "heed-button", onclick: () => this.toggle() }, "Play the sound");
    this.partButton = element("button", { type: "button", class: "heed-button", onclick: () => this.playPart() }, "Play this part");
    this.playButton.hidden = this.partButton.hidden = true;
    this.body = element(
      "div", { class: "heed-axis-view" }, this.svg,
      element("div", { class: "heed-player heed-sound-player" }, this.playButton, this.partButton, this.readout),
    );
    this.player = new SoundPlayer(this.body, (seconds) => this.moved(seconds));
    this.listen();
    if (isSound(axis)) this.load();
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => this.point(this.under(event)));
    this.svg.addEventListener("pointerleave", () => {
      if (focusedNear(this.svg) !== this.svg) this.point(-1);
    });
    this.svg.addEventListener("click", (event) => {
      const box = this.svg.getBoundingClientRect();
      this.player.play(((event.clientX - box.left) / box.width) * this.seconds);
    });
    this.svg.addEventListener("focus", () => {
      if (this.cursor < 0 && this.svg.matches(":focus-visible")) this.point(0);
    });
    this.svg.addEventListener("blur", () => this.point(-1));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  async load() {
    try {
      this.player.sound = await soundOf(this.axis);
      this.svg.classList.add("heed-playable");
      this.playButton.hidden = false;
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
    if (event.key === "Enter" && this.player.sound) this.toggle();
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
    if (this.player.isPlaying) this.player.stop();
    else this.player.play((Math.max(this.cursor, 0) / this.frames) * this.seconds);
  }

  playPart() {
    if (this.part) this.player.play(...this.part);
  }

  /** @param {import("./types.js").Matrix} matrix @param {number} row */
  show(matrix, row) {
    this.weights = rowOf(matrix, row);
    this.part = this.mostWeight();
    this.draw();
  }

  /** @returns {[number, number] | null} */
  mostWeight() {
    const found = centralPart(this.weights, SHARE);
    return found && audiblePart(this.axis, found);
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!width) return;
    const { bottom, height } = this.layout;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.replaceChildren(
      ...this.layers(width, themeOf(this.page.root)),
      svgElement("rect", { class: "heed-cursor", y: 0, height: bottom, visibility: "hidden" }),
      svgElement("line", { class: "heed-playhead", y1: 0, y2: bottom, visibility: "hidden" }),
    );
    this.mark();
  }

  /** @param {number} width @param {import("./painting.js").Theme} theme */
  layers(width, theme) {
    return timeLayers({ axis: this.axis, weights: this.weights, part: this.part, sound: this.player.sound }, width, theme);
  }

  /** @param {number} seconds the position of the player; −1 if it stopped */
  moved(seconds) {
    this.playButton.textContent = seconds < 0 ? "Play the sound" : "Stop";
    const x = (seconds / this.seconds) * this.svg.clientWidth;
    set(this.svg.querySelector(".heed-playhead"), { x1: x, x2: x, visibility: seconds < 0 ? "hidden" : "visible" });
  }

  mark() {
    const width = this.svg.clientWidth / this.frames;
    set(this.svg.querySelector(".heed-cursor"), {
      x: this.cursor * width, width: Math.max(width, 1.5), visibility: this.cursor < 0 ? "hidden" : "visible",
    });
    const maximum = argmax(matrixOf(1, this.frames, this.weights), 0);
    const frame = this.cursor >= 0 ? this.cursor : maximum;
    this.partButton.hidden = !this.part || !this.player.sound;
    const part = this.part && this.cursor < 0 ? `; 90 % from ${this.part[0].toFixed(2)} to ${this.part[1].toFixed(2)} s` : "";
    this.readout.classList.toggle("heed-idle", this.cursor < 0);
    this.readout.textContent = frame < 0 ? "All weights are 0."
      : `${this.cursor < 0 ? "Largest: " : ""}${this.time(frame)} to ${this.time(frame + 1)} s, ${formatWeight(this.weights[frame])}${part}`;
  }

  /** @param {number} frame */
  time(frame) {
    return ((frame / this.frames) * this.seconds).toFixed(2);
  }

  drawing() {
    const width = 800;
    const { height } = this.layout;
    const size = { width, height, viewBox: `0 0 ${width} ${height}` };
    return serializeSvg(svgElement("svg", size, svgElement("rect", { ...size, fill: PRINT_THEME.surface }), ...this.layers(width, PRINT_THEME)));
  }
}

/**
 * @param {Element | null} shown
 * @param {Record<string, string | number>} attributes
 */
function set(shown, attributes) {
  for (const [name, value] of Object.entries(attributes)) shown?.setAttribute(name, String(value));
}

/**
 * @param {Page} page
 * @param {AxisFacts} axis
 * @returns {AxisView}
 */
export function timeView(page, axis) {
  return new TimeView(page, axis);
}
