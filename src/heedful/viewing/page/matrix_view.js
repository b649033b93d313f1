// An interactive matrix: hover, keyboard, zoom, and an overview while it is zoomed.

import { element } from "./elements.js";
import { isRightToLeft, formatWeight } from "./matrices.js";
import { Drawing, computeLayout } from "./picture.js";
import { themeOf } from "./painting.js";

/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./types.js").Page} Page */

const MAX_ZOOM_CELL = 40;
const STEP = 1.4;

export class MatrixView {
  /**
   * @param {Page} page
   * @param {{label: string, height?: number, chosen?: (row: number) => void}} options
   */
  constructor(page, options) {
    this.page = page;
    this.options = options;
    /** @type {Picture | null} */
    this.picture = null;
    /** @type {Drawing | null} */
    this.drawing = null;
    /** @type {Drawing | null} the whole matrix for the overview */
    this.small = null;
    this.view = { zoom: 1, x: 0, y: 0 };
    /** @type {{row: number, column: number} | null} */
    this.cursor = null;
    this.canvas = element("canvas", {
      tabindex: 0,
      role: "application",
      "aria-roledescription": "attention matrix",
      "aria-label": options.label,
      class: "heed-matrix",
    });
    this.overview = element("canvas", { class: "heed-overview", "aria-hidden": "true" });
    this.overview.hidden = true;
    this.readout = element("p", { class: "heed-readout", "aria-live": "polite" });
    this.zooming = this.buttons();
    const frame = element("div", { class: "heed-frame" }, this.canvas);
    this.body = element("div", { class: "heed-matrix-view" }, frame, element(
      "div", { class: "heed-below-matrix" }, this.readout, this.overview, this.zooming));
    this.frame = frame;
    this.listen();
  }

  buttons() {
    /** @param {string} text @param {string} label @param {() => void} work */
    const button = (text, label, work) =>
      element("button", { type: "button", "aria-label": label, title: label, onclick: work }, text);
    const group = element(
      "div", { class: "heed-zoom", role: "group", "aria-label": "Zoom" },
      button("−", "Zoom out", () => this.zoomBy(1 / STEP)),
      button("+", "Zoom in", () => this.zoomBy(STEP)),
      button("Fit", "Fit the whole matrix", () => this.zoomTo(1)),
    );
    group.hidden = true;
    return group;
  }

  /** @param {Picture} picture */
  show(picture) {
    const before = this.picture;
    const sameSize = before && before.rows.length === picture.rows.length
      && before.columns.length === picture.columns.length;
    this.picture = picture;
    if (!sameSize) {
      this.view = { zoom: 1, x: 0, y: 0 };
      this.cursor = null;
    }
    this.resize();
    this.updateReadout();
  }

  /** Fit the picture into the available space. */
  resize() {
    const { picture } = this;
    const room = this.frame.clientWidth;
    if (!picture || !room) return;
    const started = performance.now();
    const theme = themeOf(this.page.root);
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    const height = this.options.height ?? Math.max(Math.min(window.innerHeight * 0.78, 760), 320);
    const font = room < 480 ? 12 : 13;
    const layout = computeLayout(context, picture, { width: room, height, cell: 38, font, family: theme.font });
    const pixelRatio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(layout.totalWidth * pixelRatio);
    this.canvas.height = Math.round(layout.totalHeight * pixelRatio);
    this.canvas.style.width = `${layout.totalWidth}px`;
    this.canvas.style.height = `${layout.totalHeight}px`;
    context.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
    this.drawing = new Drawing(picture, layout, theme);
    this.zooming.hidden = Math.min(layout.cellWidth, layout.cellHeight) >= 12;
    this.draw();
    // Expose the drawing time for measurements.
    this.canvas.dataset.milliseconds = (performance.now() - started).toFixed(1);
  }

  draw() {
    if (!this.drawing) return;
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.drawing.draw(context, this.view, this.cursor);
    this.canvas.style.touchAction = this.view.zoom > 1 ? "none" : "pan-y";
    this.drawOverview();
  }

  drawOverview() {
    const { drawing, overview, view } = this;
    overview.hidden = !drawing || view.zoom <= 1;
    if (!drawing || overview.hidden || !this.picture) return;
    const { layout } = drawing;
    const scale = Math.min(90 / layout.width, 90 / layout.height);
    overview.width = Math.ceil(layout.width * scale);
    overview.height = Math.ceil(layout.height * scale);
    const context = /** @type {CanvasRenderingContext2D} */ (overview.getContext("2d"));
    const small = { ...layout, left: 0, top: 0, width: overview.width, height: overview.height };
    small.cellWidth = overview.width / this.picture.columns.length;
    small.cellHeight = overview.height / this.picture.rows.length;
    if (!this.small || this.small.picture !== this.picture || this.small.theme.dark !== drawing.theme.dark) {
      this.small = new Drawing(this.picture, small, drawing.theme);
    }
    this.small.layout = small;
    this.small.drawWeights(context, { zoom: 1, x: 0, y: 0 });
    const across = overview.width / view.zoom;
    const x = view.x * small.cellWidth;
    context.strokeStyle = drawing.theme.ink;
    context.lineWidth = 1.5;
    context.strokeRect(layout.mirrored ? overview.width - x - across : x, view.y * small.cellHeight, across,
      overview.height / view.zoom);
  }

  /** The maximum zoom factor. */
  maxZoom() {
    const { layout } = /** @type {Drawing} */ (this.drawing);
    return Math.max(1, MAX_ZOOM_CELL / Math.min(layout.cellWidth, layout.cellHeight));
  }

  /**
   * @param {number} factor
   * @param {{row: number, column: number}} [around] the cell that stays in place; default: the cursor, or the centre
   */
  zoomBy(factor, around) {
    this.zoomTo(this.view.zoom * factor, around);
  }

  /** @param {number} zoom @param {{row: number, column: number}} [around] */
  zoomTo(zoom, around) {
    if (!this.drawing || !this.picture) return;
    const before = this.drawing.cells(this.view);
    const at = around ?? this.cursor ?? {
      row: this.view.y + before.down / 2, column: this.view.x + before.across / 2,
    };
    const next = Math.min(Math.max(zoom, 1), this.maxZoom());
    const change = this.view.zoom / next;
    this.view = {
      zoom: next,
      x: at.column - (at.column - this.view.x) * change,
      y: at.row - (at.row - this.view.y) * change,
    };
    this.stayInside();
    this.draw();
  }

  stayInside() {
    const { drawing, picture } = this;
    if (!drawing || !picture) return;
    const cell = drawing.cells(this.view);
    this.view.x = Math.max(0, Math.min(this.view.x, picture.columns.length - cell.across));
    this.view.y = Math.max(0, Math.min(this.view.y, picture.rows.length - cell.down));
  }

  /**
   * The cell at a point of the canvas, with fractions.
   * @param {MouseEvent} event
   * @returns {{row: number, column: number} | null}
   */
  under(event) {
    const { drawing } = this;
    if (!drawing) return null;
    const box = this.canvas.getBoundingClientRect();
    const { layout } = drawing;
    const cell = drawing.cells(this.view);
    let x = event.clientX - box.left - layout.left;
    const y = event.clientY - box.top - layout.top;
    if (x < 0 || y < 0 || x >= layout.width || y >= layout.height) return null;
    if (layout.mirrored) x = layout.width - x;
    return { row: this.view.y + y / cell.height, column: this.view.x + x / cell.width };
  }

  listen() {
    /** @type {{x: number, y: number} | null} */
    let dragged = null;
    let moved = false;
    this.canvas.addEventListener("pointerdown", (event) => {
      moved = false;
      if (this.view.zoom > 1) {
        dragged = { x: event.clientX, y: event.clientY };
        this.canvas.setPointerCapture(event.pointerId);
      }
    });
    this.canvas.addEventListener("pointerup", () => (dragged = null));
    this.canvas.addEventListener("pointermove", (event) => {
      if (dragged && this.drawing) {
        moved = true;
        const cell = this.drawing.cells(this.view);
        const ahead = this.drawing.layout.mirrored ? 1 : -1;
        this.view.x += (ahead * (event.clientX - dragged.x)) / cell.width;
        this.view.y -= (event.clientY - dragged.y) / cell.height;
        dragged = { x: event.clientX, y: event.clientY };
        this.stayInside();
        this.draw();
        return;
      }
      const at = this.under(event);
      this.point(at && { row: Math.floor(at.row), column: Math.floor(at.column) });
    });
    this.canvas.addEventListener("pointerleave", () => {
      if (document.activeElement !== this.canvas) this.point(null);
    });
    this.canvas.addEventListener("click", () => {
      // The end of a drag is not a click.
      if (!moved) this.choose();
    });
    this.canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => {
      if (!this.cursor && this.canvas.matches(":focus-visible")) this.point({ row: 0, column: 0 });
    });
    new ResizeObserver(() => this.resize()).observe(this.frame);
    this.page.onTheme(() => this.resize());
  }

  /** Which labels are shown, if there is no space for all of them. */
  labelNote() {
    if (!this.drawing) return "";
    const { layout } = this.drawing;
    const cell = this.drawing.cells(this.view);
    const every = (/** @type {number} */ size) => Math.max(1, Math.ceil((layout.font * 1.06) / size));
    const [down, across] = [every(cell.height), every(cell.width)];
    if (down === 1 && across === 1) return "";
    return ` Not all labels fit: shown are 1 of ${down} rows and 1 of ${across} columns.`;
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    // The plain wheel scrolls the page; pinching on a touchpad is a wheel event with Ctrl.
    if (!event.ctrlKey || this.zooming.hidden || (event.deltaY > 0 && this.view.zoom === 1)) return;
    event.preventDefault();
    this.zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2, this.under(event) ?? undefined);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { picture, drawing } = this;
    if (!picture || !drawing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") this.zoomBy(STEP);
    else if (event.key === "-") this.zoomBy(1 / STEP);
    else if (event.key === "0") this.zoomTo(1);
    else if (event.key === "Enter") this.choose();
    else {
      const at = this.cursor ?? { row: 0, column: 0 };
      const ahead = drawing.layout.mirrored ? -1 : 1;
      const far = event.shiftKey ? 10 : 1;
      /** @type {Record<string, [number, number]>} */
      const moves = {
        ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -ahead * far], ArrowRight: [0, ahead * far],
        Home: [0, -at.column], End: [0, picture.columns.length], PageUp: [-10, 0], PageDown: [10, 0],
      };
      const move = moves[event.key];
      if (!move) return;
      this.point({
        row: Math.min(Math.max(at.row + move[0], 0), picture.rows.length - 1),
        column: Math.min(Math.max(at.column + move[1], 0), picture.columns.length - 1),
      }, true);
    }
    event.preventDefault();
  }

  choose() {
    if (this.cursor && this.options.chosen) this.options.chosen(this.cursor.row);
  }

  /** @param {{row: number, column: number} | null} cursor @param {boolean} [follow] scroll to it */
  point(cursor, follow = false) {
    if (cursor?.row === this.cursor?.row && cursor?.column === this.cursor?.column) return;
    this.cursor = cursor;
    if (cursor && follow && this.drawing) {
      const cell = this.drawing.cells(this.view);
      this.view.x = Math.min(Math.max(this.view.x, cursor.column + 1 - cell.across), cursor.column);
      this.view.y = Math.min(Math.max(this.view.y, cursor.row + 1 - cell.down), cursor.row);
      this.stayInside();
    }
    this.draw();
    this.updateReadout();
  }

  updateReadout() {
    const { picture, cursor } = this;
    if (!picture) return;
    this.readout.classList.toggle("heed-idle", !cursor);
    if (!cursor) {
      const hint = this.zooming.hidden ? "" : " Zoom with Ctrl + wheel, + and −; drag to move.";
      const order = isRightToLeft(picture.columns) ? ", from right to left" : "";
      const masked = picture.causal ? "Hatched cells are masked: no position reads a later one. " : "";
      this.readout.textContent = `${masked}Rows: ${picture.rowTitle}. Columns: ${picture.columnTitle}${order}. `
        + `Point at a cell, or use the arrow keys.${hint}${this.labelNote()}`;
      return;
    }
    const place = cursor.row * picture.columns.length + cursor.column;
    const weights = picture.layers.flatMap((layer) => [
      picture.layers.length > 1 ? swatch(layer) : "", element("strong", {}, formatWeight(layer.matrix.values[place])),
    ]);
    if (picture.causal && cursor.column > cursor.row) weights.splice(0, weights.length, element("strong", {}, "masked"));
    const more = picture.bars.map((bars) => `${bars.title} ${bars.values[cursor.row]?.toFixed(2)}${bars.unit}`);
    // Isolate the direction of each text, so that scripts do not mix.
    this.readout.replaceChildren(
      element("bdi", {}, picture.rows[cursor.row]), " → ", element("bdi", {}, picture.columns[cursor.column]),
      "  ", ...weights, more.length ? `   ${more.join(" · ")}` : "",
    );
  }
}

/** @param {import("./types.js").Layer} layer */
function swatch(layer) {
  const box = element("i", { class: "heed-swatch", role: "img", "aria-label": layer.name, title: layer.name });
  box.style.background = layer.colour ?? "";
  return box;
}
