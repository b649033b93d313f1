// The attention equation with the numbers of one query: each step as a column, in which numbers can be changed.

import { computeSteps, countEdits, largestKeys, noEdits } from "./equation_math.js";
import { element } from "./elements.js";
import { formatSigned } from "./matrices.js";
import { renderWeights, themeOf } from "./painting.js";
import { StepChooser } from "./step_chooser.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").EquationRow} EquationRow */
/** @typedef {import("./equation_math.js").Steps} Steps */

/**
 * @typedef {object} Names
 * @property {string} query
 * @property {string[]} keys
 * @property {string[]} [components] the names of the numbers of a value; numbers if missing
 */

// More keys than these are first left out: those with the smallest weights.
const MOST_KEYS = 16;
// More numbers of the context than these are shown as colours only.
const MOST_COMPONENTS = 8;

const WALK = ["1 Compare", "2 Scale", "3 Add", "4 Mask", "5 Normalise", "6 Sum"];
const NO_ADDED = WALK.filter((step) => step !== "3 Add").map((step, i) => `${i + 1} ${step.slice(2)}`);

export class EquationView {
  /**
   * @param {Page} page
   * @param {() => void} changed called when a number or the selected key was changed
   */
  constructor(page, changed) {
    this.page = page;
    this.changed = changed;
    /** @type {EquationRow | null} */
    this.row = null;
    /** @type {Names} */
    this.names = { query: "", keys: [] };
    this.edits = noEdits();
    /** @type {Steps | null} */
    this.steps = null;
    /** The key whose numbers are shown in full. */
    this.key = 0;
    this.all = false;
    this.walk = new StepChooser(() => this.showWalk());
    this.formula = element("p", { class: "heed-formula" });
    this.table = element("table", { class: "heed-equation-table" });
    this.readout = element("p", { class: "heed-readout", role: "status" });
    this.more = element("button", { type: "button", class: "heed-button", onclick: () => this.showAll() }, "");
    this.reset = element("button", { type: "button", class: "heed-button", onclick: () => this.clear() }, "Reset numbers");
    this.count = element("span", { class: "heed-hint", role: "status" });
    this.context = element("div", { class: "heed-context" });
    this.body = element(
      "section", { class: "heed-equation", "aria-label": "The equation in numbers" },
      this.formula, this.walk.body,
      element("div", { class: "heed-scrolled", tabindex: 0, role: "region", "aria-label": "Steps for each key" }, this.table),
      element("div", { class: "heed-tools" }, this.more, this.reset, this.count), this.readout, this.context,
    );
  }

  /**
   * @param {EquationRow} row
   * @param {Names} names
   */
  show(row, names) {
    this.row = row;
    this.names = names;
    this.edits = noEdits();
    this.all = false;
    this.steps = computeSteps(row, this.edits);
    this.key = this.steps.weights.indexOf(Math.max(...this.steps.weights));
    this.hasAdded = row.added.some((number) => number !== 0);
    const labels = this.hasAdded ? WALK : NO_ADDED;
    this.walk.step = labels.length - 1;
    this.walk.of(labels);
    this.build();
    this.update();
    this.showWalk();
  }

  clear() {
    this.edits = noEdits();
    this.build();
    this.update();
    this.reset.blur();
  }

  showAll() {
    this.all = true;
    this.build();
    this.update();
  }

  showWalk() {
    this.walk.of(this.walk.labels);
    this.body.dataset.step = this.walk.label.slice(2).toLowerCase();
  }

  /** The keys that have a row. */
  get shown() {
    const { row, all } = this;
    if (!row) return [];
    return largestKeys(row.weights, all ? row.weights.length : MOST_KEYS);
  }

  /** Build the table; numbers are filled in by `update`. */
  build() {
    const { row, shown } = this;
    if (!row) return;
    const total = row.weights.length;
    this.more.hidden = shown.length === total;
    this.more.textContent = `Show all ${total} keys (${total - shown.length} with small weights are hidden)`;
    this.scale = this.input("Scale", row.score !== "dot", (value) => (this.edits.scale = value));
    const head = element(
      "tr", {}, element("th", { scope: "col" }, "Key"),
      element("th", { scope: "col", "data-column": "compare" }, row.score === "additive" ? "vᵀ tanh(q + k)" : row.score === "dot" ? "q · k" : "score"),
      row.score === "dot" ? element("th", { scope: "col", "data-column": "scale" }, "× ", this.scale, " =") : null,
      this.hasAdded ? element("th", { scope: "col", "data-column": "add" }, row.past ? "+ earlier weights" : "+ positions, mask") : null,
      element("th", { scope: "col", "data-column": "mask" }, "May attend"),
      element("th", { scope: "col", "data-column": "normalise" }, row.softmax_scale === null ? "Weight" : "Softmax"),
    );
    this.table.replaceChildren(
      element("caption", { class: "heed-visually-hidden" }, `What “${this.names.query}” attends to, step by step`),
      element("thead", {}, head), element("tbody", {}, ...shown.map((key) => this.tableRow(row, key))),
    );
  }

  /** @param {EquationRow} row @param {number} key */
  tableRow(row, key) {
    const name = this.names.keys[key];
    const { edits } = this;
    /** @type {HTMLInputElement} */
    const allowed = element("input", {
      type: "checkbox", "aria-label": `${name}: may attend`, onchange: () => this.edit(() => edits.allowed.set(key, allowed.checked)),
    });
    const bar = element("i", { class: "heed-weight-bar", "aria-hidden": "true" });
    return element(
      "tr", { "data-key": key },
      element("th", { scope: "row" }, element("button", {
        type: "button", class: "heed-key-button", dir: "auto", "aria-pressed": "false", onclick: () => this.select(key),
      }, name)),
      element("td", { "data-column": "compare" }, this.input(`${name}: comparison`, false, (value) => edits.products.set(key, value))),
      row.score === "dot" ? element("td", { "data-column": "scale", class: "heed-number" }) : null,
      this.hasAdded ? element("td", { "data-column": "add" }, this.input(`${name}: added to the score`, false, (value) => edits.added.set(key, value))) : null,
      element("td", { "data-column": "mask" }, allowed),
      element("td", { "data-column": "normalise" }, bar, this.input(`${name}: weight`, false, (value) => edits.weights.set(key, value))),
    );
  }

  /**
   * @param {string} label
   * @param {boolean} disabled
   * @param {(value: number) => void} given
   */
  input(label, disabled, given) {
    /** @type {HTMLInputElement} */
    const field = element("input", {
      type: "number", step: "any", class: "heed-edit", "aria-label": label, disabled, onchange: () => {
        if (field.value !== "" && Number.isFinite(field.valueAsNumber)) this.edit(() => given(field.valueAsNumber));
        else this.update();
      },
    });
    return field;
  }

  /** @param {() => void} change */
  edit(change) {
    change();
    this.update();
    this.page.announce(`Weights changed. ${this.readout.textContent}`);
  }

  /** @param {number} key */
  select(key) {
    this.key = key;
    this.update();
  }

  /** Compute all steps and fill in their numbers. */
  update() {
    const { row } = this;
    if (!row) return;
    this.steps = computeSteps(row, this.edits);
    const { steps } = this;
    const before = computeSteps(row, noEdits());
    this.showFormula(steps);
    if (this.scale) setNumber(this.scale, steps.scale, before.scale);
    for (const line of /** @type {NodeListOf<HTMLElement>} */ (this.table.querySelectorAll("tbody tr"))) {
      this.updateRow(line, Number(line.dataset.key), steps, before);
    }
    const changed = countEdits(this.edits);
    this.reset.disabled = !changed;
    this.count.textContent = changed ? `${changed} ${changed === 1 ? "number" : "numbers"} changed; what follows from them is orange` : "Change any number to see what follows.";
    this.readout.textContent = this.sentence(steps);
    this.showContext(steps, before);
    this.changed();
  }

  /** @param {HTMLElement} line @param {number} key @param {Steps} steps @param {Steps} before */
  updateRow(line, key, steps, before) {
    line.classList.toggle("heed-masked", !steps.allowed[key]);
    line.querySelector(".heed-key-button")?.setAttribute("aria-pressed", String(key === this.key));
    /** @param {string} column */
    const cell = (column) => line.querySelector(`[data-column=${column}]`);
    setNumber(cell("compare")?.querySelector("input"), steps.products[key], before.products[key]);
    const scaled = cell("scale");
    if (scaled) {
      scaled.textContent = formatSigned(steps.scaled[key], 2);
      scaled.classList.toggle("heed-followed", differs(steps.scaled[key], before.scaled[key]));
    }
    setNumber(cell("add")?.querySelector("input"), steps.scores[key] - steps.scaled[key], before.scores[key] - before.scaled[key]);
    const allowed = /** @type {HTMLInputElement | null} */ (cell("mask")?.querySelector("input"));
    if (allowed) allowed.checked = steps.allowed[key];
    const weight = cell("normalise");
    setNumber(weight?.querySelector("input"), steps.weights[key], before.weights[key]);
    const bar = /** @type {HTMLElement | null} */ (weight?.querySelector(".heed-weight-bar"));
    bar?.style.setProperty("inline-size", `${Math.min(1, Math.max(0, steps.weights[key])) * 100}%`);
  }

  /** @param {Steps} steps */
  showFormula(steps) {
    const { row } = this;
    if (!row) return;
    /** @param {string} step @param {string} text */
    const part = (step, text) => element("span", { "data-column": step }, text);
    const compared = row.score === "additive" ? "vᵀ tanh(q + kⱼ)" : row.score === "dot" ? "q · kⱼ" : "score(q, kⱼ)";
    this.formula.replaceChildren(
      part("sum", "context = Σⱼ "), part("normalise", row.softmax_scale === null ? "normalise(" : "softmax("), part("mask", " mask("),
      part("compare", ` ${compared}`), row.score === "dot" ? part("scale", ` × ${formatSigned(steps.scale, 3)}`) : "",
      this.hasAdded ? part("add", " + bⱼ") : "", part("mask", " )"), part("normalise", " )"), part("sum", " vⱼ"),
    );
  }

  /**
   * The numbers of the selected key as a sentence.
   * @param {Steps} steps
   */
  sentence(steps) {
    const { row, key } = this;
    if (!row) return "";
    const name = `${this.names.query} → ${this.names.keys[key]}: `;
    const product = formatSigned(steps.products[key], 2);
    const scaled = row.score === "dot" ? `${product} × ${formatSigned(steps.scale, 3)} = ${formatSigned(steps.scaled[key], 2)}` : product;
    const added = steps.scores[key] - steps.scaled[key];
    const score = this.hasAdded ? `${scaled}, ${added < 0 ? "−" : "+"} ${formatSigned(Math.abs(added), 2)} = ${formatSigned(steps.scores[key], 2)}` : scaled;
    const weight = formatSigned(steps.weights[key], 2);
    if (!steps.allowed[key]) return `${name}${score}. Masked: weight 0.00.`;
    if (row.softmax_scale === null) return `${name}${score}. Weight ${weight}, recorded: this page does not compute this normaliser.`;
    const factor = row.softmax_scale === 1 ? "" : `${formatSigned(row.softmax_scale, 3)} × `;
    // The powers without the shift that prevents overflow, if they can be read.
    const shift = Math.abs(row.softmax_scale * steps.largest) < 12 ? Math.exp(row.softmax_scale * steps.largest) : 1;
    const of = shift === 1 ? `score − ${formatSigned(steps.largest, 2)}` : "score";
    const share = `exp(${factor}${of}) = ${decimal(steps.powers[key] * shift)}, of the sum ${decimal(steps.total * shift)}: ${weight}`;
    return `${name}${score}. ${share}.`;
  }

  /** @param {Steps} steps @param {Steps} before */
  showContext(steps, before) {
    const { row, names } = this;
    if (!row) return;
    const changed = steps.context.some((number, e) => differs(number, before.context[e]));
    const sum = steps.weights.reduce((all, weight) => all + weight, 0);
    const peak = Math.max(...before.context.map(Math.abs), ...steps.context.map(Math.abs));
    /** @param {string} title @param {number[]} numbers */
    const strip = (title, numbers) => {
      const canvas = renderWeights({ rows: 1, columns: numbers.length, values: Float32Array.from(numbers), peak }, themeOf(this.page.root), { mirrored: false, peak });
      canvas.setAttribute("role", "img");
      canvas.setAttribute("aria-label", `${title}: ${numbers.length} numbers between −${decimal(peak)} and ${decimal(peak)}`);
      return element("div", { class: "heed-strip" }, element("span", { class: "heed-label" }, title), canvas);
    };
    const listed = steps.context.length <= MOST_COMPONENTS ? steps.context : [];
    this.context.replaceChildren(
      element("h3", { class: "heed-label", "data-column": "sum" }, `The context: the values, weighted and added (weights add up to ${formatSigned(sum, 2)})`),
      strip(changed ? "Recorded" : "Context", before.context), changed ? strip("Now", steps.context) : "",
      ...listed.map((number, e) => element(
        "span", { class: `heed-component${differs(number, before.context[e]) ? " heed-followed" : ""}` },
        `${names.components?.[e] ?? e + 1} ${formatSigned(number, 2)}`,
      )),
      changed ? element("p", { class: "heed-hint" }, `The context moved by ${decimal(distance(steps.context, before.context))}; it was ${decimal(distance(before.context, []))} long.`) : "",
    );
  }
}

/** @param {number} one @param {number} other */
function differs(one, other) {
  return Math.abs(one - other) > 1e-6 * Math.max(1, Math.abs(other));
}

/**
 * @param {HTMLInputElement | null | undefined} field
 * @param {number} value
 * @param {number} before the number without changes
 */
function setNumber(field, value, before) {
  if (!field) return;
  field.value = String(Number(value.toFixed(3)) + 0);
  field.classList.toggle("heed-followed", differs(value, before));
  field.title = differs(value, before) ? `recorded: ${formatSigned(before, 3)}` : "";
}

/** @param {number} value */
function decimal(value) {
  if (value !== 0 && (Math.abs(value) < 0.01 || Math.abs(value) >= 10_000)) return value.toExponential(1).replace("-", "−");
  return formatSigned(value, 2);
}

/**
 * The length of the difference of two vectors.
 * @param {number[]} one
 * @param {number[]} other missing numbers are 0
 */
function distance(one, other) {
  return Math.hypot(...one.map((number, i) => number - (other[i] ?? 0)));
}
