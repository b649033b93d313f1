// The Heads panel: thumbnails of all heads, and the selected heads as a matrix, as lines or by the kind of the axis.

import { selectField, element, setOptions, messageOf, radioGroup, checkbox } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { glossaryLine } from "./glossary.js";
import { LinesView } from "./lines.js";
import { linesSvg } from "./lines_svg.js";
import { isCausal } from "./masked_cells.js";
import { sliceRows } from "./matrices.js";
import { MatrixView } from "./matrix_view.js";
import { groupsOf, headName, markChosen, overview, titles } from "./overview.js";
import { QueryWeightsView, viewTitle } from "./axis_views.js";
import { NO_ATTENTION } from "./session.js";
import { HEAD_COLOURS, HEAD_COLOURS_DARK, themeOf } from "./painting.js";
import { StepChooser } from "./step_chooser.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./overview.js").Head} Head */
/** @typedef {import("./overview.js").Group} Group */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

class Heads {
  /** @param {Page} page */
  constructor(page) {
    this.page = page;
    /** @type {LoadedTrace | null} */
    this.trace = null;
    /** @type {Group[]} */
    this.groups = [];
    /** @type {Group | null} */
    this.group = null;
    /** @type {Head[]} */
    this.chosen = [];
    this.overlay = false;
    /** Whether attention × gradient and rollout were just requested. */
    this.showAdded = false;
    this.byRow = false;
    this.mode = "matrix";
    /** @type {Picture | null} */
    this.picture = null;
    /** @type {HTMLElement} */
    this.grid = element("div");
    this.matrix = new MatrixView(page, {
      label: "The selected heads. Use the arrow keys to move between cells; Enter shows the attention of one query.",
      chosen: (row) => this.showQuery(row),
    });
    this.lines = new LinesView(page);
    this.queryWeights = new QueryWeightsView(page);
    this.steps = new StepChooser(() => this.drawChosen());
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.legend = element("ul", { class: "heed-legend", "aria-label": "Selected heads" });
    this.groupSelect = selectField("Attention", [], "", (key) => this.setGroup(key));
    this.gradients = checkbox("Include attention × gradient and rollout", false, (on) => this.setGradients(on));
    this.gradients.field.hidden = !page.provider.live;
    this.modes = element("div");
    this.limit = element("p", { class: "heed-hint", role: "status" });
    this.body = element(
      "div", { class: "heed-panel" },
      element("div", { class: "heed-tools" }, this.groupSelect.field, this.gradients.field),
      this.notice,
      element("div", { class: "heed-heads" }, this.overviewSection(), this.detailSection()),
    );
    page.onTheme(() => {
      this.drawGrid();
      if (!this.body.hidden) this.drawChosen();
    });
  }

  overviewSection() {
    this.overlayBox = checkbox("Overlay heads", false, (on) => {
      this.overlay = on;
      if (!on && this.chosen.length > 1) this.setChosen(this.chosen.slice(0, 1));
    });
    this.layerButton = element("button", {
      type: "button", class: "heed-button", onclick: () => this.selectLayer(),
    }, "Whole layer");
    return element(
      "section", { class: "heed-all-heads", "aria-label": "All heads" }, this.grid,
      element("div", { class: "heed-tools" }, this.overlayBox.field, this.layerButton),
      this.limit,
      element("p", { class: "heed-hint" }, "One row per layer, one picture per head. Shift-click overlays another head."),
      glossaryLine(["head", "cross-attention", "entropy", "attention × gradient", "rollout"]),
    );
  }

  detailSection() {
    this.setModes();
    this.contrastToggle = checkbox("Normalise rows", false, (on) => {
      this.byRow = on;
      this.drawChosen();
    });
    return element(
      "section", { class: "heed-chosen", "aria-label": "Selected heads" },
      element(
        "div", { class: "heed-tools" }, this.modes, this.contrastToggle.field,
        exportButtons(() => this.printPicture(), () => this.picture?.title ?? "heads", this.page.announce, () => this.lineDrawing()),
      ),
      this.legend, this.steps.body, this.matrix.body, this.lines.body, this.queryWeights.body,
    );
  }

  /** The axis of the group's keys. */
  get axis() {
    const facts = this.trace && this.group ? this.trace.summary.maps[this.group.maps[0]] : null;
    return facts && this.trace ? this.trace.summary.kinds[facts.key_axis] : null;
  }

  /** Whether the group's queries and keys are on the same axis. */
  get ownAxis() {
    const facts = this.trace && this.group ? this.trace.summary.maps[this.group.maps[0]] : null;
    return facts !== null && facts.query_axis === facts.key_axis;
  }

  setModes() {
    const drawn = this.axis && viewTitle(this.axis);
    const second = drawn ? { value: "axis", text: drawn } : { value: "lines", text: "Lines of one word" };
    if (this.mode !== "matrix") this.mode = second.value;
    this.modes.replaceChildren(radioGroup("Show as", [{ value: "matrix", text: "Matrix" }, second], this.mode, (mode) => {
      this.mode = mode;
      this.drawChosen();
    }));
  }

  /** @param {number} row */
  showQuery(row) {
    this.mode = "lines";
    this.lines.row = this.queryWeights.row = row;
    this.setModes();
    this.drawChosen();
    if (this.mode === "lines") this.lines.choose(row);
  }

  /** The picture in the colours for a white background. */
  printPicture() {
    const { picture } = this;
    const colour = (/** @type {number} */ place) => (this.chosen.length > 1 ? HEAD_COLOURS[place] : null);
    return picture && { ...picture, layers: picture.layers.map((layer, place) => ({ ...layer, colour: colour(place) })) };
  }

  /** The SVG that is saved while lines or a view of the axis are shown; null otherwise. */
  lineDrawing() {
    const picture = this.printPicture();
    if (this.mode === "axis") return this.queryWeights.drawing();
    return this.mode === "lines" && picture ? linesSvg(picture, this.lines.row) : null;
  }

  async show() {
    const { subject } = this.page.session;
    // While gradients are enabled, request them for new sentences as well.
    if (this.gradients.input.checked && subject && "model" in subject && !subject.gradients) return this.setGradients(true);
    try {
      const trace = await this.page.session.current();
      if (subject !== this.page.session.subject) return;
      if (trace !== this.trace) this.setTrace(trace);
      else this.matrix.resize();
      this.notice.textContent = "";
    } catch (error) {
      if (subject !== this.page.session.subject) return;
      this.trace = null;
      this.notice.textContent = messageOf(error);
    }
    this.body.classList.toggle("heed-empty", !this.trace);
  }

  /** @param {LoadedTrace} trace */
  setTrace(trace) {
    const before = this.group?.key;
    this.groups = groupsOf(trace.summary.maps);
    this.trace = this.groups.length ? trace : null;
    if (!this.groups.length) throw new Error(NO_ATTENTION);
    setOptions(this.groupSelect.input, this.groups.map(({ key, title }) => ({ value: key, text: title })), "");
    const cross = this.groups.find(({ title }) => title === "Cross");
    // The user asked for other maps: show the one for the axes that were shown.
    const axes = before?.split(" ").slice(1).join(" ");
    const added = this.showAdded ? this.groups.find(({ key }) => key === `gradient ${axes}`) ?? this.groups.find(({ key }) => key === `rollout ${axes}`) : undefined;
    this.showAdded = false;
    this.setGroup((added ?? this.groups.find(({ key }) => key === before) ?? cross ?? this.groups[0]).key);
  }

  /** @param {boolean} on */
  setGradients(on) {
    const { subject } = this.page.session;
    if (!subject || !("model" in subject)) return;
    const { gradients: _, ...plain } = subject;
    this.showAdded = on && !subject.gradients;
    this.page.session.setSubject(on ? { ...plain, gradients: true } : plain);
  }

  /** @param {string} key */
  setGroup(key) {
    const group = this.groups.find((one) => one.key === key);
    if (!group || !this.trace) return;
    const sameGroup = this.group?.key === key && this.chosen.length;
    this.group = group;
    if (!sameGroup) this.mode = this.axis && viewTitle(this.axis) ? "axis" : "matrix";
    this.setModes();
    this.groupSelect.input.value = key;
    this.drawGrid();
    const { maps } = this.trace.summary;
    const remaining = sameGroup ? this.chosen.filter(({ map, head }) => group.maps.includes(map) && head < maps[map].heads) : [];
    this.setChosen(remaining.length ? remaining : [{ map: group.maps[group.maps.length - 1], head: 0 }]);
  }

  drawGrid() {
    if (!this.trace || !this.group) return;
    const grid = overview(this.page, this.trace, this.group, (head, add) => this.selectHead(head, add || this.overlay));
    this.grid.replaceWith(grid);
    this.grid = grid;
    markChosen(this.grid, this.chosen, (place) => this.colour(place));
  }

  /** @param {number} place */
  colour(place) {
    const colours = themeOf(this.page.root).dark ? HEAD_COLOURS_DARK : HEAD_COLOURS;
    return this.chosen.length > 1 ? colours[place] : null;
  }

  /** @param {Head} head @param {boolean} add */
  selectHead(head, add) {
    const others = this.chosen.filter((one) => one.map !== head.map || one.head !== head.head);
    const there = others.length < this.chosen.length;
    if (!add) return this.setChosen([head]);
    if (there && others.length) return this.setChosen(others);
    if (others.length >= HEAD_COLOURS.length) {
      this.limit.textContent = `At most ${HEAD_COLOURS.length} heads can be overlaid.`;
      return;
    }
    return this.setChosen([...others, head]);
  }

  selectLayer() {
    if (!this.trace || !this.chosen.length) return;
    const { map } = this.chosen[0];
    const { heads } = this.trace.summary.maps[map];
    const count = Math.min(heads, HEAD_COLOURS.length);
    this.setChosen(Array.from({ length: count }, (_, head) => ({ map, head })));
    if (count < heads) this.limit.textContent = `Heads 1 to ${count} of ${heads}: at most ${count} can be overlaid.`;
  }

  /** @param {Head[]} heads */
  setChosen(heads) {
    this.chosen = heads;
    this.limit.textContent = "";
    if (this.overlayBox) this.overlayBox.input.checked = this.overlay || heads.length > 1;
    markChosen(this.grid, heads, (place) => this.colour(place));
    this.drawChosen();
  }

  /** @param {Head} head */
  nameOf(head) {
    return this.trace && this.group ? headName(this.trace, this.group, head) : "";
  }

  async drawChosen() {
    const { trace, group, chosen } = this;
    if (!trace || !group) return;
    try {
      const whole = await Promise.all(chosen.map(({ map, head }) => trace.head(map, head)));
      if (trace !== this.trace || chosen !== this.chosen) return;
      const [{ map }] = chosen;
      const facts = trace.summary.maps[map];
      // If there is only one query, the rows are the steps.
      const step = this.steps.of(facts.queries > 1 ? trace.stepLabels(map) : null);
      const matrices = step === null ? whole : whole.map((one) => sliceRows(one, step * facts.queries, (step + 1) * facts.queries));
      this.picture = {
        title: [group.title, chosen.map((head) => this.nameOf(head)).join(", "), this.steps.label].filter(Boolean).join(" "),
        layers: matrices.map((matrix, place) => ({ name: this.nameOf(chosen[place]), matrix, colour: this.colour(place) })),
        rows: step === null ? trace.rowLabels(map) : trace.queryLabels(map),
        columns: trace.columnLabels(map),
        ...titles(facts),
        bars: [],
        byRow: this.byRow,
        causal: this.ownAxis && matrices.every(isCausal),
      };
      this.notice.textContent = "";
    } catch (error) {
      this.notice.textContent = messageOf(error);
      return;
    }
    this.drawLegend();
    this.matrix.body.hidden = this.mode !== "matrix";
    if (this.contrastToggle) this.contrastToggle.field.hidden = this.mode !== "matrix";
    this.lines.body.hidden = this.mode !== "lines";
    this.queryWeights.body.hidden = this.mode !== "axis";
    if (this.mode === "matrix") this.matrix.show(this.picture);
    else if (this.mode === "lines") this.lines.show(this.picture);
    else if (this.axis) this.queryWeights.show(this.picture, this.axis, this.ownAxis);
  }

  drawLegend() {
    const { trace, picture } = this;
    if (!trace || !picture) return;
    this.legend.replaceChildren(...this.chosen.map((head, place) => {
      const swatch = element("i", { class: "heed-swatch" });
      swatch.style.background = this.colour(place) ?? "var(--heed-weight)";
      const facts = trace.summary.maps[head.map];
      const entropy = `${facts.entropy[head.head].toFixed(2)} bits, up to ${picture.layers[place].matrix.peak.toFixed(2)}`;
      return element(
        "li", {}, swatch, element("span", { title: facts.name }, this.nameOf(head)), element("small", {}, entropy),
      );
    }));
  }
}

/**
 * @param {Page} page
 * @returns {Panel}
 */
export function headsPanel(page) {
  const heads = new Heads(page);
  return { name: "heads", title: "Heads", body: heads.body, show: () => heads.show() };
}
