// Weights over the cells of an image.

import { checkbox, element, focusedNear, inputField, svgElement } from "./elements.js";
import { argmax, matrixOf, rowOf, formatWeight } from "./matrices.js";
import { overlayImage, veilImage } from "./painting.js";
import { serializeSvg } from "./exporting.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */
/** @typedef {import("./types.js").Matrix} Matrix */
/** @typedef {import("./types.js").AxisView} AxisView */

const SIDE = 480;
const OPACITY = 0.85;
let filterCount = 0;

/** @implements {AxisView} */
class ImageView {
  /** @param {AxisFacts} axis @param {string[]} labels @param {import("./types.js").AxisViewOptions} how */
  constructor(axis, labels, how) {
    this.axis = axis;
    this.labels = labels;
    this.how = how;
    // The frames of a clip are a row of cells.
    const grid = axis.extent.length > 1 ? axis.extent : [1, axis.extent[0]];
    this.down = grid[0];
    this.across = grid[1];
    const [high, wide] = axis.media?.size ?? grid;
    const scale = SIDE / Math.max(high, wide);
    this.width = wide * scale;
    this.height = high * scale;
    /** @type {Float32Array} */
    this.weights = new Float32Array(labels.length);
    this.row = 0;
    /** @type {Matrix | null} */
    this.matrix = null;
    this.cursor = -1;
    this.over = true;
    this.smooth = false;
    this.opacity = OPACITY;
    this.svg = svgElement("svg", {
      class: `heed-image-view${axis.kind === "frames" ? " heed-film" : ""}`, viewBox: `0 0 ${this.width} ${this.height}`, tabindex: 0, role: "application",
      "aria-roledescription": "picture with weights",
      "aria-label": `Weights over the picture. Use the arrow keys to move between cells${how.pick ? "; Enter shows the attention of that cell" : ""}.`,
    });
    this.svg.style.aspectRatio = `${this.width} / ${this.height}`;
    this.readout = element("p", { class: "heed-readout", "aria-live": "polite" });
    const shown = checkbox("Weights over the picture", true, (on) => {
      this.over = on;
      this.draw();
    });
    const smooth = checkbox("Smooth", false, (on) => {
      this.smooth = on;
      this.draw();
    });
    const opacity = inputField("Hide what has little weight", { type: "range", min: 0, max: 1, step: 0.05, value: OPACITY }, () => {
      this.opacity = Number(opacity.input.value);
      this.draw();
    });
    this.options = element("div", { class: "heed-image-options" }, shown.field, smooth.field, opacity.field);
    this.options.hidden = !axis.media;
    this.body = element("div", { class: "heed-axis-view" }, this.svg, this.readout, this.options);
    this.listen();
  }

  listen() {
    this.svg.addEventListener("pointermove", (event) => this.point(this.under(event)));
    this.svg.addEventListener("pointerleave", () => {
      if (focusedNear(this.svg) !== this.svg) this.point(-1);
    });
    this.svg.addEventListener("click", (event) => this.how.pick?.(this.under(event)));
    this.svg.addEventListener("focus", () => {
      if (this.cursor < 0 && this.svg.matches(":focus-visible")) this.point(0);
    });
    this.svg.addEventListener("keydown", (event) => this.key(event));
  }

  /** @param {MouseEvent} event */
  under(event) {
    const box = this.svg.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left) / box.width) * this.across);
    const row = Math.floor(((event.clientY - box.top) / box.height) * this.down);
    return within(row, this.down) * this.across + within(column, this.across);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const [row, column] = [Math.floor(Math.max(this.cursor, 0) / this.across), Math.max(this.cursor, 0) % this.across];
    /** @type {Record<string, [number, number]>} */
    const moves = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1], Home: [row, 0], End: [row, this.across - 1],
    };
    const to = moves[event.key];
    if (to) this.point(within(to[0], this.down) * this.across + within(to[1], this.across));
    else if (event.key === "Enter" && this.cursor >= 0 && this.how.pick) this.how.pick(this.cursor);
    else return;
    event.preventDefault();
  }

  /** @param {number} cell */
  point(cell) {
    if (cell === this.cursor) return;
    this.cursor = cell;
    this.mark();
  }

  /** @param {Matrix} matrix @param {number} row */
  show(matrix, row) {
    this.weights = rowOf(matrix, row);
    this.matrix = matrix;
    this.row = row;
    this.draw();
  }

  draw() {
    this.svg.replaceChildren(...this.layers(), this.box(-1, "heed-query"), this.box(-1, "heed-cursor"));
    this.mark();
  }

  /** The picture, hidden where weights are small; in grey below weights that may be negative. */
  layers() {
    const size = { x: 0, y: 0, width: this.width, height: this.height, preserveAspectRatio: "none" };
    const { media } = this.axis;
    const small = Math.max(...(media?.size ?? [SIDE])) < SIDE / 4;
    const how = { ...size, "image-rendering": small ? "pixelated" : null };
    const veiled = media && this.weights.every((one) => one >= 0);
    const over = veiled ? veilImage(this.weights, this.across, this.opacity) : overlayImage(this.weights, this.across);
    return [
      ...(media ? imageElements(media.url, how, this.over && !veiled)
        : [svgElement("rect", { width: this.width, height: this.height, fill: "#808080", "fill-opacity": 0.16 })]),
      this.over ? svgElement("image", { ...size, href: over, "image-rendering": this.smooth ? null : "pixelated" }) : "",
      ...(this.how.path && this.over ? this.path() : []),
    ];
  }

  /** Where the steps up to this one read: the outline of the cells with most of the weight, and a line between their middles. */
  path() {
    const [width, height] = [this.width / this.across, this.height / this.down];
    /** @type {SVGElement[]} */
    const boxes = [];
    const middles = [];
    for (let step = 0; this.matrix && step <= this.row; step += 1) {
      const box = outline(rowOf(this.matrix, step), this.across);
      if (!box) continue;
      middles.push(`${((box.left + box.right + 1) / 2) * width},${((box.top + box.bottom + 1) / 2) * height}`);
      boxes.push(svgElement("rect", {
        x: box.left * width, y: box.top * height, fill: "none", stroke: step === this.row ? "#ff9a00" : "#00d5ff",
        "stroke-width": step === this.row ? 3 : 1.5, "stroke-opacity": step === this.row ? 1 : 0.8,
        width: (box.right - box.left + 1) * width, height: (box.bottom - box.top + 1) * height,
      }));
    }
    const line = svgElement("polyline", { points: middles.join(" "), fill: "none", stroke: "#00d5ff", "stroke-width": 1.5 });
    return [line, ...boxes];
  }

  /** @param {number} cell @param {string} name */
  box(cell, name) {
    const [width, height] = [this.width / this.across, this.height / this.down];
    return svgElement("rect", {
      class: name, width, height, x: (cell % this.across) * width, y: Math.floor(cell / this.across) * height,
      visibility: cell < 0 ? "hidden" : "visible",
    });
  }

  mark() {
    this.svg.querySelector(".heed-cursor")?.replaceWith(this.box(this.cursor, "heed-cursor"));
    this.svg.querySelector(".heed-query")?.replaceWith(this.box(this.how.pick ? this.row : -1, "heed-query"));
    const maximum = argmax(matrixOf(1, this.weights.length, this.weights), 0);
    const place = this.cursor >= 0 ? this.cursor : maximum;
    this.readout.classList.toggle("heed-idle", this.cursor < 0);
    this.readout.textContent = place < 0 ? "All weights are 0."
      : `${this.cursor < 0 ? "Largest: " : ""}${this.labels[place]}, ${formatWeight(this.weights[place])}`;
  }

  drawing() {
    const { width, height } = this;
    return serializeSvg(svgElement("svg", { width, height, viewBox: `0 0 ${width} ${height}` }, ...this.layers()));
  }
}

/**
 * The SVG elements of a picture; in grey if something is drawn over it.
 * @param {string} url
 * @param {Record<string, import("./elements.js").Attribute>} how
 * @param {boolean} grey
 */
export function imageElements(url, how, grey) {
  const id = `heed-grey-${++filterCount}`;
  const filter = svgElement("filter", { id }, svgElement("feColorMatrix", { type: "saturate", values: 0 }));
  return [filter, svgElement("image", { ...how, href: url, filter: grey ? `url(#${id})` : null })];
}

/**
 * The smallest rectangle of cells that have at least half of the largest weight; null without weights.
 * @param {ArrayLike<number>} weights @param {number} across
 */
function outline(weights, across) {
  const most = Math.max(...Array.from(weights));
  if (!(most > 0)) return null;
  const box = { top: Infinity, bottom: -1, left: Infinity, right: -1 };
  for (let cell = 0; cell < weights.length; cell += 1) {
    if (weights[cell] < most / 2) continue;
    const [row, column] = [Math.floor(cell / across), cell % across];
    box.top = Math.min(box.top, row);
    box.bottom = Math.max(box.bottom, row);
    box.left = Math.min(box.left, column);
    box.right = Math.max(box.right, column);
  }
  return box;
}

/** @param {number} place @param {number} count */
function within(place, count) {
  return Math.min(Math.max(place, 0), count - 1);
}

/**
 * @param {import("./types.js").Page} _page
 * @param {AxisFacts} axis
 * @param {string[]} labels
 * @param {import("./types.js").AxisViewOptions} how
 * @returns {AxisView}
 */
export function imageView(_page, axis, labels, how) {
  return new ImageView(axis, labels, how);
}
