// The attention of one query as lines to the keys, with one colour per head.

import { element, focusItem, rovingTabindex, svgElement } from "./elements.js";
import { windowAround, topIndices, rowOf, isRightToLeft, formatWeight } from "./matrices.js";
import { themeOf } from "./painting.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Picture} Picture */

const ROW = 30;
const MIDDLE = 260;
// For longer texts, show only some of the tokens.
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
    rovingTabindex(this.queries, "button", () => 1, (button) => this.choose(Number(button.dataset.row)));
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
    if (this.picture) this.page.announce(`${this.picture.rows[row]}: ${this.topWeights().join(", ")}`);
  }

  /** The largest weights of the selected row, as texts. */
  topWeights() {
    const { picture } = this;
    if (!picture) return [];
    const totals = this.totals(picture);
    return topIndices(totals, 3)
      .sort((a, b) => totals[b] - totals[a])
      .map((column) => `${picture.columns[column]} ${formatWeight(totals[column])}`);
  }

  /** @param {Picture} picture */
  totals(picture) {
    return meanWeights(picture, this.row);
  }

  draw() {
    const { picture } = this;
    if (!picture || !picture.rows.length) return;
    const { queries, columns } = visibleTokens(picture, this.row);
    this.queries.replaceChildren(...queries.map((row) => this.query(picture, row)));
    this.keys.replaceChildren(...columns.map((column, at) => this.key(picture, column, columns[at - 1])));
    this.drawLines(picture, queries, columns);
    const left = picture.columns.length - columns.length;
    this.note.textContent = left > 0
      ? `Shows the ${columns.length} largest of ${picture.columns.length.toLocaleString("en")} weights in the order of the text; `
        + `a dotted line marks omitted keys.`
      : "Select a token on the left. The boxes on the right show the weight of each head.";
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
      const box = element("i", { title: `${name}: ${formatWeight(weight)}` });
      box.style.background = colour ?? theme.accent;
      box.style.opacity = String(lineOpacity(weight));
      return element("span", { class: "heed-box" }, box);
    });
    const gap = before !== undefined && column > before + 1;
    const weights = picture.layers.map(({ name, matrix }) => `${name} ${formatWeight(rowOf(matrix, this.row)[column])}`);
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
        const strength = lineOpacity(weights[column]);
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
    this.body.classList.toggle("heed-right-to-left", isRightToLeft(picture.rows));
  }
}

/**
 * The opacity of the line for a weight.
 * @param {number} weight
 */
export function lineOpacity(weight) {
  return Math.pow(Math.min(Math.abs(weight), 1), 0.7);
}

/**
 * The mean absolute weight of each key over the layers, for one row.
 * @param {Picture} picture
 * @param {number} row
 * @returns {Float32Array}
 */
export function meanWeights(picture, row) {
  const totals = new Float32Array(picture.columns.length);
  for (const { matrix } of picture.layers) {
    rowOf(matrix, row).forEach((weight, column) => (totals[column] += Math.abs(weight) / picture.layers.length));
  }
  return totals;
}

/**
 * The visible rows and columns: all, or for long texts the rows around the selected one and the columns with the
 * largest weights.
 * @param {Picture} picture
 * @param {number} row
 */
export function visibleTokens(picture, row) {
  const [queries, keys] = [picture.rows.length, picture.columns.length];
  return {
    queries: windowAround(row, queries, queries > LONG ? SOME : LONG),
    columns: topIndices(meanWeights(picture, row), keys > LONG ? SOME : LONG),
  };
}
