// The Write panel: a prompt, the decoding settings, and the text as it is generated.

import { selectField, element, inputField, messageOf, checkbox, isAbortError } from "./elements.js";
import { formatSigned } from "./matrices.js";
import { ModelChooser } from "./text_input.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").Generated} Generated */

const ENDS = { end: "ended by the model", stop: "stopped at the string", limit: "stopped at the token limit" };
/** @typedef {"temperature" | "top_k" | "top_p" | "seed" | "max_tokens"} NumberName */
/** @type {[NumberName, string, Record<string, string | number>][]} */
const NUMBERS = [
  ["temperature", "Temperature", { min: 0.01, max: 100, step: "any", value: 1 }],
  ["top_k", "Top k", { min: 1, step: 1, placeholder: "all" }],
  ["top_p", "Top p", { min: 0.01, max: 1, step: "any", placeholder: "1" }],
  ["seed", "Seed", { min: 0, step: 1, placeholder: "any" }],
  ["max_tokens", "Token limit", { min: 1, max: 1024, step: 1, value: 64 }],
];

class Write {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    this.chooser = new ModelChooser(page, "write", readers, () => this.reset());
    /** @type {AbortController | null} */
    this.request = null;
    /** @type {Record<string, string>} the last prompt and continuation, to restore them */
    this.last = {};
    const saved = page.savedInputs.get("write") ?? {};
    const save = () => this.save();
    this.decoding = selectField("Decoding", [{ value: "sample", text: "Sample" }, { value: "greedy", text: "Greedy" }], saved.how ?? "sample", () => {
      this.updateFields();
      this.save();
    });
    /** @type {Record<string, {field: HTMLLabelElement, input: HTMLInputElement}>} */
    this.numbers = Object.fromEntries(NUMBERS.map(([name, label, attributes]) => {
      const own = inputField(label, { type: "number", inputmode: "decimal", ...attributes, ...(saved[name] ? { value: saved[name] } : {}) }, save);
      return [name, own];
    }));
    this.stopString = inputField("Stop at", { type: "text", placeholder: "e.g. \\n", autocomplete: "off", spellcheck: "false", value: saved.stop ?? "" }, save);
    this.beginsToggle = checkbox("The prompt starts a document", saved.begins === "true", save);
    this.input = element("textarea", {
      dir: "auto", rows: 4, spellcheck: "false", "aria-label": "Prompt", placeholder: "Type a prompt (optional)…", oninput: save,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.generate();
      },
    });
    this.input.value = saved.text ?? "";
    this.button = element("button", { type: "button", class: "heed-button heed-submit", onclick: () => (this.request ? this.stop() : this.generate()) }, "Generate");
    this.prompt = element("span", { class: "heed-prompt" });
    this.continuation = element("span", { class: "heed-continuation" });
    this.text = element("p", { class: "heed-text heed-generated", dir: "auto" }, this.prompt, this.continuation);
    this.status = element("p", { class: "heed-detail", role: "status" });
    this.lengthNote = element("span", { class: "heed-hint" });
    this.attentionLink = element(
      "div", { class: "heed-tools heed-actions" },
      element("button", { type: "button", class: "heed-button", onclick: () => page.open("heads") }, "Show attention"), this.lengthNote,
    );
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Output" }, element("h2", {}, "Output"), this.text, this.status, this.attentionLink,
    );
    this.body = this.build();
    this.updateFields();
    this.reset();
    if (saved.written !== undefined) this.restore(saved.prompt, saved.written, saved.began === "true");
  }

  build() {
    const { chooser } = this;
    return element(
      "div", { class: "heed-panel heed-write" }, chooser.tools,
      element(
        "div", { class: "heed-columns" },
        element(
          "section", { class: "heed-input" }, element("h2", {}, "Prompt"), this.input,
          element("div", { class: "heed-settings" }, this.decoding.field, ...NUMBERS.map(([name]) => this.numbers[name].field), this.stopString.field),
          this.beginsToggle.field,
          element("div", { class: "heed-tools heed-actions" }, this.button, element("span", { class: "heed-hint" }, "or Ctrl+Enter in the prompt")),
        ),
        this.output,
      ),
      chooser.notice,
    );
  }

  /** Show the settings of the decoding method. */
  updateFields() {
    const samples = this.decoding.input.value === "sample";
    for (const name of ["temperature", "top_k", "top_p", "seed"]) this.numbers[name].field.hidden = !samples;
  }

  save() {
    this.page.savedInputs.set("write", {
      model: this.chooser.model, text: this.input.value, how: this.decoding.input.value, stop: this.stopString.input.value,
      begins: String(this.beginsToggle.input.checked), ...this.last, ...Object.fromEntries(NUMBERS.map(([name]) => [name, this.numbers[name].input.value])),
    });
  }

  /** Remove the result, which belongs to another model. */
  reset() {
    this.stop();
    this.setRequest(null);
    this.last = {};
    this.prompt.textContent = this.continuation.textContent = this.status.textContent = "";
    this.chooser.notice.textContent = "";
    this.output.hidden = true;
    this.chooser.setSubject(null, "generate a text first");
  }

  /**
   * The fields of the request. If no seed is given, it is drawn here, so that it can be shown.
   * @returns {Record<string, unknown>}
   */
  requestBody() {
    const samples = this.decoding.input.value === "sample";
    const wanted = NUMBERS.map(([name]) => name).filter((name) => samples || name === "max_tokens");
    const given = wanted.filter((name) => this.numbers[name].input.value !== "")
      .map((name) => [name, this.numbers[name].input.valueAsNumber]);
    const stop = this.stopString.input.value.replace(/\\n/g, "\n");
    /** @type {Record<string, unknown>} */
    const body = { model: this.chooser.model, prompt: this.input.value, begins: this.beginsToggle.input.checked, ...Object.fromEntries(given) };
    if (stop) body.stop = [stop];
    if (samples) body.seed ??= Math.floor(Math.random() * 1e6);
    else body.beam = 1;
    return body;
  }

  async generate() {
    const wrong = NUMBERS.find(([name]) => !this.numbers[name].field.hidden && !this.numbers[name].input.checkValidity());
    this.chooser.notice.textContent = "";
    if (wrong) {
      this.chooser.showError(`${wrong[1]}: ${this.numbers[wrong[0]].input.validationMessage}`);
      this.numbers[wrong[0]].input.focus();
      return;
    }
    this.save();
    this.stop();
    const body = this.requestBody();
    const request = new AbortController();
    this.setRequest(request);
    this.output.hidden = false;
    this.prompt.textContent = String(body.prompt);
    this.continuation.textContent = "";
    this.attentionLink.hidden = true;
    this.status.textContent = "Generating…";
    const seed = body.seed === undefined ? "" : `; seed ${body.seed}`;
    try {
      const whole = await this.page.provider.generate(body, (piece) => {
        if (request === this.request) this.continuation.append(piece);
      }, request.signal);
      if (request !== this.request) return;
      this.continuation.textContent = whole.text;
      const end = ENDS[/** @type {keyof typeof ENDS} */ (whole.ended)] ?? whole.ended;
      this.status.textContent = `${whole.tokens.length} tokens, ${end}; log-probability ${formatSigned(whole.log_probability, 2)}${seed}.`;
      this.page.announce(`Generated: ${whole.text}`);
      this.updateSubject(body);
    } catch (error) {
      if (request !== this.request) return;
      if (isAbortError(error)) {
        this.status.textContent = `Stopped${seed}.`;
        this.updateSubject(body);
      } else {
        this.status.textContent = "";
        this.chooser.showError(messageOf(error));
      }
    } finally {
      if (request === this.request) this.setRequest(null);
    }
  }

  /** @param {Record<string, unknown>} body */
  updateSubject({ model, prompt, begins }) {
    const { max_tokens: maximum } = this.chooser.modelFacts;
    this.lengthNote.textContent = maximum ? `for at most the last ${maximum.toLocaleString("en")} tokens, the model’s context` : "";
    this.attentionLink.hidden = false;
    const written = this.continuation.textContent ?? "";
    this.last = { prompt: String(prompt), written, began: String(Boolean(begins)) };
    this.save();
    this.chooser.setSubject({ model: String(model), source: String(prompt), target: written, latest: true, ...(begins ? { begins: true } : {}) });
  }

  /** @param {AbortController | null} request */
  setRequest(request) {
    this.request = request;
    this.button.textContent = request ? "Stop" : "Generate";
    this.output.setAttribute("aria-busy", String(Boolean(request)));
  }

  stop() {
    this.request?.abort();
  }

  /** @param {string} prompt @param {string | undefined} written the continuation; generated if undefined */
  setPrompt(prompt, written) {
    this.input.value = prompt;
    if (written === undefined) this.generate();
    else this.restore(prompt, written, false);
  }

  /**
   * Show a saved continuation.
   * @param {string} prompt
   * @param {string} written
   * @param {boolean} begins
   */
  restore(prompt, written, begins) {
    this.output.hidden = false;
    this.prompt.textContent = prompt;
    this.continuation.textContent = written;
    this.updateSubject({ model: this.chooser.model, prompt, begins });
  }
}

/**
 * @param {Page} page
 * @param {ReaderFacts[]} readers
 * @param {Start} start
 * @returns {Panel}
 */
export function panel(page, readers, start) {
  const write = new Write(page, readers);
  if (start.text && !page.savedInputs.get("write")) write.setPrompt(start.text, start.second);
  return { name: "write", title: "Write", body: write.body, show: () => write.chooser.restoreSubject(), setText: (text) => write.setPrompt(text, undefined), hasInput: true, writes: true };
}
