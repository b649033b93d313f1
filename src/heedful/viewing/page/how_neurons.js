// The comparison component by component: a query, keys, and their products, whose sum is q · k.

import { largestKeys } from "./equation_math.js";
import { element } from "./elements.js";
import { formatSigned, topIndices } from "./matrices.js";
import { renderWeights, themeOf } from "./painting.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").EquationRow} EquationRow */
/** @typedef {import("./how_equation.js").Names} Names */

const MOST_KEYS = 16;
const LISTED = 3;

/**
 * What each component adds to the comparison of a query and a key.
 * @param {EquationRow} row with the score "dot" or "additive"
 * @param {number} key
 * @returns {number[]} their sum is the product q · k, or vᵀ tanh(q + k)
 */
export function componentsOf(row, key) {
  const { query, vector } = row;
  if (vector) return row.keys[key].map((number, i) => vector[i] * Math.tanh(query[i] + number));
  return row.keys[key].map((number, i) => query[i] * number);
}

export class NeuronView {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** @type {EquationRow | null} */
    this.row = null;
    /** @type {Names} */
    this.names = { query: "", keys: [] };
    this.table = element("table", { class: "heed-neurons" });
    this.readout = element("p", { class: "heed-readout", "aria-live": "polite" });
    this.about = element("p", { class: "heed-hint" });
    this.body = element(
      "section", { class: "heed-neuron-section", "aria-label": "Component by component", hidden: true },
      element("h3", { class: "heed-picture-title" }, "Component by component"), this.about,
      element("div", { class: "heed-scrolled", tabindex: 0, role: "region", "aria-label": "Query, keys and their products" }, this.table), this.readout,
    );
    page.onTheme(() => this.draw());
  }

  /**
   * @param {EquationRow | null} row
   * @param {Names} [names]
   */
  show(row, names) {
    this.row = row && row.score !== "other" ? row : null;
    if (names) this.names = names;
    this.body.hidden = this.row === null;
    this.draw();
  }

  draw() {
    const { row, names } = this;
    if (!row) return;
    const additive = row.score === "additive";
    const shown = largestKeys(row.weights, MOST_KEYS);
    const hidden = row.keys.length - shown.length;
    const what = additive ? "v ∘ tanh(q + k)" : "q ∘ k";
    this.about.textContent = `Each column is one of the ${row.query.length} components. The sum of a row of ${what} is the comparison above; green is positive, orange negative.`
      + (hidden ? ` ${hidden} keys with small weights are hidden.` : "");
    const products = shown.map((key) => componentsOf(row, key));
    const peak = largest(products);
    const keyPeak = largest([row.query, ...shown.map((key) => row.keys[key])]);
    const head = element(
      "tr", {}, element("td", {}), element("th", { scope: "col" }, "Query and keys"), element("th", { scope: "col" }, what), element("th", { scope: "col" }, "Sum"),
    );
    const query = element("tr", {}, element("th", { scope: "row", dir: "auto" }, `q: ${names.query}`), element("td", {}, this.strip(row.query, keyPeak, `Query ${names.query}`)), element("td", {}), element("td", {}));
    const rows = shown.map((key, i) => element(
      "tr", {}, element("th", { scope: "row", dir: "auto" }, names.keys[key]),
      element("td", {}, this.strip(row.keys[key], keyPeak, `Key ${names.keys[key]}`)),
      element("td", {}, this.products(products[i], peak, key)),
      element("td", { class: "heed-number" }, formatSigned(products[i].reduce((all, one) => all + one, 0), 2)),
    ));
    this.table.replaceChildren(element("thead", {}, head), element("tbody", {}, query, ...rows));
    this.readout.textContent = shown.length ? this.sentence(shown[0], products[0]) : "";
  }

  /**
   * Numbers as colours.
   * @param {number[]} numbers
   * @param {number} peak
   * @param {string} name
   */
  strip(numbers, peak, name) {
    const canvas = renderWeights({ rows: 1, columns: numbers.length, values: Float32Array.from(numbers), peak }, themeOf(this.page.root), { mirrored: false, peak });
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `${name}: ${numbers.length} numbers between ${formatSigned(-peak, 2)} and ${formatSigned(peak, 2)}`);
    return canvas;
  }

  /**
   * The products of a key; pointing at a component, or focusing the row, shows its numbers.
   * @param {number[]} numbers
   * @param {number} peak
   * @param {number} key
   */
  products(numbers, peak, key) {
    const canvas = this.strip(numbers, peak, `Products with ${this.names.keys[key]}`);
    canvas.tabIndex = 0;
    canvas.addEventListener("focus", () => (this.readout.textContent = this.sentence(key, numbers)));
    canvas.addEventListener("pointerleave", () => (this.readout.textContent = this.sentence(key, numbers)));
    canvas.addEventListener("pointermove", (event) => {
      const { left, width } = canvas.getBoundingClientRect();
      const at = Math.min(numbers.length - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * numbers.length)));
      this.readout.textContent = `${this.names.query} → ${this.names.keys[key]}: ${this.term(key, at, numbers)}.`;
    });
    return canvas;
  }

  /**
   * The numbers of one component.
   * @param {number} key
   * @param {number} at
   * @param {number[]} numbers
   */
  term(key, at, numbers) {
    const row = /** @type {EquationRow} */ (this.row);
    const [q, k, product] = [row.query[at], row.keys[key][at], numbers[at]].map((number) => formatSigned(number, 2));
    if (row.vector) return `component ${at + 1}: ${formatSigned(row.vector[at], 2)} × tanh(${q} + ${k}) = ${product}`;
    return `component ${at + 1}: ${q} × ${k} = ${product}`;
  }

  /**
   * The components that add the most.
   * @param {number} key
   * @param {number[]} numbers
   */
  sentence(key, numbers) {
    const best = topIndices(numbers.map(Math.abs), Math.min(LISTED, numbers.length)).sort((a, b) => Math.abs(numbers[b]) - Math.abs(numbers[a]));
    return `${this.names.query} → ${this.names.keys[key]}, the largest: ${best.map((at) => this.term(key, at, numbers)).join("; ")}.`;
  }
}

/** @param {number[][]} all */
function largest(all) {
  return Math.max(...all.map((numbers) => Math.max(...numbers.map(Math.abs))), 1e-9);
}
