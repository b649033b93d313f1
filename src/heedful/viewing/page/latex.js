// Small matrices as TikZ pictures for LaTeX.

import { isRightToLeft } from "./matrices.js";
import { colourStrength, parseColour, peakOf, PRINT_THEME, rowPeaks } from "./painting.js";
import { panelsOf } from "./picture.js";

/** @typedef {import("./types.js").Picture} Picture */

const MOST = 30;
/** @type {Record<string, string>} */
const ESCAPES = {
  "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "\\textless{}", ">": "\\textgreater{}",
  "|": "\\textbar{}", "\"": "\\textquotedbl{}", "␣": "\\textvisiblespace{}", "·": "\\textperiodcentered{}", "…": "\\ldots{}", "×": "$\\times$",
};

/**
 * A TikZ picture for each layer.
 * @param {Picture} picture
 * @returns {string}
 * @throws {Error} more than 30 rows or columns
 */
export function toTikz(picture) {
  const [rows, columns] = [picture.rows.length, picture.columns.length];
  if (Math.max(rows, columns) > MOST) {
    throw new Error(`LaTeX is for matrices of at most ${MOST} × ${MOST}, and this one is ${rows} × ${columns}; save it as PDF or SVG`);
  }
  const colours = [["heedful", PRINT_THEME.accent], ["heedfulnegative", PRINT_THEME.negative], ["heedfulline", PRINT_THEME.line]];
  return [
    `% ${picture.title.replace(/\s+/g, " ")}`,
    "% Needs \\usepackage[T1]{fontenc} and \\usepackage{tikz}. Scripts other than Latin need XeLaTeX or LuaLaTeX and a font.",
    ...colours.map(([name, colour]) => `\\definecolor{${name}}{RGB}{${parseColour(colour).join(",")}}`),
    ...panelsOf(picture).map((panel) => tikzPanel(panel, picture.layers.length > 1)),
    "",
  ].join("\n");
}

/**
 * @param {Picture} picture with one layer
 * @param {boolean} named whether to draw its name
 */
function tikzPanel(picture, named) {
  const [{ matrix }] = picture.layers;
  const mirrored = isRightToLeft(picture.columns);
  const across = picture.columns.length;
  const left = (/** @type {number} */ column) => (mirrored ? across - 1 - column : column);
  const peaks = rowPeaks(matrix, picture.byRow ?? false, peakOf(picture));
  const lines = ["\\begin{tikzpicture}[x=5mm, y=-5mm, font=\\footnotesize]"];
  matrix.values.forEach((weight, place) => {
    const [row, column] = [Math.floor(place / matrix.columns), place % matrix.columns];
    const strength = Math.round(100 * colourStrength(Math.abs(weight) / peaks[row]));
    if (!strength) return;
    lines.push(`  \\fill[${weight < 0 ? "heedfulnegative" : "heedful"}!${strength}] (${left(column)},${row}) rectangle ++(1,1);`);
  });
  const down = picture.rows.length;
  lines.push(`  \\foreach \\x in {0,...,${across}} \\draw[heedfulline, very thin] (\\x,0) -- (\\x,${down});`);
  lines.push(`  \\foreach \\y in {0,...,${down}} \\draw[heedfulline, very thin] (0,\\y) -- (${across},\\y);`);
  picture.rows.forEach((text, row) => {
    const [x, anchor] = mirrored ? [across, "west"] : [0, "east"];
    lines.push(`  \\node[anchor=${anchor}] at (${x},${row + 0.5}) {${escapeLatex(text)}};`);
  });
  picture.columns.forEach((text, column) => {
    lines.push(`  \\node[anchor=west, rotate=60, inner sep=2pt] at (${left(column) + 0.5},-0.15) {${escapeLatex(text)}};`);
  });
  if (named) lines.push(`  \\node[anchor=north] at (${across / 2},${down + 0.2}) {${escapeLatex(picture.title)}};`);
  return [...lines, "\\end{tikzpicture}"].join("\n");
}

/** @param {string} text */
export function escapeLatex(text) {
  return text.replace(/[\\~^<>|"␣·…×]|[{}$&#_%]/g, (one) => ESCAPES[one] ?? `\\${one}`);
}
