// Converts weights to colours and pixels.

import { pooled, rowOf } from "./matrices.js";

/** @typedef {import("./types.js").Layer} Layer */
/** @typedef {number[]} Colour red, green and blue */

/**
 * Colours for all types of colour vision (Okabe and Ito, 2008), without black and, because it is too
 * faint on white, with a darker yellow.
 */
export const HEAD_COLOURS = [
  "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b8a800", "#7f7f7f",
];

/** The same palette for a dark ground, its light colours first and its own yellow. */
export const HEAD_COLOURS_IN_THE_DARK = [
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
 * @property {string} against for negative weights
 * @property {string} font
 */

/** @type {Theme} what exported files are drawn with: they go into papers */
export const PAPER = {
  dark: false,
  surface: "#ffffff",
  ink: "#1d2426",
  muted: "#5d686b",
  line: "#d9dedf",
  accent: "#0b6b63",
  against: "#b3541e",
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
    against: read("against"),
    font: style.fontFamily,
  };
}

/**
 * @param {string} hex
 * @returns {Colour}
 */
export function colourOf(hex) {
  const number = parseInt(hex.slice(1), 16);
  return [number >> 16, (number >> 8) & 255, number & 255];
}

/**
 * The opacity for a share of the largest weight; it keeps small weights visible.
 * @param {number} share
 */
export function strengthOf(share) {
  return Math.pow(Math.min(Math.max(share, 0), 1), 0.75);
}

/**
 * A colour blended with the surface.
 * @param {Colour} surface
 * @param {Colour} colour
 * @param {number} strength
 * @returns {Colour}
 */
export function tinted(surface, colour, strength) {
  return [0, 1, 2].map((channel) => surface[channel] + (colour[channel] - surface[channel]) * strength);
}

/**
 * The pixel of a cell with several layers: the weighted mean of their colours, with the opacity of the
 * strongest.
 * @param {Colour} surface
 * @param {Colour[]} colours
 * @param {ArrayLike<number>} shares the weight of each layer relative to its peak, 0 to 1
 * @returns {Colour}
 */
export function mixed(surface, colours, shares) {
  let sum = 0;
  let most = 0;
  /** @type {Colour} */
  const mean = [0, 0, 0];
  for (let layer = 0; layer < colours.length; layer++) {
    const share = Math.max(shares[layer], 0);
    for (let channel = 0; channel < 3; channel++) mean[channel] += colours[layer][channel] * share;
    sum += share;
    most = Math.max(most, share);
  }
  if (!sum) return surface;
  return tinted(surface, [mean[0] / sum, mean[1] / sum, mean[2] / sum], strengthOf(most));
}

/**
 * Whether cells are wide enough for one stripe per layer; otherwise colours are mixed.
 * @param {number} layers
 * @param {number} width of a cell in pixels
 */
export function striped(layers, width) {
  return layers > 1 && width >= layers * 3;
}

/**
 * A canvas with one pixel per weight (with stripes: per weight and layer), or one per block of
 * weights if there are too many.
 * @param {Layer[]} layers
 * @param {Theme} theme
 * @param {{mirrored: boolean, byRow?: boolean, stripes?: boolean, down?: number, across?: number}} how
 * @returns {HTMLCanvasElement}
 */
export function painted(layers, theme, { mirrored, byRow = false, stripes = false, down = 1, across = 1 }) {
  const matrices = layers.map((layer) => pooled(layer.matrix, down, across));
  const peaks = matrices.map((matrix) => peaksOf(matrix, byRow));
  const [{ rows, columns }] = matrices;
  const each = stripes ? layers.length : 1;
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(columns * each, 1);
  canvas.height = Math.max(rows, 1);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const surface = colourOf(theme.surface);
  const colours = layers.map((layer) => colourOf(layer.colour ?? theme.accent));
  const ramps = colours.map((colour) => rampOf(surface, colour, colourOf(theme.against)));
  const shares = new Float32Array(matrices.length);
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const from = row * columns + column;
      const to = row * canvas.width + (mirrored ? columns - 1 - column : column) * each;
      matrices.forEach((one, i) => (shares[i] = peaks[i][row] ? one.values[from] / peaks[i][row] : 0));
      if (stripes || ramps.length === 1) {
        ramps.forEach((ramp, i) => (pixels[to + i] = ramp[Math.round(Math.min(Math.max(shares[i], -1), 1) * 255) + 255]));
      } else pixels[to] = packed(mixed(surface, colours, shares));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

/** Weights over a picture in grey: seen on black and on white; the second of those below zero. */
const OVER = ["#ff9a00", "#3d8bff"];

/**
 * A row of weights as a transparent image, one pixel per weight.
 * @param {ArrayLike<number>} weights
 * @param {number} columns
 * @returns {string} a data URL
 */
export function overlay(weights, columns) {
  const canvas = document.createElement("canvas");
  canvas.width = columns;
  canvas.height = Math.ceil(weights.length / columns);
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  const image = context.createImageData(canvas.width, canvas.height);
  const colours = OVER.map(colourOf);
  const peak = peakOf(weights);
  for (let i = 0; i < weights.length; i++) {
    const alpha = peak ? 0.8 * strengthOf(Math.abs(weights[i]) / peak) : 0;
    image.data.set([...colours[weights[i] < 0 ? 1 : 0], Math.round(alpha * 255)], i * 4);
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL("image/png");
}

/** @param {ArrayLike<number>} weights */
export function peakOf(weights) {
  let most = 0;
  for (let i = 0; i < weights.length; i++) most = Math.max(most, Math.abs(weights[i]));
  return most;
}

/**
 * The weight with full colour in each row: the maximum of the matrix or of the row.
 * @param {import("./types.js").Matrix} matrix
 * @param {boolean} byRow
 * @returns {Float32Array}
 */
export function peaksOf(matrix, byRow) {
  const peaks = new Float32Array(matrix.rows).fill(matrix.peak);
  if (!byRow) return peaks;
  for (let row = 0; row < matrix.rows; row++) {
    peaks[row] = peakOf(rowOf(matrix, row));
  }
  return peaks;
}

/**
 * The pixels for shares from −1 to 1 in steps of 1/255.
 * @param {Colour} surface
 * @param {Colour} colour
 * @param {Colour} against
 */
function rampOf(surface, colour, against) {
  const ramp = new Uint32Array(511);
  for (let i = 0; i < 511; i++) {
    const share = (i - 255) / 255;
    ramp[i] = packed(tinted(surface, share < 0 ? against : colour, strengthOf(Math.abs(share))));
  }
  return ramp;
}

/** @param {Colour} pixel */
function packed([red, green, blue]) {
  // Little-endian RGBA, as on all machines that run browsers today.
  return ((255 << 24) | (Math.round(blue) << 16) | (Math.round(green) << 8) | Math.round(red)) >>> 0;
}

/**
 * Thumbnails of all heads of a map.
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
    return painted([{ name: "", matrix, colour: null }], theme, { mirrored });
  });
}
