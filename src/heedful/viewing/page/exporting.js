// Export a picture as PNG, SVG, PDF, CSV or LaTeX.

import { download, element, messageOf, svgElement } from "./elements.js";
import { SCALE_HEIGHT, svgScale } from "./colour_scale.js";
import { toTikz } from "./latex.js";
import { Drawing, labelPlacement, computeLayout, panelsOf } from "./picture.js";
import { printDrawing } from "./printing.js";
import { PRINT_THEME, parseColour, peakOf, renderWeights, rowPeaks, colourStrength, blendColours } from "./painting.js";
import { svgBrackets } from "./word_brackets.js";

/** @typedef {import("./types.js").Picture} Picture */

// With more cells, the SVG contains one image, because editors cannot open files with a million rectangles.
const MAX_RECTANGLES = 40_000;

/**
 * The weights as CSV (RFC 4180): one row per query and one column per key; with several layers, the first column
 * contains their names.
 * @param {Picture} picture
 * @returns {string}
 */
export function toCsv(picture) {
  const several = picture.layers.length > 1;
  const lines = [[...(several ? ["layer"] : []), "", ...picture.columns]];
  for (const layer of picture.layers) {
    picture.rows.forEach((row, i) => {
      const from = i * layer.matrix.columns;
      const weights = layer.matrix.values.subarray(from, from + layer.matrix.columns);
      lines.push([...(several ? [layer.name] : []), row, ...Array.from(weights, roundWeight)]);
    });
  }
  return lines.map((line) => line.map(csvField).join(",")).join("\r\n") + "\r\n";
}

/** @param {number} weight */
function roundWeight(weight) {
  return String(Number(weight.toPrecision(6)));
}

/** @param {string} field */
function csvField(field) {
  return /[",\r\n]/.test(field) || field === "" ? `"${field.replace(/"/g, '""')}"` : field;
}

/**
 * Serialize a drawing as an SVG file.
 * @param {Element} drawing
 */
export function serializeSvg(drawing) {
  return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(drawing)}\n`;
}

/** @param {Picture} picture @param {number} cell */
function exportLayout(picture, cell) {
  const context = /** @type {CanvasRenderingContext2D} */ (element("canvas").getContext("2d"));
  const room = {
    width: picture.columns.length * cell + 900, height: picture.rows.length * cell + 400,
    cell, font: 13, family: PRINT_THEME.font,
  };
  return computeLayout(context, picture, room);
}

/** @param {Picture} picture */
function cellSize(picture) {
  return Math.min(24, Math.max(1, Math.floor(4000 / Math.max(picture.rows.length, picture.columns.length))));
}

const MARGIN = 8;
const TITLE_HEIGHT = 30;
const NAME_HEIGHT = 22;
const GAP = 20;

/**
 * The title, a panel for each layer, and the scale of colours.
 * @param {Picture} picture
 * @returns {string}
 */
export function toSvg(picture) {
  const panels = panelsOf(picture);
  const layout = exportLayout(picture, cellSize(picture));
  const across = Math.ceil(Math.sqrt((panels.length * layout.totalHeight) / layout.totalWidth));
  const columns = Math.max(1, Math.min(panels.length, across));
  const named = panels.length > 1 ? NAME_HEIGHT : 0;
  const [stepX, stepY] = [layout.totalWidth + GAP, layout.totalHeight + named + GAP];
  const down = Math.ceil(panels.length / columns);
  const scale = svgScale(picture, PRINT_THEME, MARGIN, TITLE_HEIGHT + down * stepY - GAP + 4);
  const width = Math.ceil(Math.max(columns * stepX - GAP, 330, picture.title.length * 8 + 2 * MARGIN));
  const height = Math.ceil(TITLE_HEIGHT + down * stepY - GAP + SCALE_HEIGHT + 4);
  const image = svgElement("svg", {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height,
    "font-family": PRINT_THEME.font, "font-size": layout.font, fill: PRINT_THEME.ink,
  }, svgElement("title", {}, picture.title));
  const edge = { "dominant-baseline": "central", x: MARGIN };
  image.append(
    svgElement("rect", { width: "100%", height: "100%", fill: PRINT_THEME.surface }),
    svgElement("text", { ...edge, y: TITLE_HEIGHT / 2, "font-size": 14, "font-weight": 600 }, picture.title),
  );
  panels.forEach((panel, place) => {
    const [x, y] = [(place % columns) * stepX, TITLE_HEIGHT + Math.floor(place / columns) * stepY];
    const name = named ? [svgElement("text", { ...edge, y: NAME_HEIGHT / 2, class: "name" }, panel.title)] : [];
    const body = svgElement("g", { transform: `translate(0 ${named})` }, ...svgPanel(panel, layout));
    image.append(svgElement("g", { transform: `translate(${round(x)} ${round(y)})` }, ...name, body));
  });
  image.append(scale);
  return serializeSvg(image);
}

/**
 * The weights of one layer and their labels.
 * @param {Picture} picture
 * @param {import("./picture.js").Layout} layout
 * @returns {Element[]}
 */
function svgPanel(picture, layout) {
  const drawing = new Drawing(picture, layout, PRINT_THEME);
  const view = { zoom: 1, x: 0, y: 0 };
  const many = picture.rows.length * picture.columns.length > MAX_RECTANGLES;
  const made = [many ? svgImage(picture, layout) : svgCells(picture, drawing), ...svgBrackets(drawing)];
  const edge = { "dominant-baseline": "central" };
  const every = Math.max(1, Math.ceil((layout.font * 1.15) / layout.cellHeight));
  picture.rows.forEach((text, row) => {
    if (row % every) return;
    const y = drawing.rowTop(view, row) + layout.cellHeight / 2;
    const x = layout.mirrored ? layout.left + layout.width + 7 : layout.left - 7;
    made.push(svgElement("text", { ...edge, x, y, "text-anchor": layout.mirrored ? "start" : "end" }, text));
  });
  const flag = labelPlacement(layout);
  picture.columns.forEach((text, column) => {
    if (column % every) return;
    const x = drawing.columnLeft(view, column) + layout.cellWidth / 2;
    made.push(svgElement("text", {
      ...edge, "text-anchor": { left: "start", right: "end", center: "middle" }[flag.align],
      transform: `translate(${round(x)} ${round(layout.top - (layout.flat ? 11 : 6))}) rotate(${round((flag.turn * 180) / Math.PI)})`,
    }, text));
  });
  return made;
}

/**
 * One rectangle per weight, and a border for each cell.
 * @param {Picture} picture
 * @param {Drawing} drawing
 */
function svgCells(picture, drawing) {
  const group = svgElement("g", { "shape-rendering": "crispEdges" });
  const { layout } = drawing;
  const surface = parseColour(PRINT_THEME.surface);
  const [{ name, matrix }] = picture.layers;
  const peaks = rowPeaks(matrix, picture.byRow ?? false, peakOf(picture));
  group.append(svgElement("title", {}, name), svgElement("rect", {
    x: round(layout.left), y: round(layout.top), width: round(layout.width), height: round(layout.height),
    fill: "none", stroke: PRINT_THEME.line, class: "frame",
  }));
  const bordered = Math.min(layout.cellWidth, layout.cellHeight) >= 12 ? { stroke: PRINT_THEME.line, "stroke-width": 0.5 } : {};
  matrix.values.forEach((weight, place) => {
    if (!weight) return;
    const [row, column] = [Math.floor(place / matrix.columns), place % matrix.columns];
    const full = parseColour(weight < 0 ? PRINT_THEME.negative : PRINT_THEME.accent);
    const pixel = blendColours(surface, full, colourStrength(Math.abs(weight) / peaks[row]));
    group.append(svgElement("rect", {
      x: round(drawing.columnLeft({ zoom: 1, x: 0, y: 0 }, column)), y: round(layout.top + row * layout.cellHeight),
      width: round(layout.cellWidth), height: round(layout.cellHeight),
      fill: `rgb(${pixel.map(Math.round).join(",")})`, ...bordered,
      "data-row": row, "data-column": column, "data-weight": roundWeight(weight),
    }));
  });
  return group;
}

/**
 * The picture as PNG, drawn from its SVG.
 * @param {Picture} picture
 * @returns {Promise<Blob>}
 */
export function toPng(picture) {
  return rasterise(toSvg(picture));
}

/** @param {Picture} picture @param {import("./picture.js").Layout} layout */
function svgImage(picture, layout) {
  return svgElement("image", {
    href: renderWeights(picture.layers[0].matrix, PRINT_THEME, {
      mirrored: layout.mirrored, byRow: picture.byRow, peak: peakOf(picture),
    }).toDataURL("image/png"),
    x: layout.left, y: layout.top, width: layout.width, height: layout.height,
    preserveAspectRatio: "none", "image-rendering": "pixelated",
  });
}

/** @param {number} number */
function round(number) {
  return Math.round(number * 100) / 100;
}

/**
 * Create the buttons that save files.
 * @param {() => Picture | null | Promise<Picture | null>} picture returns the picture to save when a button is pressed
 * @param {() => string} name returns the file name without its extension
 * @param {(text: string) => void} announce
 * @param {() => string | null} [drawing] returns an SVG to save instead of the matrix; null to save the matrix
 * @returns {HTMLElement}
 */
export function exportButtons(picture, name, announce, drawing = () => null) {
  const failed = element("span", { class: "heed-hint" });
  /**
   * @param {string} ending
   * @param {(picture: Picture) => Blob | Promise<Blob | null> | null} make returns null if there is nothing to download
   */
  const button = (ending, make) =>
    element("button", {
      type: "button", class: "heed-button", "aria-label": `Save as ${ending.toUpperCase()}`,
      onclick: async () => {
        failed.textContent = "";
        const drawn = await picture();
        if (!drawn) return (failed.textContent = "nothing to save yet");
        try {
          const made = await make(drawn);
          if (!made) return;
          download(made, `${fileName(name())}.${ending}`);
          announce(`saved as ${ending.toUpperCase()}`);
        } catch (error) {
          failed.textContent = messageOf(error);
          announce(failed.textContent);
        }
      },
    }, ending.toUpperCase());
  return element(
    "div", { class: "heed-export", role: "group", "aria-label": "Save" },
    element("span", { class: "heed-label" }, "Save"),
    button("png", (drawn) => {
      const svg = drawing();
      return svg ? rasterise(svg) : toPng(drawn);
    }),
    button("svg", (drawn) => new Blob([drawing() ?? toSvg(drawn)], { type: "image/svg+xml" })),
    button("pdf", async (drawn) => {
      await printDrawing(drawing() ?? toSvg(drawn));
      return null;
    }),
    button("tex", (drawn) => new Blob([toTikz(drawn)], { type: "application/x-tex;charset=utf-8" })),
    button("csv", (drawn) => new Blob([toCsv(drawn)], { type: "text/csv;charset=utf-8" })),
    failed,
  );
}

/**
 * @param {string} svg
 * @returns {Promise<Blob>}
 */
function rasterise(svg) {
  return new Promise((done, failed) => {
    const image = new Image();
    image.onerror = () => failed(new Error("the drawing cannot be converted to PNG; save it as SVG"));
    image.onload = () => {
      const sharp = image.width < 2000 ? 2 : 1;
      const canvas = element("canvas", { width: image.width * sharp, height: image.height * sharp });
      const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
      context.drawImage(image, 0, 0, canvas.width, canvas.height);
      canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("the picture is too large for a PNG"))), "image/png");
    };
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svg)}`;
  });
}

/** @param {string} text */
function fileName(text) {
  return text.replace(/[^\p{L}\p{N}.-]+/gu, "-").replace(/^[-.]+|[-.]+$/g, "").slice(0, 80) || "attention";
}
