// Shows one row of weights, drawn by the kind of its axis: a list of bars unless a module is listed here.

import { element } from "./elements.js";
import { largest, rowOf, written } from "./matrices.js";
import { overPicture } from "./over_picture.js";
import { overTime } from "./over_time.js";
import { slotRows } from "./slot_rows.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */
/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./types.js").Places} Places */
/** @typedef {import("./types.js").PlacesHow} PlacesHow */
/** @typedef {(page: Page, axis: AxisFacts, labels: string[], how: PlacesHow) => Places} MakePlaces */

const MOST_BARS = 60;

/** @type {Map<string, {title: string, make: MakePlaces}>} */
const DRAWN = new Map([
  ["image", { title: "Over the picture", make: overPicture }],
  ["time", { title: "Along time", make: overTime }],
  ["slots", { title: "Slots", make: slotRows }],
]);

/**
 * The name of the view for an axis; undefined for axes that are lists.
 * @param {AxisFacts} axis
 */
export function drawnTitle(axis) {
  return DRAWN.get(axis.kind)?.title;
}

/** @type {MakePlaces} */
export function placesOf(page, axis, labels, how) {
  return (DRAWN.get(axis.kind)?.make ?? bars)(page, axis, labels, how);
}

/** @type {MakePlaces} */
function bars(_page, _axis, labels) {
  const list = element("ol", { class: "heed-bars", "aria-label": "Attention weights" });
  const note = element("p", { class: "heed-hint" });
  return {
    body: element("div", {}, list, note),
    drawing: () => null,
    show(matrix, row) {
      const weights = rowOf(matrix, row);
      const before = row ? rowOf(matrix, row - 1) : new Float32Array(weights.length);
      const strongest = Float32Array.from(weights, (weight, i) => Math.max(Math.abs(weight), Math.abs(before[i])));
      const places = largest(strongest, MOST_BARS);
      list.replaceChildren(...places.map((place) => bar(labels[place], weights[place], before[place])));
      const left = weights.length - places.length;
      note.textContent = left > 0 ? `The ${places.length} largest of ${weights.length.toLocaleString("en")} weights.` : "";
    },
  };
}

/**
 * @param {string} label
 * @param {number} weight
 * @param {number} before
 */
function bar(label, weight, before) {
  const now = element("i", { class: "heed-bar-now" });
  now.style.inlineSize = `${Math.min(Math.abs(weight), 1) * 100}%`;
  const then = element("i", { class: "heed-bar-before" });
  then.style.inlineSize = `${Math.min(Math.abs(before), 1) * 100}%`;
  return element(
    "li", {}, element("span", { class: "heed-bar-label", dir: "auto" }, label),
    element("span", { class: "heed-bar", "aria-hidden": "true" }, then, now),
    element("span", { class: "heed-number" }, written(weight)),
  );
}

/** The chosen heads' weights at one row, each in a drawing of its own. */
export class PlacesView {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.row = 0;
    /** @type {Picture | null} */
    this.picture = null;
    /** @type {Places[]} */
    this.views = [];
    /** @type {AxisFacts | null} */
    this.axis = null;
    /** @type {HTMLInputElement} */
    this.slider = element("input", {
      type: "range", min: 0, value: 0, step: 1, "aria-label": "Query", oninput: () => this.go(Number(this.slider.value)),
    });
    this.label = element("bdi", { class: "heed-whose" });
    this.chooser = element("div", { class: "heed-player" }, this.slider, this.label);
    this.field = element("div", { class: "heed-places-field" });
    this.body = element("div", {}, this.chooser, this.field);
  }

  /**
   * @param {Picture} picture
   * @param {AxisFacts} axis of the keys
   * @param {boolean} own whether queries and keys have the same axis
   */
  show(picture, axis, own) {
    this.picture = picture;
    if (axis !== this.axis || picture.layers.length !== this.views.length) {
      this.axis = axis;
      const how = own ? { pick: (/** @type {number} */ place) => this.go(place) } : {};
      this.views = picture.layers.map(() => placesOf(this.page, axis, picture.columns, how));
      this.field.replaceChildren(...this.views.map((view) => view.body));
    }
    const last = picture.rows.length - 1;
    this.slider.max = String(last);
    this.chooser.hidden = last < 1;
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
    this.views.forEach((view, i) => view.show(picture.layers[i].matrix, row, picture.rows));
  }

  /** The first head's drawing as SVG, where there is one. */
  drawing() {
    return this.views[0]?.drawing() ?? null;
  }
}
