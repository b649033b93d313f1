// The line below a matrix: the weight at the cursor, or what the picture shows and what it leaves out.

import { element } from "./elements.js";
import { isRightToLeft, formatWeight } from "./matrices.js";

/** @typedef {import("./picture.js").Drawing} Drawing */
/** @typedef {{rows: number, columns: number}} Hidden numbers of rows and columns outside the visible part */

/**
 * @param {HTMLElement} readout
 * @param {Drawing} drawing
 * @param {import("./picture.js").View} view
 * @param {{row: number, column: number} | null} cursor
 * @param {{hidden: Hidden, zooms: boolean}} state
 */
export function fillReadout(readout, drawing, view, cursor, { hidden, zooms }) {
  const { picture } = drawing;
  readout.classList.toggle("heed-idle", !cursor);
  if (!cursor) {
    const hint = zooms ? " Zoom with Ctrl + wheel, + and −; drag to move." : "";
    const order = isRightToLeft(picture.columns) ? ", from right to left" : "";
    const masked = picture.causal ? "Hatched cells are masked: no position reads a later one. " : "";
    readout.textContent = `${masked}Rows: ${picture.rowTitle}. Columns: ${picture.columnTitle}${order}. `
      + `Point at a cell, or use the arrow keys.${hint}${leftOut(drawing, view, hidden)}`;
    return;
  }
  const [{ matrix }] = picture.layers;
  const weight = matrix.values[cursor.row * picture.columns.length + cursor.column];
  const said = picture.causal && cursor.column > cursor.row ? "masked" : formatWeight(weight);
  const more = picture.bars.map((bars) => `${bars.title} ${bars.values[cursor.row]?.toFixed(2)}${bars.unit}`);
  // Isolate the direction of each text, so that scripts do not mix.
  readout.replaceChildren(
    element("bdi", {}, picture.rows[cursor.row]), " → ", element("bdi", {}, picture.columns[cursor.column]),
    "  ", element("strong", {}, said), more.length ? `   ${more.join(" · ")}` : "",
  );
}

/**
 * What is outside the visible part, and which labels are shown if there is no space for all of them.
 * @param {Drawing} drawing
 * @param {import("./picture.js").View} view
 * @param {Hidden} hidden
 */
function leftOut(drawing, view, hidden) {
  const { layout, picture } = drawing;
  const cell = drawing.cells(view);
  const parts = [];
  if (hidden.rows) parts.push(`${number(hidden.rows)} of ${number(picture.rows.length)} rows`);
  if (hidden.columns) parts.push(`${number(hidden.columns)} of ${number(picture.columns.length)} columns`);
  const outside = parts.length ? ` ${parts.join(" and ")} are outside the visible part.` : "";
  const every = (/** @type {number} */ size) => Math.max(1, Math.ceil((layout.font * 1.06) / size));
  const [down, across] = [every(cell.height), every(cell.width)];
  if (down === 1 && across === 1) return outside;
  return `${outside} Not all labels fit: shown are 1 of ${down} rows and 1 of ${across} columns.`;
}

/** @param {number} value */
function number(value) {
  return value.toLocaleString("en");
}
