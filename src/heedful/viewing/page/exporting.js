// Export a picture as PNG, SVG or CSV.

import { download, element, svgElement } from "./elements.js";
import { Drawing, labelPlacement, computeLayout } from "./picture.js";
import { PRINT_THEME, parseColour, renderWeights, rowPeaks, colourStrength, blendColours } from "./painting.js";

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

const LEGEND_LEFT = 8;
const LEGEND_ROW = 20;

/**
 * The rows of the legend below a picture of several layers: names, colours, and the middle of each row.
 * @param {Picture} picture
 * @param {import("./picture.js").Layout} layout
 */
function legendRows(picture, layout) {
  const layers = picture.layers.length > 1 ? picture.layers : [];
  const rows = layers.map(({ name, colour }, i) => (
    { name, colour: colour ?? PRINT_THEME.accent, y: layout.totalHeight + 8 + LEGEND_ROW * (i + 0.5) }
  ));
  const longest = Math.max(0, ...layers.map(({ name }) => name.length));
  const width = Math.max(layout.totalWidth, rows.length ? LEGEND_LEFT + 28 + longest * layout.font * 0.65 : 0);
  return { rows, width, height: rows.length ? rows.length * LEGEND_ROW + 12 : 0 };
}

/**
 * @param {Picture} picture
 * @returns {Promise<Blob>}
 */
export function toPng(picture) {
  const layout = exportLayout(picture, cellSize(picture));
  const pixelRatio = layout.totalWidth < 2000 ? 2 : 1;
  const legend = legendRows(picture, layout);
  const canvas = element("canvas", {
    width: Math.ceil(legend.width * pixelRatio), height: Math.ceil((layout.totalHeight + legend.height) * pixelRatio),
  });
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.scale(pixelRatio, pixelRatio);
  context.fillStyle = PRINT_THEME.surface;
  context.fillRect(0, 0, legend.width, layout.totalHeight + legend.height);
  context.font = `${layout.font}px ${PRINT_THEME.font}`;
  context.textBaseline = "middle";
  for (const { name, colour, y } of legend.rows) {
    context.fillStyle = colour;
    context.fillRect(LEGEND_LEFT, y - 6, 12, 12);
    context.fillStyle = PRINT_THEME.ink;
    context.fillText(name, LEGEND_LEFT + 20, y);
  }
  new Drawing(picture, layout, PRINT_THEME).draw(context, { zoom: 1, x: 0, y: 0 }, null);
  return new Promise((done, failed) => {
    canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("the picture is too large for a PNG"))), "image/png");
  });
}

/**
 * @param {Picture} picture
 * @returns {string}
 */
export function toSvg(picture) {
  const layout = exportLayout(picture, cellSize(picture));
  const drawing = new Drawing(picture, layout, PRINT_THEME);
  const view = { zoom: 1, x: 0, y: 0 };
  const legend = legendRows(picture, layout);
  const image = svgElement("svg", {
    xmlns: "http://www.w3.org/2000/svg",
    viewBox: `0 0 ${Math.ceil(legend.width)} ${Math.ceil(layout.totalHeight + legend.height)}`,
    width: Math.ceil(legend.width), height: Math.ceil(layout.totalHeight + legend.height),
    "font-family": PRINT_THEME.font, "font-size": layout.font, fill: PRINT_THEME.ink,
  }, svgElement("title", {}, picture.title));
  image.append(svgElement("rect", { width: "100%", height: "100%", fill: PRINT_THEME.surface }));
  const many = picture.rows.length * picture.columns.length > MAX_RECTANGLES;
  image.append(many ? svgImage(picture, layout) : svgCells(picture, drawing));
  const edge = { "dominant-baseline": "central" };
  for (const { name, colour, y } of legend.rows) {
    image.append(
      svgElement("rect", { x: LEGEND_LEFT, y: y - 6, width: 12, height: 12, fill: colour, class: "legend" }),
      svgElement("text", { ...edge, x: LEGEND_LEFT + 20, y }, name),
    );
  }
  const every = Math.max(1, Math.ceil((layout.font * 1.15) / layout.cellHeight));
  picture.rows.forEach((text, row) => {
    if (row % every) return;
    const y = drawing.rowTop(view, row) + layout.cellHeight / 2;
    const x = layout.mirrored ? layout.left + layout.width + 7 : layout.left - 7;
    image.append(svgElement("text", { ...edge, x, y, "text-anchor": layout.mirrored ? "start" : "end" }, text));
  });
  const flag = labelPlacement(layout);
  picture.columns.forEach((text, column) => {
    if (column % every) return;
    const x = drawing.columnLeft(view, column) + layout.cellWidth / 2;
    image.append(svgElement("text", {
      ...edge, "text-anchor": { left: "start", right: "end", center: "middle" }[flag.align],
      transform: `translate(${round(x)} ${round(layout.top - (layout.flat ? 11 : 6))}) rotate(${round((flag.turn * 180) / Math.PI)})`,
    }, text));
  });
  return serializeSvg(image);
}

/**
 * One rectangle per weight; the rectangles of several layers share a cell side by side.
 * @param {Picture} picture
 * @param {Drawing} drawing
 */
function svgCells(picture, drawing) {
  const group = svgElement("g", { "shape-rendering": "crispEdges" });
  const { layout } = drawing;
  const surface = parseColour(PRINT_THEME.surface);
  const width = layout.cellWidth / picture.layers.length;
  picture.layers.forEach(({ name, matrix, colour }, layer) => {
    const peaks = rowPeaks(matrix, picture.byRow ?? false);
    const own = svgElement("g", {}, svgElement("title", {}, name));
    matrix.values.forEach((weight, place) => {
      if (!weight) return;
      const [row, column] = [Math.floor(place / matrix.columns), place % matrix.columns];
      const full = parseColour(weight < 0 ? PRINT_THEME.negative : colour ?? PRINT_THEME.accent);
      const pixel = blendColours(surface, full, colourStrength(Math.abs(weight) / peaks[row]));
      own.append(svgElement("rect", {
        x: round(drawing.columnLeft({ zoom: 1, x: 0, y: 0 }, column) + layer * width),
        y: round(layout.top + row * layout.cellHeight),
        width: round(width), height: round(layout.cellHeight),
        fill: `rgb(${pixel.map(Math.round).join(",")})`,
        "data-row": row, "data-column": column, "data-weight": roundWeight(weight),
      }));
    });
    group.append(own);
  });
  return group;
}

/** @param {Picture} picture @param {import("./picture.js").Layout} layout */
function svgImage(picture, layout) {
  return svgElement("image", {
    href: renderWeights(picture.layers, PRINT_THEME, { mirrored: layout.mirrored, byRow: picture.byRow }).toDataURL("image/png"),
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
  /** @param {string} ending @param {(picture: Picture) => Blob | Promise<Blob>} make */
  const button = (ending, make) =>
    element("button", {
      type: "button", class: "heed-button", "aria-label": `Save as ${ending.toUpperCase()}`,
      onclick: async () => {
        const drawn = await picture();
        if (!drawn) return announce("nothing to save yet");
        try {
          download(await make(drawn), `${fileName(name())}.${ending}`);
          announce(`saved as ${ending.toUpperCase()}`);
        } catch (error) {
          announce(error instanceof Error ? error.message : String(error));
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
    button("csv", (drawn) => new Blob([toCsv(drawn)], { type: "text/csv;charset=utf-8" })),
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
      const canvas = element("canvas", { width: image.width * 2, height: image.height * 2 });
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
