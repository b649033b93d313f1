// The Heads panel: thumbnails of all heads, and the selected heads as matrices, as lines or by the kind of the axis.

import { selectField, element, setOptions, messageOf, radioGroup, checkbox } from "./elements.js";
import { colourScale } from "./colour_scale.js";
import { exportButtons } from "./exporting.js";
import { FramePlayer } from "./frame_player.js";
import { glossaryLine } from "./glossary.js";
import { LinesView } from "./lines.js";
import { linesSvg } from "./lines_svg.js";
import { patternList, patternText } from "./head_patterns.js";
import { HeadRemoval } from "./head_removal.js";
import { isCausal } from "./masked_cells.js";
import { sliceRows } from "./matrices.js";
import { MatrixView } from "./matrix_view.js";
import { MultiplesView } from "./multiples.js";
import { groupsOf, headName, layerName, markChosen, overview, titles } from "./overview.js";
import { QueryWeightsView, isPath, viewTitle } from "./axis_views.js";
import { NO_ATTENTION } from "./session.js";
import { HEAD_COLOURS, HEAD_COLOURS_DARK, themeOf } from "./painting.js";
import { StepChooser } from "./step_chooser.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./overview.js").Head} Head */
/** @typedef {import("./overview.js").Group} Group */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */

// More heads than these are never drawn at once.
const MOST_HEADS = 64;

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
    this.several = false;
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
      chosen: (row) => {
        this.showQuery(row);
        this.frames.play([row, row]);
      },
    });
    this.multiples = new MultiplesView(page, (place) => this.setChosen([this.chosen[place]]));
    this.lines = new LinesView(page);
    this.queryWeights = new QueryWeightsView(page);
    this.steps = new StepChooser(() => this.drawChosen());
    this.removal = new HeadRemoval(page);
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.heading = element("h3", { class: "heed-picture-title" });
    this.scale = element("div");
    this.legend = element("ul", { class: "heed-legend", "aria-label": "Selected heads" });
    this.groupSelect = selectField("Attention", [], "", (key) => this.setGroup(key));
    this.gradients = checkbox("Include attention × gradient and rollout", false, (on) => this.setGradients(on));
    this.gradients.field.hidden = !page.provider.live;
    this.modes = element("div");
    this.limit = element("p", { class: "heed-hint", role: "status" });
    this.patterns = element("div");
    this.body = element(
      "div", { class: "heed-panel" },
      element("div", { class: "heed-tools" }, this.groupSelect.field, this.gradients.field),
      this.notice,
      element("div", { class: "heed-heads" }, this.overviewSection(), this.detailSection()),
    );
    /** Plays the queries, if they are frames of a sound. */
    this.frames = new FramePlayer(this.body);
    page.onTheme(() => {
      this.drawGrid();
      if (!this.body.hidden) this.drawChosen();
    });
  }

  overviewSection() {
    this.severalBox = checkbox("Select several heads", false, (on) => {
      this.several = on;
      if (!on && this.chosen.length > 1) this.setChosen(this.chosen.slice(0, 1));
    });
    this.layerButton = element("button", {
      type: "button", class: "heed-button", onclick: () => this.selectLayer(),
    }, "Whole layer");
    return element(
      "section", { class: "heed-all-heads", "aria-label": "All heads" }, this.grid,
      element("div", { class: "heed-tools" }, this.severalBox.field, this.layerButton),
      this.limit, this.patterns,
      element("p", { class: "heed-hint" }, "One row per layer, one picture per head. Shift-click adds another head."),
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
      this.heading, this.legend, this.steps.body, this.scale, this.matrix.body, this.multiples.body, this.lines.body,
      this.queryWeights.body, this.removal.body,
    );
  }

  /** The axis of the group's keys. */
  get axis() {
    const facts = this.trace && this.group ? this.trace.summary.maps[this.group.maps[0]] : null;
    return facts && this.trace ? this.trace.summary.kinds[facts.key_axis] : null;
  }

  /** The title of the view for this axis. */
  get drawn() {
    const facts = this.trace && this.group ? this.trace.summary.maps[this.group.maps[0]] : null;
    return facts && this.trace ? viewTitle(this.trace.summary.kinds[facts.key_axis], this.trace.summary.labels[facts.key_axis]) : undefined;
  }

  /** Whether the group's queries and keys are on the same axis. */
  get ownAxis() {
    const facts = this.trace && this.group ? this.trace.summary.maps[this.group.maps[0]] : null;
    return facts !== null && facts.query_axis === facts.key_axis;
  }

  /** Whether the group's queries are a path. */
  get path() {
    const facts = this.trace && this.group ? this.trace.summary.maps[this.group.maps[0]] : null;
    return facts !== null && this.trace !== null && isPath(this.trace.summary.kinds[facts.query_axis]);
  }

  setModes() {
    const second = this.drawn ? { value: "axis", text: this.drawn } : { value: "lines", text: "Lines of one word" };
    const modes = [{ value: "matrix", text: "Matrix" }, ...(!this.drawn && this.axis?.kind === "slots" ? [] : [second])];
    if (this.mode !== "matrix") this.mode = modes[modes.length - 1].value;
    this.modes.replaceChildren(radioGroup("Show as", modes, this.mode, (mode) => {
      this.mode = mode;
      this.drawChosen();
    }));
  }

  /** @param {number} row */
  async showQuery(row) {
    this.mode = "lines";
    this.lines.row = this.queryWeights.row = row;
    this.setModes();
    await this.drawChosen();
    if (this.mode === "lines") this.lines.choose(row);
  }

  /** The picture in the colours for a white background. */
  printPicture() {
    const { picture } = this;
    if (!picture || this.mode !== "lines" || picture.layers.length < 2) return picture;
    return { ...picture, layers: picture.layers.map((layer, place) => ({ ...layer, colour: HEAD_COLOURS[place] })) };
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
    if (!sameGroup) this.mode = this.drawn ? "axis" : "matrix";
    this.setModes();
    this.groupSelect.input.value = key;
    this.drawGrid();
    const { maps } = this.trace.summary;
    const remaining = sameGroup ? this.chosen.filter(({ map, head }) => group.maps.includes(map) && head < maps[map].heads) : [];
    this.setChosen(remaining.length ? remaining : [{ map: group.maps[group.maps.length - 1], head: 0 }]);
  }

  drawGrid() {
    if (!this.trace || !this.group) return;
    const grid = overview(this.page, this.trace, this.group, (head, add) => this.selectHead(head, add || this.several));
    this.grid.replaceWith(grid);
    this.grid = grid;
    this.patterns.replaceChildren(patternList(this.trace, this.group, (head) => this.nameOf(head), (heads) => this.setChosen(heads.slice(0, MOST_HEADS))));
    markChosen(this.grid, this.chosen, (place) => this.colour(place));
  }

  /**
   * The colour of a head: its own among several whose lines are drawn together.
   * @param {number} place
   */
  colour(place) {
    if (this.mode !== "lines" || this.chosen.length < 2) return null;
    return (themeOf(this.page.root).dark ? HEAD_COLOURS_DARK : HEAD_COLOURS)[place] ?? null;
  }

  /** @param {Head} head @param {boolean} add */
  selectHead(head, add) {
    const others = this.chosen.filter((one) => one.map !== head.map || one.head !== head.head);
    const there = others.length < this.chosen.length;
    if (!add) return this.setChosen([head]);
    if (there && others.length) return this.setChosen(others);
    if (others.length >= MOST_HEADS) {
      this.limit.textContent = `At most ${MOST_HEADS} heads can be shown at once.`;
      return;
    }
    return this.setChosen([...others, head]);
  }

  selectLayer() {
    if (!this.trace || !this.chosen.length) return;
    const { map } = this.chosen[0];
    const { heads } = this.trace.summary.maps[map];
    this.setChosen(Array.from({ length: Math.min(heads, MOST_HEADS) }, (_, head) => ({ map, head })));
    if (heads > MOST_HEADS) this.limit.textContent = `Heads 1 to ${MOST_HEADS} of ${heads}: at most ${MOST_HEADS} can be shown at once.`;
  }

  /** @param {Head[]} heads */
  setChosen(heads) {
    this.chosen = heads;
    this.limit.textContent = "";
    if (this.severalBox) this.severalBox.input.checked = this.several || heads.length > 1;
    this.drawChosen();
  }

  /** @param {Head} head */
  nameOf(head) {
    return this.trace && this.group ? headName(this.trace, this.group, head) : "";
  }

  async drawChosen() {
    const { trace, group, chosen: all } = this;
    if (!trace || !group) return;
    // Lines need a colour for each head.
    const chosen = this.mode === "lines" ? all.slice(0, HEAD_COLOURS.length) : all;
    markChosen(this.grid, all, (place) => this.colour(place));
    try {
      const whole = await Promise.all(chosen.map(({ map, head }) => trace.head(map, head)));
      if (trace !== this.trace || all !== this.chosen) return;
      const [{ map }] = chosen;
      const facts = trace.summary.maps[map];
      this.frames.of(trace.summary.kinds[facts.query_axis]);
      // If there is only one query, the rows are the steps.
      const step = this.steps.of(facts.queries > 1 ? trace.stepLabels(map) : null);
      const matrices = step === null ? whole : whole.map((one) => sliceRows(one, step * facts.queries, (step + 1) * facts.queries));
      this.picture = {
        title: [`${group.title}: ${this.namesOf(chosen)}`, this.steps.label].filter(Boolean).join(", "),
        layers: matrices.map((matrix, place) => ({ name: this.nameOf(chosen[place]), matrix, colour: this.colour(place) })),
        rows: step === null ? trace.rowLabels(map) : trace.queryLabels(map),
        columns: trace.columnLabels(map),
        ...(step === null && trace.stepLabels(map) && facts.queries > 1 ? {} : trace.wordsOf(map)),
        ...titles(facts),
        bars: [],
        whole: this.axis?.kind === "slots" || this.axis?.kind === "time",
        byRow: this.byRow,
        causal: this.ownAxis && matrices.every(isCausal),
      };
      this.notice.textContent = "";
    } catch (error) {
      this.notice.textContent = messageOf(error);
      return;
    }
    this.drawLegend(chosen);
    this.removal.of(trace, all, this.namesOf(all));
    const single = this.picture.layers.length === 1;
    this.matrix.body.hidden = this.mode !== "matrix" || !single;
    this.multiples.body.hidden = this.mode !== "matrix" || single;
    this.scale.hidden = this.mode !== "matrix";
    this.scale.replaceChildren(colourScale(this.picture, themeOf(this.page.root)));
    if (this.contrastToggle) this.contrastToggle.field.hidden = this.mode !== "matrix";
    this.lines.body.hidden = this.mode !== "lines";
    this.queryWeights.body.hidden = this.mode !== "axis";
    this.multiples.show(this.multiples.body.hidden ? null : this.picture);
    if (this.mode === "matrix" && single) this.matrix.show(this.picture);
    else if (this.mode === "matrix") return;
    else if (this.mode === "lines") this.lines.show(this.picture);
    else if (this.axis) this.queryWeights.show(this.picture, this.axis, this.ownAxis, this.path);
  }

  /**
   * The names of heads in a title: all of a few, otherwise the layer or their number.
   * @param {Head[]} heads
   */
  namesOf(heads) {
    if (heads.length <= 3 || !this.trace || !this.group) return heads.map((head) => this.nameOf(head)).join(", ");
    const maps = new Set(heads.map(({ map }) => map));
    const facts = this.trace.summary.maps[heads[0].map];
    const counted = heads.length === facts.heads && maps.size === 1 ? `all ${facts.heads} heads` : `${heads.length} heads`;
    return maps.size > 1 || facts.kind === "rollout" ? counted : `${layerName(this.group, this.group.maps.indexOf(heads[0].map))}, ${counted}`;
  }

  /** @param {Head[]} heads those that are shown */
  drawLegend(heads) {
    const { trace, picture } = this;
    if (!trace || !picture) return;
    this.heading.textContent = picture.title;
    if (heads.length < this.chosen.length) {
      this.limit.textContent = `Lines of ${heads.length} of the ${this.chosen.length} selected heads.`;
    }
    this.legend.replaceChildren(...heads.map((head, place) => {
      const colour = this.colour(place);
      const swatch = element("i", { class: "heed-swatch" });
      if (colour) swatch.style.background = colour;
      const facts = trace.summary.maps[head.map];
      const pattern = patternText(facts, head.head);
      const entropy = `${pattern && `${pattern}, `}${facts.entropy[head.head].toFixed(2)} bits, up to ${picture.layers[place].matrix.peak.toFixed(2)}`;
      return element(
        "li", {}, colour ? swatch : "", element("span", { title: facts.name }, this.nameOf(head)), element("small", {}, entropy),
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
