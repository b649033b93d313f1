// Views of one row of weights, chosen by the kind of the axis. The default view is a bar chart.

import { element } from "./elements.js";
import { topIndices, rowOf, formatWeight } from "./matrices.js";
import { imageView } from "./image_view.js";
import { timeView } from "./time_view.js";
import { slotsView } from "./slots_view.js";

/** @typedef {import("./types.js").AxisFacts} AxisFacts */
/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./types.js").AxisView} AxisView */
/** @typedef {import("./types.js").AxisViewOptions} AxisViewOptions */
/** @typedef {(page: Page, axis: AxisFacts, labels: string[], how: AxisViewOptions) => AxisView} AxisViewFactory */

const MAX_BARS = 60;

/** @type {Map<string, {title: string, make: AxisViewFactory}>} */
const DRAWN = new Map([
  ["image", { title: "Over the picture", make: imageView }],
  ["time", { title: "Along time", make: timeView }],
  ["slots", { title: "Slots", make: slotsView }],
]);

/**
 * The title of the view for this kind of axis; undefined for kinds without a view of their own.
 * @param {AxisFacts} axis
 */
export function viewTitle(axis) {
  return DRAWN.get(axis.kind)?.title;
}

/** @type {AxisViewFactory} */
export function makeAxisView(page, axis, labels, how) {
  return (DRAWN.get(axis.kind)?.make ?? bars)(page, axis, labels, how);
}

/** @type {AxisViewFactory} */
function bars(_page, _axis, labels) {
  const list = element("ol", { class: "heed-bars", "aria-label": "Weights of the keys" });
  const note = element("p", { class: "heed-hint" });
  return {
    body: element("div", {}, list, note),
    drawing: () => null,
    show(matrix, row) {
      const weights = rowOf(matrix, row);
      const before = row ? rowOf(matrix, row - 1) : new Float32Array(weights.length);
      const strongest = Float32Array.from(weights, (weight, i) => Math.max(Math.abs(weight), Math.abs(before[i])));
      const places = topIndices(strongest, MAX_BARS);
      list.replaceChildren(...places.map((place) => bar(labels[place], weights[place], before[place])));
      const left = weights.length - places.length;
      note.textContent = left > 0 ? `Shows the ${places.length} largest of ${weights.length.toLocaleString("en")} weights.` : "";
    },
  };
}

/**
 * @param {string} label
 * @param {number} weight
 * @param {number} before
 */
function bar(label, weight, before) {
  const now = element("i", { class: "heed-bar-current" });
  now.style.inlineSize = `${Math.min(Math.abs(weight), 1) * 100}%`;
  const then = element("i", { class: "heed-bar-previous" });
  then.style.inlineSize = `${Math.min(Math.abs(before), 1) * 100}%`;
  return element(
    "li", {}, element("span", { class: "heed-bar-label", dir: "auto" }, label),
    element("span", { class: "heed-bar", "aria-hidden": "true" }, then, now),
    element("span", { class: "heed-number" }, formatWeight(weight)),
  );
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
    this.body = element("div", {}, this.chooser, this.field);
  }

  /**
   * @param {Picture} picture
   * @param {AxisFacts} axis the axis of the keys
   * @param {boolean} own whether the queries are on the same axis
   */
  show(picture, axis, own) {
    this.picture = picture;
    if (axis !== this.axis || picture.layers.length !== this.views.length) {
      this.axis = axis;
      const how = own ? { pick: (/** @type {number} */ place) => this.go(place) } : {};
      this.views = picture.layers.map(() => makeAxisView(this.page, axis, picture.columns, how));
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

  /** The view of the first head as SVG; null if it has none. */
  drawing() {
    return this.views[0]?.drawing() ?? null;
  }
}
