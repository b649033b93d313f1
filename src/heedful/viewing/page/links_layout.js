// Where tokens and links are placed, and how large the text is. This module knows no page.

/** @typedef {import("./links_scene.js").Scene} Scene */
/** @typedef {import("./links_scene.js").Box} Box */

/**
 * The tokens of one side.
 * @typedef {object} Side
 * @property {number[]} widths of the labels, at a font size of 1
 * @property {boolean[]} joined whether a token continues the word of the previous token
 * @property {boolean} mirrored whether the text runs from right to left
 * @property {boolean} [even] whether they are frames of a sound, which fill a strip
 */

/**
 * @typedef {object} Room
 * @property {number} width
 * @property {number | null} height the height to fill; null to choose it
 * @property {boolean} causal
 * @property {number} strands
 */

/** @typedef {{scene: Scene, font: number, width: number, height: number}} Placed */

const PADDING = 0.3;
const GAP = 0.3;
const LINE = 1.75;
const SMALLEST = 13;
const LARGEST = 24;
const REACH = 210;
/** The height of the strip of frames. */
const STRIP = 60;

/**
 * Place keys above queries if both fit on a line, and beside them otherwise. Frames always fit.
 * @param {Side} keys
 * @param {Side | null} queries null if they are the same tokens as the keys, which are then joined by arcs
 * @param {Room} room
 * @returns {Placed}
 */
export function placeTokens(keys, queries, room) {
  const sides = queries && !queries.even ? [keys, queries] : [keys];
  const largest = room.height ? Math.max(LARGEST, room.height / 12) : LARGEST;
  const smallest = room.height ? Math.max(SMALLEST, room.height / 50) : SMALLEST;
  const font = Math.min(largest, ...sides.map((side) => room.width / lineWidth(side)));
  if (font >= smallest) return queries ? placeRows(keys, queries, room, font) : placeArcs(keys, room, font);
  return queries ? placeColumns(keys, queries, room) : placeColumnArcs(keys, room);
}

/**
 * @param {number} font
 * @param {Room} room
 */
function thickness(font, room) {
  return (font * 0.55) / Math.sqrt(room.strands);
}

/**
 * The width of a line at a font size of 1.
 * @param {Side} side
 */
function lineWidth({ widths, joined }) {
  const gaps = joined.filter((one, i) => i > 0 && !one).length * GAP;
  return widths.reduce((sum, width) => sum + width + 2 * PADDING, gaps) + 0.2;
}

/**
 * @param {Side} side
 * @param {number} font
 * @param {number} y
 * @param {number} width of the room
 * @returns {Box[]}
 */
function placeLine(side, font, y, width) {
  const words = Math.max(side.joined.filter((one, i) => i > 0 && !one).length, 1);
  const slack = Math.min((width - lineWidth(side) * font) / words, font * 1.2);
  const whole = lineWidth(side) * font + slack * words;
  let x = Math.max(0, (width - whole) / 2);
  return side.widths.map((own, i) => {
    if (i > 0 && !side.joined[i]) x += GAP * font + slack;
    const box = { x, y, width: (own + 2 * PADDING) * font, height: LINE * font };
    x += box.width;
    return side.mirrored ? { ...box, x: width - box.x - box.width } : box;
  });
}

/**
 * @param {Side} keys
 * @param {Side} queries
 * @param {Room} room
 * @param {number} font
 * @returns {Placed}
 */
function placeRows(keys, queries, room, font) {
  const line = LINE * font;
  const lower = queries.even ? STRIP : line;
  const band = room.height ? room.height - line - lower : Math.min(Math.max(room.width * 0.3, 150), 340);
  const strip = { x: 0, y: line + band, width: room.width, height: STRIP };
  const scene = {
    layout: /** @type {const} */ ("rows"), reach: 0, mirrored: keys.mirrored, thick: thickness(font, room),
    keys: placeLine(keys, font, 0, room.width),
    queries: queries.even ? placeEvenly(queries.widths.length, strip, true) : placeLine(queries, font, line + band, room.width),
  };
  return { scene, font, width: room.width, height: line + lower + band };
}

/**
 * Divide a box.
 * @param {number} count
 * @param {Box} box
 * @param {boolean} across whether the parts are beside each other
 * @returns {Box[]}
 */
function placeEvenly(count, { x, y, width, height }, across) {
  const [wide, high] = across ? [width / count, height] : [width, height / count];
  return Array.from({ length: count }, (_, i) => ({ x: x + (across ? i * wide : 0), y: y + (across ? 0 : i * high), width: wide, height: high }));
}

/**
 * @param {Side} tokens
 * @param {Room} room
 * @param {number} font
 * @returns {Placed}
 */
function placeArcs(tokens, room, font) {
  const line = LINE * font;
  const parts = room.causal ? 1 : 2;
  const reach = Math.min(room.height ? (room.height - line) / parts - 8 : REACH, room.width * 0.34);
  const above = reach + 8;
  const boxes = placeLine(tokens, font, above, room.width);
  const scene = {
    layout: /** @type {const} */ ("arcs"), reach, mirrored: tokens.mirrored, thick: thickness(font, room), keys: boxes, queries: boxes,
  };
  return { scene, font, width: room.width, height: above + line + (room.causal ? 22 : above) };
}

/**
 * The font size and line height of columns of tokens.
 * @param {number} count
 * @param {Room} room
 */
function columnFont(count, room) {
  const fitting = room.height ? room.height / count / 1.45 : count > 40 ? 14 : 16;
  const font = Math.min(Math.max(fitting, SMALLEST), room.height ? Math.max(LARGEST, room.height / 24) : 16);
  return { font, line: font * (count > 40 ? 1.4 : 1.55) };
}

/**
 * @param {Side} side
 * @param {number} font
 * @param {number} most
 */
function columnWidth(side, font, most) {
  return Math.min((Math.max(...side.widths, 0) + 2 * PADDING) * font + 2, most);
}

/**
 * @param {Side} keys
 * @param {Side} queries
 * @param {Room} room
 * @returns {Placed}
 */
function placeColumns(keys, queries, room) {
  const count = Math.max(keys.widths.length, queries.even ? 12 : queries.widths.length, 1);
  const { font, line } = columnFont(count, room);
  const left = columnWidth(keys, font, room.width * 0.4);
  const right = queries.even ? STRIP : columnWidth(queries, font, room.width * 0.4);
  const band = Math.min(room.width - left - right, Math.max(440, room.width * 0.4));
  const start = (room.width - left - band - right) / 2;
  const mirrored = keys.mirrored;
  /**
   * @param {Side} side
   * @param {number} x
   * @param {number} width
   * @returns {Box[]}
   */
  const place = (side, x, width) => side.widths.map((_, i) => ({
    x: mirrored ? room.width - x - width : x, y: ((count - side.widths.length) / 2 + i) * line, width, height: line,
  }));
  const scene = {
    layout: /** @type {const} */ ("columns"), reach: 0, mirrored, thick: thickness(font, room),
    keys: place(keys, start, left),
    queries: queries.even
      ? placeEvenly(queries.widths.length, { x: mirrored ? start : start + left + band, y: 0, width: right, height: count * line }, false)
      : place(queries, start + left + band, right),
  };
  return { scene, font, width: room.width, height: count * line };
}

/**
 * @param {Side} tokens
 * @param {Room} room
 * @returns {Placed}
 */
function placeColumnArcs(tokens, room) {
  const { font, line } = columnFont(Math.max(tokens.widths.length, 1), room);
  const width = columnWidth(tokens, font, room.width * 0.45);
  const parts = room.causal ? 1 : 2;
  const reach = Math.min((room.width - width) / parts - 8, Math.max(360, room.width * 0.3));
  const before = room.causal && !tokens.mirrored ? 0 : reach + 8;
  const start = Math.max(0, (room.width - width - (reach + 8) * parts) / 2) + (room.causal && tokens.mirrored ? reach + 8 : room.causal ? 0 : before);
  const boxes = tokens.widths.map((_, i) => ({ x: start, y: 12 + i * line, width, height: line }));
  const scene = {
    layout: /** @type {const} */ ("column-arcs"), reach, mirrored: tokens.mirrored, thick: thickness(font, room), keys: boxes, queries: boxes,
  };
  return { scene, font, width: room.width, height: 24 + boxes.length * line };
}
