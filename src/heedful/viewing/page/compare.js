// The Compare panel: two runs or two traces side by side, for the same text or an edited one.

import { alignmentPicture } from "./alignment.js";
import { selectField, element, messageOf } from "./elements.js";
import { exportButtons } from "./exporting.js";
import { markedWords } from "./hypotheses.js";
import { formatSigned } from "./matrices.js";
import { MatrixView } from "./matrix_view.js";
import { groupsOf, headName, titles } from "./overview.js";
import { NO_ATTENTION } from "./session.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Models} Models */
/** @typedef {import("./types.js").Picture} Picture */
/** @typedef {import("./session.js").LoadedTrace} LoadedTrace */
/** @typedef {import("./session.js").Subject} Subject */

/**
 * The subject for the typed text and a model. The second text is kept if the models belong to the same panel and the
 * panel does not compute its own, for this text.
 * @param {Page} page
 * @param {string} model
 * @param {string} [edited] a text instead of the typed one
 * @returns {Promise<Subject>}
 */
async function subjectFor(page, model, edited) {
  const now = page.session.inputSubject;
  if (now && "input" in now) return { ...now, model };
  if (!now || !("source" in now)) throw new Error("type a text first");
  const source = edited ?? now.source;
  if (!source.trim()) throw new Error("the text is empty; type a text");
  const { gradients: _, ...plain } = now;
  const same = source === now.source;
  if (now.model === model && now.target !== undefined && same) return plain;
  const panel = page.panelOf(model);
  if (panel?.subjectFor) return panel.subjectFor(model, { source });
  const samePanel = panel === page.panelOf(now.model);
  const { model: _model, target, ...how } = plain;
  const keeps = samePanel && target !== undefined && (same || !panel?.writes);
  return { ...(samePanel ? how : {}), source, model, ...(keeps ? { target } : {}) };
}

/**
 * The default subjects of both sides: the model of the typed text, and the next model that is comparable to it, or a
 * trace.
 * @param {Page} page
 * @param {Models} models
 * @param {{value: string}[]} options
 * @returns {string[]}
 */
function defaultSides(page, models, options) {
  const now = page.session.inputSubject;
  const values = options.map(({ value }) => value);
  const own = now && "model" in now ? `model:${now.model}` : values[0];
  const same = (/** @type {string} */ value) => comparisonKey(models, value) === comparisonKey(models, own);
  const other = values.find((value) => value !== own && same(value)) ?? values.find((value) => value.startsWith("trace:"));
  // With a single model, two of its heads can be compared.
  return [own, other ?? own];
}

/**
 * Models with the same key are comparable: the same panel, task, number of texts and source language.
 * @param {Models} models
 * @param {string} value
 */
function comparisonKey(models, value) {
  if (value.startsWith("trace:")) return "trace";
  const name = value.slice(6);
  const all = /** @type {Partial<import("./types.js").ModelFacts & import("./types.js").ReaderFacts>[]} */ (
    [...models.models, ...(models.readers ?? [])]);
  const known = all.find((one) => one.name === name);
  const panel = models.panels?.find((one) => one.models.includes(name))?.name;
  return [panel, known?.task, known?.pairs === true, known?.source].join(" ");
}

/** One of the two sides. */
class Side {
  /**
   * @param {Page} page
   * @param {string} name
   * @param {{value: string, text: string}[]} options
   * @param {() => void} drawn called when there is a new picture
   */
  constructor(page, name, options, drawn) {
    this.page = page;
    this.drawn = drawn;
    /** Whether the user has selected the subject. */
    this.chosenByUser = false;
    const changed = () => this.show();
    this.name = name;
    this.selected = "alignment";
    /** Whether the user has selected the map. */
    this.mapChosen = false;
    /** Whether another map than that of the other side is wanted: both have the same subject. */
    this.differs = false;
    this.requests = 0;
    /** @type {Picture | null} */
    this.picture = null;
    /** The output, or the text itself. */
    this.shown = "";
    /** @type {HTMLTextAreaElement | null} the text of this side, if it can be edited */
    this.field = null;
    /** @type {HTMLElement | null} */
    this.fieldLabel = null;
    this.subjectSelect = selectField(name, options, options[0].value, () => {
      this.chosenByUser = true;
      changed();
    });
    this.mapSelect = selectField("Map", [{ value: "alignment", text: "Alignment" }], "alignment", (value) => {
      this.selected = value;
      this.mapChosen = true;
      changed();
    });
    this.text = element("p", { class: "heed-sentence", dir: "auto" });
    this.figure = element("p", { class: "heed-detail" });
    this.notice = element("p", { class: "heed-notice", role: "status" });
    this.view = new MatrixView(page, { label: `${name}: weights. Use the arrow keys to move between cells.`, height: 520, titled: true });
    this.body = element(
      "section", { class: "heed-side", "aria-label": name },
      element("div", { class: "heed-tools" }, this.subjectSelect.field, this.mapSelect.field),
      this.notice, this.text, this.figure, this.view.body,
      exportButtons(() => this.picture, () => `${name}-${this.subjectSelect.input.value}`, page.announce),
    );
  }

  /**
   * The subject of this side: a trace, or the typed text and a model.
   * @returns {Promise<Subject>}
   */
  async subject() {
    const value = this.subjectSelect.input.value;
    return value.startsWith("trace:") ? { trace: value.slice(6) } : subjectFor(this.page, value.slice(6), this.field?.value);
  }

  async show() {
    const request = ++this.requests;
    this.shown = ""; // until it is known, the other side has nothing to differ from
    const fixed = this.subjectSelect.input.value.startsWith("trace:") || "input" in (this.page.session.inputSubject ?? {});
    if (this.fieldLabel) this.fieldLabel.hidden = fixed;
    try {
      const subject = await this.subject();
      const trace = await this.page.session.load(subject);
      if (request !== this.requests) return;
      this.setMapOptions(trace);
      const picture = await this.matrixPicture(trace);
      // Another subject may have been selected in the meantime.
      if (request !== this.requests) return;
      this.picture = picture;
      // Show the output; for a second text or a continuation, show that text itself.
      const unit = ("model" in subject ? this.page.panelOf(subject.model)?.unit : undefined) ?? "tokens";
      const given = "target" in subject && unit;
      this.shown = (given && subject.target) || trace.text.target || trace.text.source;
      this.text.textContent = this.shown;
      const total = trace.summary.log_probabilities.reduce((sum, one) => sum + one, 0);
      const { decided, title } = trace.summary;
      const count = unit && `, ${decided.length} ${unit}`;
      // A predicted number has no probability.
      const probable = trace.summary.log_probabilities.some(Boolean) ? `log-probability ${formatSigned(total, 2)}${count}` : decided.join(" ");
      this.figure.textContent = decided.length ? probable : title;
      this.notice.textContent = "";
      this.view.body.hidden = false;
      this.drawn();
    } catch (error) {
      if (request !== this.requests) return;
      this.picture = null;
      this.view.body.hidden = true;
      this.text.textContent = this.figure.textContent = this.shown = "";
      this.notice.textContent = messageOf(error);
      this.drawn();
    }
  }

  /**
   * Let the user edit the text of this side.
   * @param {() => void} changed
   */
  addField(changed) {
    let timer = 0;
    this.field = element("textarea", {
      class: "heed-edited", rows: 2, dir: "auto", spellcheck: "false", oninput: () => {
        clearTimeout(timer);
        timer = setTimeout(changed, 400);
      },
    });
    this.fieldLabel = element("label", { class: "heed-field heed-edited-field" }, element("span", {}, "Text of B: edit it to compare"), this.field);
    return this.fieldLabel;
  }

  /**
   * Mark the words that another text does not have.
   * @param {string} other
   */
  markDifferences(other) {
    if (this.shown) this.text.replaceChildren(...(other ? markedWords(this.shown, other) : [this.shown]));
  }

  /** @param {LoadedTrace} trace */
  setMapOptions(trace) {
    const options = trace.alignment ? [{ value: "alignment", text: "Alignment" }] : [];
    for (const group of groupsOf(trace.summary.maps)) {
      group.maps.forEach((map) => {
        for (let head = 0; head < trace.summary.maps[map].heads; head++) {
          const text = `${group.title} · ${headName(trace, group, { map, head })}`;
          options.push({ value: `${map} ${head}`, text });
        }
      });
    }
    const { input } = this.mapSelect;
    if (this.differs && this.selected === options[0]?.value && options.length > 1) this.selected = options[1].value;
    this.differs = false;
    input.value = this.selected;
    if (input.options.length === options.length && [...input.options].every((one, i) => one.text === options[i].text)) return;
    input.replaceChildren(...options.map((one) => element("option", { value: one.value }, one.text)));
    if (!options.some((one) => one.value === this.selected)) this.selected = options[0]?.value ?? "";
    input.value = this.selected;
  }

  /** @param {LoadedTrace} trace @returns {Promise<Picture>} */
  async matrixPicture(trace) {
    if (!this.selected) throw new Error(NO_ATTENTION);
    if (this.selected === "alignment") return alignmentPicture(trace, { hard: false, words: false });
    const [map, head] = this.selected.split(" ").map(Number);
    const facts = trace.summary.maps[map];
    return {
      title: `${facts.name} head ${head + 1}`,
      layers: [{ name: `${facts.name} head ${head + 1}`, matrix: await trace.head(map, head), colour: null }],
      rows: trace.rowLabels(map), columns: trace.columnLabels(map),
      ...(facts.step_axis && facts.queries > 1 ? {} : trace.wordsOf(map)),
      ...titles(facts), bars: [],
    };
  }
}

/**
 * @param {Page} page
 * @param {Models} models
 * @returns {Panel}
 */
export function comparePanel(page, models) {
  const options = [
    ...[...models.models, ...(models.readers ?? [])].map(({ name }) => ({ value: `model:${name}`, text: name })),
    ...models.traces.map((name) => ({ value: `trace:${name}`, text: name })),
  ];
  const sentence = element("p", { class: "heed-sentence heed-shared", dir: "auto" });
  const sides = ["Model A", "Model B"].map((name) => new Side(page, name, options, drawBoth));
  const [, second] = sides;
  /** The text that was typed, which the second side follows until the user edits its own. */
  let typed = "";
  const field = second.addField(() => {
    if (!second.mapChosen) second.selected = sides[0].selected;
    second.show();
  });
  const body = element(
    "div", { class: "heed-panel" }, element("div", { class: "heed-sides heed-compared" }, sentence, field),
    element("div", { class: "heed-sides" }, ...sides.map((side) => side.body)),
  );
  /** Draw both sides with one scale of colours. */
  function drawBoth() {
    const pictures = sides.flatMap(({ picture }) => picture ?? []);
    const peak = Math.max(...pictures.flatMap(({ layers }) => layers.map(({ matrix }) => matrix.peak)));
    for (const { picture, view } of sides) if (picture) view.show(Object.assign(picture, { peak }));
    sides.forEach((side, i) => side.markDifferences(sides[1 - i].shown));
  }
  function show() {
    const { inputSubject } = page.session;
    const source = inputSubject && "source" in inputSubject ? inputSubject.source : "";
    sentence.textContent = source;
    if (second.field && (second.field.value === typed || source !== typed)) second.field.value = source;
    typed = source;
    // Sides that the user has not set follow the typed text.
    const first = defaultSides(page, models, options);
    sides.forEach((side, i) => {
      if (!side.chosenByUser) side.subjectSelect.input.value = first[i];
      const same = sides[0].subjectSelect.input.value === first[i] && (second.field?.value ?? source) === source;
      side.differs = i > 0 && !side.chosenByUser && same;
      side.show();
    });
  }
  return { name: "compare", title: "Compare", body, show };
}
