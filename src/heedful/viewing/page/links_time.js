// The frames of a time axis as queries of the link view: a strip along time with the waveform of the sound.

import { element, svgElement } from "./elements.js";
import { FramePlayer } from "./frame_player.js";
import { centralPart, matrixOf } from "./matrices.js";
import { themeOf } from "./painting.js";
import { waveformPath } from "./spectrogram.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */
/** @typedef {import("./types.js").Matrix} Matrix */
/** @typedef {import("./links_layout.js").Placed} Placed */
/** @typedef {import("./links_view.js").LinkPicture} LinkPicture */

/** More frames than this are joined. */
const MOST = 400;
/** The share of a token's weight in the part that is played for it. */
const SHARE = 0.9;
const STEPS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60];

/**
 * Frames of a time axis in the link view.
 * @typedef {object} Frames
 * @property {AxisFacts} axis
 * @property {number} every the number of frames of a query
 * @property {string[]} texts the times that are written, one for each query; most are empty
 */

/**
 * The mean weights of consecutive frames, if there are many.
 * @param {import("./links_scene.js").Strand[]} strands
 * @param {{rows: string[], columns: string[], columnWords: number[]}} labels
 * @param {number} every
 */
export function joinFrames(strands, { rows, columns, columnWords }, every) {
  const joined = strands.map((one) => ({ ...one, matrix: every > 1 ? meanRows(one.matrix, every) : one.matrix }));
  return { strands: joined, rows: rows.filter((_, i) => i % every === 0), columns, rowWords: [], columnWords };
}

/** @param {Matrix} matrix @param {number} every @returns {Matrix} */
function meanRows(matrix, every) {
  const { columns } = matrix;
  const rows = Math.ceil(matrix.rows / every);
  const values = new Float32Array(rows * columns);
  for (let row = 0; row < matrix.rows; row++) {
    const at = Math.floor(row / every);
    const count = Math.min(every, matrix.rows - at * every);
    for (let i = 0; i < columns; i++) values[at * columns + i] += matrix.values[row * columns + i] / count;
  }
  return matrixOf(rows, columns, values);
}

/**
 * @param {AxisFacts} axis
 * @returns {Frames}
 */
export function framesOf(axis) {
  const [frames, seconds] = axis.extent;
  const every = Math.ceil(frames / MOST);
  const count = Math.ceil(frames / every);
  const step = STEPS.find((one) => seconds / one <= 10) ?? seconds;
  const texts = new Array(count).fill("");
  for (let i = 0; i * step < seconds; i++) {
    const at = Math.floor((i * step * frames) / seconds / every + 1e-6);
    texts[at] = `${(i * step).toFixed(step < 0.1 ? 2 : step < 1 ? 1 : 0)} s`;
  }
  return { axis, every, texts };
}

/**
 * The box of all frames.
 * @param {Placed} placed
 */
function stripBox({ scene: { queries } }) {
  const last = queries[queries.length - 1];
  return { x: queries[0].x, y: queries[0].y, width: last.x + last.width - queries[0].x, height: last.y + last.height - queries[0].y };
}

/**
 * The strip as SVG elements: a field with the waveform, and times in it.
 * @param {Frames} frames
 * @param {Placed} placed
 * @param {AudioBuffer | null} sound
 * @param {{muted: string, ink: string, surface: string, font: string}} theme
 */
export function stripElements(frames, placed, sound, theme) {
  const box = stripBox(placed);
  const { layout, queries } = placed.scene;
  const [length, thick] = layout === "rows" ? [box.width, box.height] : [box.height, box.width];
  const heard = sound ? (sound.duration / frames.axis.extent[1]) * length : 0;
  const turned = layout === "rows" ? `translate(${box.x} ${box.y})` : `translate(${box.x + box.width} ${box.y}) rotate(90)`;
  const texts = frames.texts.flatMap((text, i) => {
    if (!text) return [];
    const at = layout === "rows" ? { x: queries[i].x + 2, y: box.y + box.height - 8 } : { x: box.x + 3, y: queries[i].y + 8 };
    return [svgElement("text", {
      ...at, "dominant-baseline": "central", "font-size": 12, "font-family": theme.font, fill: theme.ink, stroke: theme.surface,
      "stroke-width": 3, "stroke-opacity": 0.75, "paint-order": "stroke",
    }, text)];
  });
  return [
    svgElement("g", { transform: turned },
      svgElement("rect", { width: length, height: thick, fill: theme.muted, "fill-opacity": 0.1 }),
      ...(sound ? [svgElement("path", { d: waveformPath(sound.getChannelData(0), heard, thick), fill: theme.muted, "fill-opacity": 0.6 })] : [])),
    ...texts,
  ];
}

/** The strip on the page, and what is heard when a token is clicked. */
export class TimeStrip {
  /** @param {import("./types.js").Page} page @param {HTMLElement} owner */
  constructor(page, owner) {
    this.page = page;
    this.svg = svgElement("svg", { class: "heed-links-strip", "aria-hidden": "true" });
    this.line = svgElement("line", { class: "heed-playhead", visibility: "hidden" });
    this.hint = element("p", { class: "heed-hint" });
    /** @type {{picture: LinkPicture, placed: Placed} | null} */
    this.shown = null;
    this.player = new FramePlayer(owner, () => this.draw(), (seconds) => this.moved(seconds));
  }

  get sound() {
    return this.player.player.sound;
  }

  /** @param {LinkPicture} picture @param {Placed} placed */
  show(picture, placed) {
    this.svg.style.display = picture.frames ? "" : "none";
    this.shown = picture.frames ? { picture, placed } : null;
    if (picture.frames) this.player.of(picture.frames.axis);
    else this.player.player.stop();
    this.draw();
  }

  draw() {
    const { shown } = this;
    this.hint.textContent = shown && this.sound ? "Click a part of the sound, or a token, to hear it." : "";
    if (!shown?.picture.frames) return;
    const { picture: { frames }, placed } = shown;
    this.svg.setAttribute("viewBox", `0 0 ${placed.width} ${placed.height}`);
    this.svg.style.width = `${placed.width}px`;
    this.svg.style.height = `${placed.height}px`;
    this.svg.replaceChildren(...stripElements(frames, placed, this.sound, themeOf(this.page.root)), this.line);
  }

  /** @param {number} seconds the position of the player; −1 if it stopped */
  moved(seconds) {
    this.line.setAttribute("visibility", seconds < 0 ? "hidden" : "visible");
    if (!this.shown?.picture.frames) return;
    const box = stripBox(this.shown.placed);
    const share = seconds / this.shown.picture.frames.axis.extent[1];
    const [x, y] = [box.x + share * box.width, box.y + share * box.height];
    const at = this.shown.placed.scene.layout === "rows" ? { x1: x, x2: x, y1: box.y, y2: box.y + box.height } : { x1: box.x, x2: box.x + box.width, y1: y, y2: y };
    for (const [name, value] of Object.entries(at)) this.line.setAttribute(name, String(value));
  }

  /**
   * Play a frame, or the frames that a token has most of its weight from.
   * @param {{side: "query" | "key", at: number} | null} token
   */
  play(token) {
    if (!this.shown?.picture.frames || !token) return this.player.player.stop();
    const { picture: { frames, strands, rows } } = this.shown;
    const last = frames.axis.extent[0] - 1;
    /** @param {number} first @param {number} end */
    const part = (first, end) => /** @type {[number, number]} */ ([first * frames.every, Math.min((end + 1) * frames.every - 1, last)]);
    if (token.side === "query") return this.player.play(part(token.at, token.at));
    const weights = rows.map((_, row) => strands.reduce((sum, { matrix }) => sum + matrix.values[row * matrix.columns + token.at], 0));
    const found = centralPart(weights, SHARE);
    return this.player.play(found && part(...found));
  }
}
