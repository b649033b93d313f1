// Views of one row of weights, chosen by the kind of the axis. The default view shades the labels.

import { element } from "./elements.js";
import { imageView } from "./image_view.js";
import { timeView } from "./time_view.js";
import { slotsView } from "./slots_view.js";
import { isSound } from "./time_layers.js";
import { TokenStrip } from "./token_strip.js";
import { tokenWeights } from "./token_weights.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */
/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./types.js").AxisView} AxisView */
/** @typedef {import("./types.js").AxisViewOptions} AxisViewOptions */
/** @typedef {(page: Page, axis: AxisFacts, labels: string[], how: AxisViewOptions) => AxisView} AxisViewFactory */

/** @type {Map<string, {title: string, make: AxisViewFactory}>} */
const DRAWN = new Map([
  ["image", { title: "Over the picture", make: imageView }],
  ["frames", { title: "Over the frames", make: imageView }],
  ["time", { title: "Along time", make: timeView }],
  ["slots", { title: "Slots", make: slotsView }],
]);

/**
 * Whether axes of this kind have a view of their own.
 * @param {{kind: string}} axis
 */
export function hasView(axis) {
  return DRAWN.has(axis.kind);
}

/**
 * Whether positions on this axis are drawn as labels, between which there can be links.
 * @param {AxisFacts} axis
 */
export function isFlat(axis) {
  return !hasView(axis) && !axis.extent.length;
}

/**
 * Whether queries on this axis are a path over an image: steps such as glimpses, but not the tokens of a text.
 * @param {AxisFacts} axis
 */
export function isPath(axis) {
  return axis.steps && axis.kind === "labels";
}

/** More slots than this are drawn as a matrix of all steps. */
const MOST_SLOTS = 24;

/**
 * The title of the view for this axis; undefined for those without a view of their own.
 * @param {AxisFacts} axis
 * @param {string[]} labels
 */
export function viewTitle(axis, labels) {
  return axis.kind === "slots" && labels.length > MOST_SLOTS ? undefined : DRAWN.get(axis.kind)?.title;
}

/** @type {AxisViewFactory} */
export function makeAxisView(page, axis, labels, how) {
  if (viewTitle(axis, labels) === undefined) return tokenWeights(labels, undefined);
  return /** @type {{make: AxisViewFactory}} */ (DRAWN.get(axis.kind)).make(page, axis, labels, how);
}

/** The weights of one query, with one view for each selected head. */
export class QueryWeightsView {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.row = 0;
    /** @type {Picture | null} */
    this.picture = null;
    /** @type {AxisView[]} */
    this.views = [];
    /** @type {AxisFacts | null} */
    this.axis = null;
    /** @type {HTMLInputElement} */
    this.slider = element("input", {
      type: "range", min: 0, value: 0, step: 1, "aria-label": "Query", oninput: () => this.go(Number(this.slider.value)),
    });
    this.label = element("bdi", { class: "heed-query-label" });
    this.chooser = element("div", { class: "heed-player" }, this.slider, this.label);
    this.field = element("div", { class: "heed-axis-views" });
    this.tokens = new TokenStrip((row, play) => {
      this.go(row);
      if (play) this.views[0]?.playPart?.();
    });
    this.body = element("div", {}, this.chooser, this.tokens.body, this.field);
  }

  /**
   * @param {Picture} picture
   * @param {AxisFacts} axis the axis of the keys
   * @param {boolean} own whether the queries are on the same axis
   * @param {boolean} path whether the queries are steps
   */
  show(picture, axis, own, path) {
    this.picture = picture;
    if (axis !== this.axis || picture.layers.length !== this.views.length) {
      this.axis = axis;
      const how = own ? { pick: (/** @type {number} */ place) => this.go(place) } : { path };
      this.views = picture.layers.map(() => makeAxisView(this.page, axis, picture.columns, how));
      this.field.replaceChildren(...this.views.map((view) => view.body));
    }
    const last = picture.rows.length - 1;
    this.slider.max = String(last);
    this.tokens.body.hidden = own || axis.kind !== "time";
    this.chooser.hidden = last < 1 || !this.tokens.body.hidden;
    this.go(Math.min(this.row, last));
  }

  /** @param {number} row */
  go(row) {
    const { picture } = this;
    if (!picture) return;
    this.row = row;
    this.slider.value = String(row);
    this.slider.setAttribute("aria-valuetext", picture.rows[row]);
    this.label.textContent = picture.rows[row];
    if (!this.tokens.body.hidden && this.axis) this.tokens.show(picture.rows, row, isSound(this.axis));
    this.views.forEach((view, i) => view.show(picture.layers[i].matrix, row, picture.rows));
  }

  /** The view of the first head as SVG; null if it has none. */
  drawing() {
    return this.views[0]?.drawing() ?? null;
  }
}
