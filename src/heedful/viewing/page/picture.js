// Draws a matrix with its labels on a canvas, for the screen and for PNG files.

import { hatchMasked } from "./masked_cells.js";
import { isRightToLeft } from "./matrices.js";
import { peakOf, renderWeights } from "./painting.js";
import { drawBrackets } from "./word_brackets.js";

/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./painting.js").Theme} Theme */

/**
 * Positions and sizes, in CSS pixels.
 * @typedef {object} Layout
 * @property {boolean} mirrored whether columns run from right to left
 * @property {number} left left edge of the weights
 * @property {number} top top edge of the weights
 * @property {number} cellWidth at zoom 1
 * @property {number} cellHeight
 * @property {number} width width of the weights, or of the visible part
 * @property {number} height
 * @property {number} totalWidth
 * @property {number} totalHeight
 * @property {number} font
 * @property {boolean} upright whether column labels are vertical, because cells are narrow
 * @property {boolean} flat whether column labels are horizontal, because all are shorter than a cell
 * @property {number} barLeft
 * @property {number} bar length of the longest bar
 */

/** @typedef {{zoom: number, x: number, y: number}} View x and y: the first visible column and row */

const SLANT = Math.PI / 3.6;
const GAP = 10;

/**
 * @param {CanvasRenderingContext2D} context measures texts
 * @param {Picture} picture
 * @param {{width: number, height: number, cell: number, font: number, family: string, least?: number, tall?: number}} room
 *   `least` is the smallest side of a cell; a part of the weights is then hidden if more than `tall` pixels are needed
 * @returns {Layout}
 */
export function computeLayout(context, picture, room) {
  const { font } = room;
  context.font = `${font}px ${room.family}`;
  const rows = Math.max(picture.rows.length, 1);
  const columns = Math.max(picture.columns.length, 1);
  const mirrored = isRightToLeft(picture.columns);
  const rowGutter = Math.min(maxTextWidth(context, picture.rows), Math.max(room.width * 0.3, 60)) + 10;
  const bar = room.width < 480 ? 24 : 54;
  // The title of the last bars is longer than they are.
  const titles = maxTextWidth(context, picture.bars.map((one) => one.title)) * Math.cos(SLANT) + font - bar;
  const bars = picture.bars.length ? picture.bars.length * (bar + GAP) + 4 + Math.max(0, titles) : 0;
  const reach = maxTextWidth(context, [...picture.columns, ...picture.bars.map((one) => one.title)]);
  const label = Math.min(reach, 150);
  const free = room.width - rowGutter - bars - 8;
  const slanted = (free - Math.max(0, label * Math.cos(SLANT) - bars)) / columns >= font * 1.5;
  const overhang = slanted ? Math.max(0, label * Math.cos(SLANT) - bars) : 0;
  const top = (slanted ? label * Math.sin(SLANT) + font * 0.6 : label) + 12;
  let cellWidth = Math.min(room.cell, (free - overhang) / columns);
  let cellHeight = Math.min(room.cell, (room.height - top) / rows);
  // Cells are square, unless one side would then be too short.
  const square = Math.min(cellWidth, cellHeight);
  if (square * Math.max(rows, columns) > 24 || square >= 8) {
    if (Math.min(rows, columns) * square > 160 || square >= 8) cellWidth = cellHeight = square;
  }
  // Cells are a little higher than wide if all row labels then fit.
  const readable = font * 1.2;
  if (cellHeight >= readable * 0.5 && cellHeight < readable && readable * rows <= room.height - top) cellHeight = readable;
  const { least = 0, tall = Infinity } = room;
  cellWidth = Math.max(cellWidth, least);
  cellHeight = Math.max(cellHeight, least);
  const flat = !picture.bars.length && maxTextWidth(context, picture.columns) <= cellWidth - 2;
  const width = least ? Math.min(cellWidth * columns, Math.max(free - overhang, 2 * least)) : cellWidth * columns;
  const height = Math.min(cellHeight * rows, tall);
  const totalWidth = rowGutter + width + Math.max(bars, overhang) + 4;
  return {
    mirrored,
    left: mirrored ? Math.max(bars, overhang) + 4 : rowGutter,
    top: flat ? font + 14 : top,
    flat,
    cellWidth,
    cellHeight,
    width,
    height,
    totalWidth,
    totalHeight: (flat ? font + 14 : top) + height + (picture.marked === undefined ? 4 : 14),
    font,
    upright: !slanted,
    barLeft: mirrored ? 4 : rowGutter + width + GAP + 4,
    bar,
  };
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string[]} texts
 */
function maxTextWidth(context, texts) {
  let maximum = 0;
  // Measuring thousands of labels is slow, so only those with the most characters are measured.
  const candidates = texts.length > 64 ? [...texts].sort((a, b) => b.length - a.length).slice(0, 64) : texts;
  for (const text of candidates) maximum = Math.max(maximum, context.measureText(text).width);
  return Math.ceil(maximum);
}

/**
 * One picture for each layer, with a common scale of colours and the layer's name as title.
 * @param {Picture} picture
 * @returns {Picture[]}
 */
export function panelsOf(picture) {
  if (picture.layers.length < 2) return [picture];
  return picture.layers.map((layer) => ({ ...picture, title: layer.name, layers: [layer], bars: [], peak: peakOf(picture) }));
}

/** Draws a picture of one layer and caches the image of its weights while only the view changes. */
export class Drawing {
  /**
   * @param {Picture} picture
   * @param {Layout} layout
   * @param {Theme} theme
   */
  constructor(picture, layout, theme) {
    this.picture = picture;
    this.layout = layout;
    this.theme = theme;
    /** @type {Map<string, HTMLCanvasElement>} */
    this.rendered = new Map();
  }

  /**
   * @param {CanvasRenderingContext2D} context
   * @param {View} view
   * @param {{row: number, column: number} | null} cursor
   */
  draw(context, view, cursor) {
    const { layout, theme } = this;
    context.fillStyle = theme.surface;
    context.fillRect(0, 0, layout.totalWidth, layout.totalHeight);
    this.drawWeights(context, view);
    if (this.picture.marked !== undefined) this.drawMarked(context, view, this.picture.marked);
    if (cursor) this.drawCursor(context, view, cursor);
    drawBrackets(context, this, view);
    this.drawRowLabels(context, view, cursor);
    this.drawColumnLabels(context, view, cursor);
    this.picture.bars.forEach((_, i) => this.drawBars(context, view, i));
  }

  /** @param {View} view */
  cells(view) {
    const width = this.layout.cellWidth * view.zoom;
    const height = this.layout.cellHeight * view.zoom;
    return { width, height, across: this.layout.width / width, down: this.layout.height / height };
  }

  /**
   * The left edge of a column; if mirrored, columns are counted from the right.
   * @param {View} view
   * @param {number} column
   */
  columnLeft(view, column) {
    const { width } = this.cells(view);
    const offset = (column - view.x) * width;
    const { layout } = this;
    return layout.mirrored ? layout.left + layout.width - offset - width : layout.left + offset;
  }

  /** @param {View} view @param {number} row */
  rowTop(view, row) {
    return this.layout.top + (row - view.y) * this.cells(view).height;
  }

  /** @param {CanvasRenderingContext2D} context @param {View} view */
  drawWeights(context, view) {
    const { layout, theme, picture } = this;
    if (!picture.layers.length || !picture.rows.length || !picture.columns.length) return;
    const cell = this.cells(view);
    const down = Math.max(1, Math.floor(1 / cell.height));
    const across = Math.max(1, Math.floor(1 / cell.width));
    const key = `${down} ${across}`;
    let image = this.rendered.get(key);
    if (!image) {
      const how = { mirrored: layout.mirrored, byRow: picture.byRow, peak: peakOf(picture), down, across };
      image = renderWeights(picture.layers[0].matrix, theme, how);
      this.rendered.set(key, image);
    }
    const first = layout.mirrored ? picture.columns.length - view.x - cell.across : view.x;
    context.imageSmoothingEnabled = false;
    context.drawImage(
      image, first / across, view.y / down, cell.across / across, cell.down / down,
      layout.left, layout.top, layout.width, layout.height,
    );
    if (picture.causal) hatchMasked(context, this, view);
    context.strokeStyle = theme.surface;
    context.lineWidth = 1;
    if (Math.min(cell.width, cell.height) >= 12) this.drawGrid(context, view);
    context.strokeStyle = theme.line;
    const wide = Math.min(layout.width, picture.columns.length * cell.width);
    const left = layout.mirrored ? layout.left + layout.width - wide : layout.left;
    const high = Math.min(layout.height, picture.rows.length * cell.height);
    context.strokeRect(left - 0.5, layout.top - 0.5, wide + 1, high + 1);
  }

  /** @param {CanvasRenderingContext2D} context @param {View} view */
  drawGrid(context, view) {
    const { layout } = this;
    const cell = this.cells(view);
    context.beginPath();
    for (let row = Math.ceil(view.y); row < view.y + cell.down; row++) {
      const y = Math.round(this.rowTop(view, row)) + 0.5;
      context.moveTo(layout.left, y);
      context.lineTo(layout.left + layout.width, y);
    }
    for (let column = Math.ceil(view.x); column < view.x + cell.across; column++) {
      const edge = this.columnLeft(view, column) + (layout.mirrored ? cell.width : 0);
      const x = Math.round(edge) + 0.5;
      context.moveTo(x, layout.top);
      context.lineTo(x, layout.top + layout.height);
    }
    context.stroke();
  }

  /**
   * A frame around a column, and a handle above it.
   * @param {CanvasRenderingContext2D} context
   * @param {View} view
   * @param {number} column
   */
  drawMarked(context, view, column) {
    const { layout, theme } = this;
    const width = Math.max(this.cells(view).width, 3);
    const x = this.columnLeft(view, column);
    if (x + width < layout.left || x > layout.left + layout.width) return;
    context.strokeStyle = theme.ink;
    context.lineWidth = 2;
    context.strokeRect(x, layout.top - 1, width, layout.height + 2);
    context.fillStyle = theme.ink;
    context.beginPath();
    context.moveTo(x + width / 2 - 6, layout.top + layout.height + 10);
    context.lineTo(x + width / 2 + 6, layout.top + layout.height + 10);
    context.lineTo(x + width / 2, layout.top + layout.height + 2);
    context.fill();
  }

  /** @param {CanvasRenderingContext2D} context @param {View} view @param {{row: number, column: number}} cursor */
  drawCursor(context, view, cursor) {
    const { layout, theme } = this;
    const cell = this.cells(view);
    context.save();
    context.beginPath();
    context.rect(layout.left, layout.top, layout.width, layout.height);
    context.clip();
    const x = this.columnLeft(view, cursor.column);
    const y = this.rowTop(view, cursor.row);
    context.fillStyle = theme.ink;
    context.globalAlpha = 0.07;
    context.fillRect(layout.left, y, layout.width, Math.max(cell.height, 1));
    context.fillRect(x, layout.top, Math.max(cell.width, 1), layout.height);
    context.globalAlpha = 1;
    context.strokeStyle = theme.ink;
    context.lineWidth = 2;
    context.strokeRect(x, y, Math.max(cell.width, 3), Math.max(cell.height, 3));
    context.restore();
  }

  /** @param {CanvasRenderingContext2D} context @param {View} view @param {{row: number, column: number} | null} cursor */
  drawRowLabels(context, view, cursor) {
    const { layout, theme, picture } = this;
    const cell = this.cells(view);
    const step = Math.max(1, Math.ceil((layout.font * 1.06) / cell.height));
    const x = layout.mirrored ? layout.left + layout.width + 7 : layout.left - 7;
    context.textBaseline = "middle";
    context.textAlign = layout.mirrored ? "left" : "right";
    const room = layout.mirrored ? layout.totalWidth - x : layout.left - 8;
    for (const row of labelIndices(view.y, cell.down, step, picture.rows.length, cursor?.row)) {
      const y = this.rowTop(view, row) + cell.height / 2;
      if (y < layout.top || y > layout.top + layout.height) continue;
      if (overlapsLabel(row, cursor?.row, step)) continue;
      this.setLabel(context, row === cursor?.row, theme);
      drawText(context, truncate(context, picture.rows[row], room), x, y);
    }
  }

  /** @param {CanvasRenderingContext2D} context @param {View} view @param {{row: number, column: number} | null} cursor */
  drawColumnLabels(context, view, cursor) {
    const { layout, theme, picture } = this;
    const cell = this.cells(view);
    const step = Math.max(1, Math.ceil((layout.font * 1.06) / cell.width));
    for (const column of labelIndices(view.x, cell.across, step, picture.columns.length, cursor?.column)) {
      const x = this.columnLeft(view, column) + cell.width / 2;
      if (x < layout.left || x > layout.left + layout.width) continue;
      if (overlapsLabel(column, cursor?.column, step)) continue;
      this.setLabel(context, column === cursor?.column || column === picture.marked, theme);
      this.drawColumnLabel(context, picture.columns[column], x);
    }
  }

  /**
   * Draw a label above the top edge.
   * @param {CanvasRenderingContext2D} context
   * @param {string} text
   * @param {number} x
   */
  drawColumnLabel(context, text, x) {
    const { layout } = this;
    const flag = labelPlacement(layout);
    context.save();
    context.translate(x, layout.top - (layout.flat ? 11 : 6));
    context.rotate(flag.turn);
    context.textAlign = flag.align;
    context.textBaseline = "middle";
    drawText(context, truncate(context, text, 150), 0, 0);
    context.restore();
  }

  /** @param {CanvasRenderingContext2D} context @param {boolean} strong @param {Theme} theme */
  setLabel(context, strong, theme) {
    context.font = `${strong ? "600 " : ""}${this.layout.font}px ${theme.font}`;
    context.fillStyle = strong ? theme.accent : theme.ink;
  }

  /** @param {CanvasRenderingContext2D} context @param {View} view @param {number} place */
  drawBars(context, view, place) {
    const { layout, theme, picture } = this;
    const bars = picture.bars[place];
    const cell = this.cells(view);
    const { bar } = layout;
    const x = layout.barLeft + place * (bar + GAP);
    this.setLabel(context, false, theme);
    context.fillStyle = theme.muted;
    this.drawColumnLabel(context, bars.title, layout.mirrored ? x + bar - layout.font / 2 : x + layout.font / 2);
    const thick = Math.min(Math.max(cell.height * 0.42, 1), 10);
    for (let row = Math.floor(view.y); row < Math.min(view.y + cell.down, bars.values.length); row++) {
      const y = this.rowTop(view, row) + cell.height / 2;
      if (y < layout.top || y > layout.top + layout.height) continue;
      const long = bars.max ? Math.min(bars.values[row] / bars.max, 1) * bar : 0;
      context.fillStyle = theme.line;
      context.fillRect(x, y - thick / 2, bar, thick);
      context.fillStyle = theme.muted;
      context.fillRect(layout.mirrored ? x + bar - long : x, y - thick / 2, long, thick);
    }
  }
}

/**
 * The rotation and alignment of column labels.
 * @param {Layout} layout
 * @returns {{turn: number, align: "left" | "right" | "center"}}
 */
export function labelPlacement(layout) {
  if (layout.flat) return { turn: 0, align: "center" };
  if (layout.upright) return { turn: -Math.PI / 2, align: "left" };
  return layout.mirrored ? { turn: SLANT, align: "right" } : { turn: -SLANT, align: "left" };
}

/**
 * The indices of the drawn labels: every `step`-th visible one, and the one at the cursor.
 * @param {number} from
 * @param {number} count
 * @param {number} step
 * @param {number} all
 * @param {number} [also]
 * @returns {number[]}
 */
function labelIndices(from, count, step, all, also) {
  const places = [];
  const first = Math.ceil(Math.floor(from) / step) * step;
  for (let at = first; at < Math.min(from + count, all); at += step) places.push(at);
  if (also !== undefined && also % step) places.push(also);
  return places;
}

/**
 * Draw a label in the direction of its script, so that punctuation is at the correct end.
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} x
 * @param {number} y
 */
function drawText(context, text, x, y) {
  context.direction = isRightToLeft([text]) ? "rtl" : "ltr";
  context.fillText(text, x, y);
}

/** @param {number} at @param {number | undefined} strong @param {number} step */
function overlapsLabel(at, strong, step) {
  return strong !== undefined && at !== strong && Math.abs(at - strong) < step;
}

/**
 * @param {CanvasRenderingContext2D} context
 * @param {string} text
 * @param {number} room
 */
function truncate(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && context.measureText(letters.join("") + "…").width > room) letters.pop();
  return letters.join("") + "…";
}
