// Hatching of masked cells, so that "cannot be read" does not look like "has the weight 0".

/** @typedef {import("./types.js").Matrix} Matrix */
/** @typedef {import("./painting.js").Theme} Theme */

const SPACING = 6;

/**
 * Whether a matrix is masked causally: queries do not read later positions.
 * @param {Matrix} matrix of queries and keys on the same axis
 */
export function isCausal({ rows, columns, values }) {
  if (rows !== columns || rows < 2) return false;
  for (let row = 0; row < rows; row++) {
    for (let column = row + 1; column < columns; column++) if (values[row * columns + column]) return false;
  }
  return true;
}

/**
 * Hatch the cells above the diagonal.
 * @param {CanvasRenderingContext2D} context
 * @param {import("./picture.js").Drawing} drawing
 * @param {import("./picture.js").View} view
 */
export function hatchMasked(context, drawing, view) {
  const { layout, theme, picture } = drawing;
  const cell = drawing.cells(view);
  context.save();
  context.beginPath();
  context.rect(layout.left, layout.top, layout.width, layout.height);
  context.clip();
  context.beginPath();
  const last = picture.columns.length - 1;
  for (let row = Math.floor(view.y); row < Math.min(view.y + cell.down, last); row++) {
    const [from, to] = [drawing.columnLeft(view, row + 1), drawing.columnLeft(view, last)];
    context.rect(Math.min(from, to), drawing.rowTop(view, row), Math.abs(to - from) + cell.width, cell.height);
  }
  context.clip();
  context.strokeStyle = theme.muted;
  context.globalAlpha = 0.45;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = layout.left - layout.height; x < layout.left + layout.width; x += SPACING) {
    context.moveTo(x, layout.top + layout.height);
    context.lineTo(x + layout.height, layout.top);
  }
  context.stroke();
  context.restore();
}
