// The lines of one query as an SVG file.

import { element, svgElement } from "./elements.js";
import { lineOpacity, visibleTokens } from "./lines.js";
import { serializeSvg } from "./exporting.js";
import { rowOf } from "./matrices.js";
import { PRINT_THEME } from "./painting.js";

/** @typedef {import("./types.js").Picture} Picture */

const ROW = 24;
const MIDDLE = 260;
const BOX = 11;

/**
 * @param {Picture} picture
 * @param {number} row the query
 * @returns {string}
 */
export function linesSvg(picture, row) {
  const { queries, columns } = visibleTokens(picture, row);
  const left = widest(queries.map((at) => picture.rows[at])) + 22;
  const boxes = picture.layers.length * (BOX + 2) + 8;
  const width = left + MIDDLE + boxes + widest(columns.map((at) => picture.columns[at])) + 24;
  const height = Math.max(queries.length, columns.length) * ROW + 16;
  const image = svgElement("svg", {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height,
    "font-family": PRINT_THEME.font, "font-size": 14, fill: PRINT_THEME.ink,
  }, svgElement("title", {}, `${picture.title}: ${picture.rows[row]}`));
  image.append(svgElement("rect", { width: "100%", height: "100%", fill: PRINT_THEME.surface }));
  queries.forEach((at, place) => {
    const y = place * ROW + ROW / 2 + 8;
    image.append(svgElement("text", {
      x: left - 8, y, "text-anchor": "end", "dominant-baseline": "central",
      "font-weight": at === row ? 600 : 400, fill: at === row ? PRINT_THEME.ink : PRINT_THEME.muted,
    }, picture.rows[at]));
  });
  columns.forEach((at, place) => {
    const y = place * ROW + ROW / 2 + 8;
    image.append(svgElement("text", { x: left + MIDDLE + boxes + 4, y, "dominant-baseline": "central" }, picture.columns[at]));
  });
  const from = queries.indexOf(row) * ROW + ROW / 2 + 8;
  picture.layers.forEach(({ matrix, colour, name }, layer) => {
    const group = svgElement("g", { fill: colour ?? PRINT_THEME.accent, stroke: "none" }, svgElement("title", {}, name));
    const weights = rowOf(matrix, row);
    const shift = (layer - (picture.layers.length - 1) / 2) * 2;
    columns.forEach((at, place) => {
      const strength = lineOpacity(weights[at]);
      if (strength < 0.02) return;
      const to = place * ROW + ROW / 2 + 8;
      group.append(
        svgElement("path", {
          d: `M ${left} ${from + shift} C ${left + MIDDLE * 0.4} ${from + shift}, ${left + MIDDLE * 0.6} ${to + shift}, ${left + MIDDLE} ${to + shift}`,
          fill: "none", stroke: colour ?? PRINT_THEME.accent, "stroke-width": 2, "stroke-opacity": strength.toFixed(3),
          "data-weight": Number(weights[at].toPrecision(6)), "data-column": at,
        }),
        svgElement("rect", {
          x: left + MIDDLE + 6 + layer * (BOX + 2), y: to - 8, width: BOX, height: 16, rx: 2, "fill-opacity": strength.toFixed(3),
        }),
      );
    });
    image.append(group);
  });
  return serializeSvg(image);
}

/** @param {string[]} texts */
function widest(texts) {
  const context = /** @type {CanvasRenderingContext2D} */ (element("canvas").getContext("2d"));
  context.font = `600 14px ${PRINT_THEME.font}`;
  return Math.ceil(texts.reduce((maximum, text) => Math.max(maximum, context.measureText(text).width), 0));
}
