// Attention of one word: lines to the words it attends to, one colour per head.

import { element, focusItem, roving, svgElement } from "./elements.js";
import { around, largest, rowOf, runsRightToLeft, written } from "./matrices.js";
import { themeOf } from "./painting.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Picture} Picture */

const ROW = 30;
const MIDDLE = 260;
// Maximum number of words shown; others are left out.
const LONG = 60;
const SOME = 24;

export class LinesView {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    this.row = 0;
    /** @type {Picture | null} */
    this.picture = null;
    this.queries = element("div", { class: "heed-tokens heed-queries", role: "listbox", "aria-label": "Queries" });
    this.keys = element("ol", { class: "heed-tokens heed-keys", "aria-label": "Keys" });
    this.drawing = svgElement("svg", { class: "heed-lines-drawing", "aria-hidden": "true", preserveAspectRatio: "none" });
    this.note = element("p", { class: "heed-hint" });
    this.body = element(
      "div", { class: "heed-lines" },
      element("div", { class: "heed-lines-field" }, this.queries, this.drawing, this.keys), this.note,
    );
    roving(this.queries, "button", () => 1, (button) => this.choose(Number(button.dataset.row)));
    page.onTheme(() => this.draw());
  }

  /** @param {Picture} picture */
  show(picture) {
    this.picture = picture;
    this.row = Math.min(this.row, Math.max(picture.rows.length - 1, 0));
    this.draw();
  }

  /** @param {number} row @param {boolean} [focus] */
  choose(row, focus = true) {
    this.row = row;
    this.draw();
    const items = /** @type {HTMLElement[]} */ ([...this.queries.querySelectorAll("button")]);
    if (focus) focusItem(items, items.findIndex((item) => Number(item.dataset.row) === row));
    if (this.picture) this.page.announce(`${this.picture.rows[row]}: ${this.said().join(", ")}`);
  }

  /** Describes the largest weights of the selected row. */
  said() {
    const { picture } = this;
    if (!picture) return [];
    const totals = this.totals(picture);
    return largest(totals, 3)
      .sort((a, b) => totals[b] - totals[a])
      .map((column) => `${picture.columns[column]} ${written(totals[column])}`);
  }

  /** @param {Picture} picture */
  totals(picture) {
    return totalsOf(picture, this.row);
  }

  draw() {
    const { picture } = this;
    if (!picture || !picture.rows.length) return;
    const { queries, columns } = shownOf(picture, this.row);
    this.queries.replaceChildren(...queries.map((row) => this.query(picture, row)));
    this.keys.replaceChildren(...columns.map((column, at) => this.key(picture, column, columns[at - 1])));
    this.drawLines(picture, queries, columns);
    const left = picture.columns.length - columns.length;
    this.note.textContent = left > 0
      ? `The ${columns.length} largest of ${picture.columns.length.toLocaleString("en")} weights are shown, in text order; `
        + `a dotted line marks omitted words.`
      : "Choose a word on the left. Boxes on the right show the weight of each head.";
  }

  /** @param {Picture} picture @param {number} row */
  query(picture, row) {
    const chosen = row === this.row;
    return element("button", {
      type: "button", role: "option", "aria-selected": String(chosen), tabindex: chosen ? 0 : -1, dir: "auto",
      "data-row": row, onclick: () => this.choose(row),
    }, picture.rows[row]);
  }

  /** @param {Picture} picture @param {number} column @param {number | undefined} before */
  key(picture, column, before) {
    const theme = themeOf(this.page.root);
    const boxes = picture.layers.map(({ name, matrix, colour }) => {
      const weight = rowOf(matrix, this.row)[column];
      const box = element("i", { title: `${name}: ${written(weight)}` });
      box.style.background = colour ?? theme.accent;
      box.style.opacity = String(share(weight));
      return element("span", { class: "heed-box" }, box);
    });
    const gap = before !== undefined && column > before + 1;
    const weights = picture.layers.map(({ name, matrix }) => `${name} ${written(rowOf(matrix, this.row)[column])}`);
    return element(
      "li", { class: gap ? "heed-gap" : null, "aria-label": `${picture.columns[column]}: ${weights.join(", ")}` },
      element("span", { class: "heed-boxes" }, ...boxes), element("span", { dir: "auto" }, picture.columns[column]),
    );
  }

  /** @param {Picture} picture @param {number[]} queries @param {number[]} columns */
  drawLines(picture, queries, columns) {
    const theme = themeOf(this.page.root);
    const height = Math.max(queries.length, columns.length) * ROW;
    this.drawing.setAttribute("viewBox", `0 0 ${MIDDLE} ${height}`);
    this.drawing.style.height = `${height}px`;
    this.drawing.replaceChildren();
    const from = queries.indexOf(this.row) * ROW + ROW / 2;
    picture.layers.forEach(({ matrix, colour }, layer) => {
      const weights = rowOf(matrix, this.row);
      columns.forEach((column, at) => {
        const strength = share(weights[column]);
        if (strength < 0.02) return;
        const spread = (layer - (picture.layers.length - 1) / 2) * 2.2;
        const to = at * ROW + ROW / 2 + spread;
        const line = svgElement("path", {
          d: `M 0 ${from + spread} C ${MIDDLE * 0.4} ${from + spread}, ${MIDDLE * 0.6} ${to}, ${MIDDLE} ${to}`,
          stroke: colour ?? theme.accent, "stroke-opacity": strength.toFixed(3), "stroke-width": 2.4, fill: "none",
          "vector-effect": "non-scaling-stroke", "data-weight": weights[column], "data-column": column,
        });
        this.drawing.append(line);
      });
    });
    this.body.classList.toggle("heed-right-to-left", runsRightToLeft(picture.rows));
  }
}

/**
 * The opacity of a weight.
 * @param {number} weight
 */
export function share(weight) {
  return Math.pow(Math.min(Math.abs(weight), 1), 0.7);
}

/**
 * The total weight of each column in a row: the mean over layers.
 * @param {Picture} picture
 * @param {number} row
 * @returns {Float32Array}
 */
export function totalsOf(picture, row) {
  const totals = new Float32Array(picture.columns.length);
  for (const { matrix } of picture.layers) {
    rowOf(matrix, row).forEach((weight, column) => (totals[column] += Math.abs(weight) / picture.layers.length));
  }
  return totals;
}

/**
 * The visible rows and columns: all, or in a long text rows near the selected one and columns with the largest weights.
 * @param {Picture} picture
 * @param {number} row
 */
export function shownOf(picture, row) {
  const [queries, keys] = [picture.rows.length, picture.columns.length];
  return {
    queries: around(row, queries, queries > LONG ? SOME : LONG),
    columns: largest(totalsOf(picture, row), keys > LONG ? SOME : LONG),
  };
}
