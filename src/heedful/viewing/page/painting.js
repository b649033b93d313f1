// Convert weights to colours and pixels.

import { maxPool, rowOf } from "./matrices.js";

/** @typedef {number[]} Colour red, green and blue */

/**
 * A palette that is distinguishable with all types of colour vision (Okabe and Ito 2008), without black and with a
 * darker yellow, which is visible on white.
 */
export const HEAD_COLOURS = [
  "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a800", "#7f7f7f",
];

/** The same palette for a dark background: light colours first, with the original yellow. */
export const HEAD_COLOURS_DARK = [
  "#56b4e9", "#e69f00", "#1fc091", "#d98bb8", "#f0e442", "#3d95d0", "#ee7733", "#a8a8a8",
];

/**
 * @typedef {object} Theme
 * @property {boolean} dark
 * @property {string} surface
 * @property {string} ink
 * @property {string} muted
 * @property {string} line
 * @property {string} accent
 * @property {string} negative the colour of negative weights
 * @property {string} font
 */

/** @type {Theme} the theme of exported files: a white background */
export const PRINT_THEME = {
  dark: false,
  surface: "#ffffff",
  ink: "#1d2426",
  muted: "#5d686b",
  line: "#d9dedf",
  accent: "#0b6b63",
  negative: "#b3541e",
  font: "'Noto Sans', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif",
};

/**
 * The current colours, from the style sheet.
 * @param {HTMLElement} root
 * @returns {Theme}
 */
export function themeOf(root) {
  const style = getComputedStyle(root);
  /** @param {string} name */
  const read = (name) => style.getPropertyValue(`--heed-${name}`).trim();
  return {
    dark: read("dark") === "1",
    surface: read("surface"),
    ink: read("ink"),
    muted: read("muted"),
    line: read("line"),
    accent: read("weight"),
    negative: read("negative-weight"),
    font: style.fontFamily,
  };
}

/**
 * @param {string} hex
 * @returns {Colour}
 */
export function parseColour(hex) {
  const number = parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/**
 * The strength of the colour for a share of the largest weight. The exponent makes small weights visible.
 * @param {number} share
 */
export function colourStrength(share) {
  return Math.pow(Math.min(Math.max(share, 0), 1), 0.75);
}

/**
 * Blend a colour with the surface.
 * @param {Colour} surface
 * @param {Colour} colour
 * @param {number} strength
 * @returns {Colour}
 */
export function blendColours(surface, colour, strength) {
  return [0, 1, 2].map((channel) => surface[channel] + (colour[channel] - surface[channel]) * strength);
}

/**
 * The weight that has the full colour: that of the picture, or the largest of its layers.
 * @param {import("./types.js").Picture} picture
 */
export function peakOf(picture) {
  return picture.peak ?? Math.max(0, ...picture.layers.map(({ matrix }) => matrix.peak));
}

/**
 * A canvas with one pixel per weight of a matrix, or per block of `down` × `across` weights.
 * @param {import("./types.js").Matrix} whole
 * @param {Theme} theme
 * @param {{mirrored: boolean, peak?: number, byRow?: boolean, down?: number, across?: number}} how
 * @returns {HTMLCanvasElement}
 */
export function renderWeights(whole, theme, { mirrored, peak, byRow = false, down = 1, across = 1 }) {
  const matrix = maxPool(whole, down, across);
  const peaks = rowPeaks(matrix, byRow, peak);
  const { rows, columns } = matrix;
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(columns, 1);
  canvas.height = Math.max(rows, 1);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const ramp = colourRamp(parseColour(theme.surface), parseColour(theme.accent), parseColour(theme.negative));
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const share = peaks[row] ? matrix.values[row * columns + column] / peaks[row] : 0;
      const to = row * canvas.width + (mirrored ? columns - 1 - column : column);
      pixels[to] = ramp[Math.round(Math.min(Math.max(share, -1), 1) * 255) + 255];
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Colours of positive and negative weights over a grey picture, visible on black and on white. */
const OVERLAY_COLOURS = ["#ff9a00", "#3d8bff"];

/**
 * A transparent image of a row of weights, with one pixel per weight.
 * @param {ArrayLike<number>} weights
 * @param {number} columns
 * @returns {string} a data URL
 */
export function overlayImage(weights, columns) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = Math.ceil(weights.length / columns);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(canvas.width, canvas.height);
  const colours = OVERLAY_COLOURS.map(parseColour);
  const peak = maxAbsolute(weights);
  for (let i = 0; i < weights.length; i++) {
    const alpha = peak ? 0.8 * colourStrength(Math.abs(weights[i]) / peak) : 0;
    image.data.set([...colours[weights[i] < 0 ? 1 : 0], Math.round(alpha * 255)], i * 4);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL("image/png");
}

/**
 * A grey image that hides what has little weight, with one pixel per weight.
 * @param {ArrayLike<number>} weights none negative
 * @param {number} columns
 * @param {number} opacity where the weight is 0, from 0 to 1
 * @returns {string} a data URL
 */
export function veilImage(weights, columns, opacity) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = Math.ceil(weights.length / columns);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(canvas.width, canvas.height);
  const peak = maxAbsolute(weights);
  for (let i = 0; i < weights.length; i++) {
    const alpha = opacity * (1 - (peak ? colourStrength(weights[i] / peak) : 0));
    image.data.set([128, 128, 128, Math.round(alpha * 255)], i * 4);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL("image/png");
}

/** @param {ArrayLike<number>} weights */
export function maxAbsolute(weights) {
  let maximum = 0;
  for (let i = 0; i < weights.length; i++) maximum = Math.max(maximum, Math.abs(weights[i]));
  return maximum;
}

/**
 * The weight that has the full colour in each row: the largest of the matrix, or of the row.
 * @param {import("./types.js").Matrix} matrix
 * @param {boolean} byRow
 * @param {number} [peak] instead of the largest of the matrix
 * @returns {Float32Array}
 */
export function rowPeaks(matrix, byRow, peak = matrix.peak) {
  const peaks = new Float32Array(matrix.rows).fill(peak);
  if (!byRow) return peaks;
  for (let row = 0; row < matrix.rows; row++) {
    peaks[row] = maxAbsolute(rowOf(matrix, row));
  }
  return peaks;
}

/**
 * A table of pixels for shares from −1 to 1 in steps of 1/255.
 * @param {Colour} surface
 * @param {Colour} colour
 * @param {Colour} negative
 */
function colourRamp(surface, colour, negative) {
  const ramp = new Uint32Array(511);
  for (let i = 0; i < 511; i++) {
    const share = (i - 255) / 255;
    ramp[i] = packPixel(blendColours(surface, share < 0 ? negative : colour, colourStrength(Math.abs(share))));
  }
  return ramp;
}

/** @param {Colour} pixel */
function packPixel([red, green, blue]) {
  // RGBA in little-endian order, which all machines with a browser use.
  return ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}

/**
 * Draw the thumbnails of all heads of a map.
 * @param {Uint8Array} bytes [heads, h, w]
 * @param {{heads: number, thumbnail_size: [number, number], negative: boolean}} map
 * @param {Theme} theme
 * @param {boolean} mirrored
 * @returns {HTMLCanvasElement[]}
 */
export function thumbnails(bytes, map, theme, mirrored) {
  const [height, width] = map.thumbnail_size;
  return Array.from({ length: map.heads }, (_, head) => {
    const values = Float32Array.from(
      bytes.subarray(head * height * width, (head + 1) * height * width),
      (byte) => (map.negative ? (byte - 128) / 127 : byte / 255),
    );
    const matrix = { rows: height, columns: width, values, peak: 1 };
    return renderWeights(matrix, theme, { mirrored });
  });
}
