// An interactive matrix: hover, keyboard, zoom, and an overview while it is zoomed.

import { element, focusedNear } from "./elements.js";
import { colourScale } from "./colour_scale.js";
import { fillReadout } from "./matrix_readout.js";
import { Drawing, computeLayout } from "./picture.js";
import { themeOf } from "./painting.js";

/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./types.js").Page} Page */

const MAX_ZOOM_CELL = 40;
/** The smallest side of a cell at zoom 1, so that all labels can be read; longer texts are first shown as a whole. */
const LEAST_CELL = 14;
const LONG = 200;
/** The largest height of the visible part. */
const TALL = 1680;
const STEP = 1.4;

export class MatrixView {
  /**
   * @param {Page} page
   * @param {{label: string, height?: number, titled?: boolean, chosen?: (row: number, column: number) => void, scrubbed?: (column: number) => void}} options
   *   `scrubbed` is called for each column that is pressed, dragged over, or reached with the keyboard
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
    /** @type {Map<number, PointerEvent>} pointers that are down */
    this.touches = new Map();
    this.caption = element("div");
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
    this.body = element("div", { class: "heed-matrix-view" }, this.caption, frame, element(
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
      button("Fit", "Fit the whole matrix", () => this.zoomTo(0)),
    );
    group.hidden = true;
    return group;
  }

  /** @param {number} column */
  mark(column) {
    if (!this.picture) return;
    this.picture.marked = column;
    this.draw();
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
    const layout = computeLayout(context, picture, {
      width: room, height, cell: 38, font, family: theme.font, tall: TALL,
      least: Math.max(picture.rows.length, picture.columns.length) > LONG || picture.whole ? 0 : LEAST_CELL,
    });
    const pixelRatio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(layout.totalWidth * pixelRatio);
    this.canvas.height = Math.round(layout.totalHeight * pixelRatio);
    this.canvas.style.width = `${layout.totalWidth}px`;
    this.canvas.style.height = `${layout.totalHeight}px`;
    context.setTransform(pixelRatio, 0, 0, pixelRatio, 0, 0);
    this.drawing = new Drawing(picture, layout, theme);
    this.zooming.hidden = this.minZoom() >= 1 && Math.min(layout.cellWidth, layout.cellHeight) >= 12;
    if (this.options.titled) this.caption.replaceChildren(element("h3", { class: "heed-picture-title" }, picture.title), colourScale(picture, theme));
    this.draw();
    // Expose the drawing time for measurements.
    this.canvas.dataset.milliseconds = (performance.now() - started).toFixed(1);
  }

  draw() {
    if (!this.drawing) return;
    const context = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    this.drawing.draw(context, this.view, this.cursor);
    const hidden = this.hidden();
    this.canvas.style.touchAction = hidden.rows ? "none" : "pan-y";
    this.canvas.classList.toggle("heed-movable", hidden.rows > 0 || hidden.columns > 0);
    this.drawOverview();
  }

  /** The numbers of rows and columns outside the visible part. */
  hidden() {
    const { drawing, picture } = this;
    if (!drawing || !picture) return { rows: 0, columns: 0 };
    const cell = drawing.cells(this.view);
    return {
      rows: Math.max(0, Math.ceil(picture.rows.length - cell.down - 0.01)),
      columns: Math.max(0, Math.ceil(picture.columns.length - cell.across - 0.01)),
    };
  }

  drawOverview() {
    const { drawing, overview, view } = this;
    const { rows, columns } = this.hidden();
    overview.hidden = !drawing || (rows === 0 && columns === 0);
    if (!drawing || overview.hidden || !this.picture) return;
    const { layout } = drawing;
    const [wide, high] = [layout.cellWidth * this.picture.columns.length, layout.cellHeight * this.picture.rows.length];
    const scale = Math.min(90 / wide, 90 / high);
    overview.width = Math.ceil(wide * scale);
    overview.height = Math.ceil(high * scale);
    const context = /** @type {CanvasRenderingContext2D} */ (overview.getContext("2d"));
    const small = { ...layout, left: 0, top: 0, width: overview.width, height: overview.height };
    small.cellWidth = overview.width / this.picture.columns.length;
    small.cellHeight = overview.height / this.picture.rows.length;
    if (!this.small || this.small.picture !== this.picture || this.small.theme.dark !== drawing.theme.dark) {
      this.small = new Drawing(this.picture, small, drawing.theme);
    }
    this.small.layout = small;
    this.small.drawWeights(context, { zoom: 1, x: 0, y: 0 });
    const cell = drawing.cells(view);
    const across = Math.min(cell.across * small.cellWidth, overview.width);
    const x = view.x * small.cellWidth;
    context.strokeStyle = drawing.theme.ink;
    context.lineWidth = 1.5;
    context.strokeRect(layout.mirrored ? overview.width - x - across : x, view.y * small.cellHeight, across,
      Math.min(cell.down * small.cellHeight, overview.height));
  }

  /** The zoom factor at which the whole matrix is visible; at most 1. */
  minZoom() {
    const { layout } = /** @type {Drawing} */ (this.drawing);
    const picture = /** @type {Picture} */ (this.picture);
    return Math.min(1, layout.width / (layout.cellWidth * picture.columns.length), layout.height / (layout.cellHeight * picture.rows.length));
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
    const next = Math.min(Math.max(zoom, this.minZoom()), this.maxZoom());
    const change = this.view.zoom / next;
    this.view = {
      zoom: next,
      x: at.column - (at.column - this.view.x) * change,
      y: at.row - (at.row - this.view.y) * change,
    };
    this.stayInside();
    this.draw();
    this.updateReadout();
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
   * @param {{clientX: number, clientY: number}} event
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
      this.scrub(event);
      this.touches.set(event.pointerId, event);
      const { rows, columns } = this.hidden();
      if (rows || columns) {
        dragged = { x: event.clientX, y: event.clientY };
        this.canvas.setPointerCapture(event.pointerId);
      }
    });
    for (const end of /** @type {const} */ (["pointerup", "pointercancel"])) {
      this.canvas.addEventListener(end, (event) => {
        dragged = null;
        this.touches.delete(event.pointerId);
      });
    }
    this.canvas.addEventListener("pointermove", (event) => {
      if (this.pinch(event)) {
        moved = true;
        dragged = null;
        return;
      }
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
      if (event.buttons) this.scrub(event);
      const at = this.under(event);
      this.point(at && { row: Math.floor(at.row), column: Math.floor(at.column) });
    });
    this.canvas.addEventListener("pointerleave", () => {
      if (focusedNear(this.canvas) !== this.canvas) this.point(null);
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

  /**
   * Zoom by the distance of two fingers.
   * @param {PointerEvent} event
   * @returns {boolean} whether there are two
   */
  pinch(event) {
    if (this.touches.size !== 2 || !this.touches.has(event.pointerId)) return false;
    const before = spread(this.touches.values());
    this.touches.set(event.pointerId, event);
    const after = spread(this.touches.values());
    if (before.distance > 0) this.zoomBy(after.distance / before.distance, this.under(after) ?? undefined);
    return true;
  }

  /** @param {PointerEvent} event */
  scrub(event) {
    const at = this.hidden().columns ? null : this.under(event);
    if (at) this.options.scrubbed?.(Math.floor(at.column));
  }

  /** @param {WheelEvent} event */
  wheel(event) {
    // The plain wheel scrolls the page, a horizontal one the matrix; pinching on a touchpad is a wheel event with Ctrl.
    const across = event.shiftKey && !event.deltaX ? event.deltaY : event.deltaX;
    if (!event.ctrlKey && Math.abs(across) >= Math.abs(event.shiftKey ? 0 : event.deltaY) && this.hidden().columns && this.drawing) {
      event.preventDefault();
      this.view.x += ((this.drawing.layout.mirrored ? -1 : 1) * across) / this.drawing.cells(this.view).width;
      this.stayInside();
      return this.draw();
    }
    if (!event.ctrlKey || this.zooming.hidden || (event.deltaY > 0 && this.view.zoom <= this.minZoom())) return;
    event.preventDefault();
    this.zoomBy(event.deltaY < 0 ? 1.2 : 1 / 1.2, this.under(event) ?? undefined);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const { picture, drawing } = this;
    if (!picture || !drawing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "+" || event.key === "=") this.zoomBy(STEP);
    else if (event.key === "-") this.zoomBy(1 / STEP);
    else if (event.key === "0") this.zoomTo(0);
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
      if (this.cursor) this.options.scrubbed?.(this.cursor.column);
    }
    event.preventDefault();
  }

  choose() {
    if (this.cursor && this.options.chosen) this.options.chosen(this.cursor.row, this.cursor.column);
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
    if (this.drawing) fillReadout(this.readout, this.drawing, this.view, this.cursor, { hidden: this.hidden(), zooms: !this.zooming.hidden });
  }
}

/**
 * The distance of two pointers and the point between them.
 * @param {Iterable<PointerEvent>} two
 */
function spread(two) {
  const [one, other] = two;
  return {
    distance: Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY),
    clientX: (one.clientX + other.clientX) / 2, clientY: (one.clientY + other.clientY) / 2,
  };
}
