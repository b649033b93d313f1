// Lines beside the labels of a matrix that join the pieces of one word.

import { svgElement } from "./elements.js";

/** @typedef {import("./picture.js").Drawing} Drawing */
/** @typedef {import("./picture.js").View} View */

// The distance of a line from the weights, and the gap at both of its ends.
const DISTANCE = 3;
const GAP = 2;

/**
 * The first and last piece of each word that has several.
 * @param {number[] | undefined} words the word of each token; −1 for none
 * @returns {[number, number][]}
 */
export function joinedPieces(words = []) {
  /** @type {[number, number][]} */
  const found = [];
  let first = 0;
  for (let at = 1; at <= words.length; at++) {
    if (at < words.length && words[at] >= 0 && words[at] === words[first]) continue;
    if (at - first > 1) found.push([first, at - 1]);
    first = at;
  }
  return found;
}

/**
 * The lines of the visible words: x and y of both ends.
 * @param {Drawing} drawing
 * @param {View} view
 * @returns {[number, number, number, number][]}
 */
function bracketLines(drawing, view) {
  const { layout, picture } = drawing;
  const cell = drawing.cells(view);
  /** @type {[number, number, number, number][]} */
  const lines = [];
  const side = layout.mirrored ? layout.left + layout.width + DISTANCE : layout.left - DISTANCE;
  for (const [first, last] of joinedPieces(picture.rowWords)) {
    const top = Math.max(drawing.rowTop(view, first) + GAP, layout.top);
    const bottom = Math.min(drawing.rowTop(view, last) + cell.height - GAP, layout.top + layout.height);
    if (bottom > top) lines.push([side, top, side, bottom]);
  }
  for (const [first, last] of joinedPieces(picture.columnWords)) {
    const edges = [drawing.columnLeft(view, first), drawing.columnLeft(view, last)];
    const left = Math.max(Math.min(...edges) + GAP, layout.left);
    const right = Math.min(Math.max(...edges) + cell.width - GAP, layout.left + layout.width);
    if (right > left) lines.push([left, layout.top - DISTANCE, right, layout.top - DISTANCE]);
  }
  return lines;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {Drawing} drawing
 * @param {View} view
 */
export function drawBrackets(context, drawing, view) {
  context.strokeStyle = drawing.theme.muted;
  context.lineWidth = 1.5;
  context.beginPath();
  for (const [x0, y0, x1, y1] of bracketLines(drawing, view)) {
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
  }
  context.stroke();
}

/**
 * @param {Drawing} drawing
 * @returns {Element[]}
 */
export function svgBrackets(drawing) {
  const round = (/** @type {number} */ number) => Math.round(number * 100) / 100;
  return bracketLines(drawing, { zoom: 1, x: 0, y: 0 }).map(([x1, y1, x2, y2]) => svgElement("line", {
    x1: round(x1), y1: round(y1), x2: round(x2), y2: round(y2), stroke: drawing.theme.muted, "stroke-width": 1.5, class: "word",
  }));
}
