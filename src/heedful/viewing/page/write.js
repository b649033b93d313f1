// The write panel: a prompt, generation settings, and the generated text.

import { choice, element, entry, messageOf, toggle, wasAborted } from "./elements.js";
import { signed } from "./matrices.js";
import { Asking } from "./typing.js";

/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Start} Start */
/** @typedef {import("./types.js").ReaderFacts} ReaderFacts */
/** @typedef {import("./types.js").Written} Written */

const ENDS = { end: "the model ended it", stop: "ended before the stop string", limit: "ended at the largest length" };
/** @typedef {"temperature" | "top_k" | "top_p" | "seed" | "max_tokens"} Number_ */
/** @type {[Number_, string, Record<string, string | number>][]} */
const NUMBERS = [
  ["temperature", "Temperature", { min: 0.01, max: 100, step: "any", value: 1 }],
  ["top_k", "Top k", { min: 1, step: 1, placeholder: "all" }],
  ["top_p", "Top p", { min: 0.01, max: 1, step: "any", placeholder: "1" }],
  ["seed", "Seed", { min: 0, step: 1, placeholder: "any" }],
  ["max_tokens", "Tokens", { min: 1, max: 1024, step: 1, value: 64 }],
];

class Write {
  /** @param {Page} page @param {ReaderFacts[]} readers */
  constructor(page, readers) {
    this.page = page;
    this.asking = new Asking(page, "write", readers, () => this.forget());
    /** @type {AbortController | null} */
    this.writing = null;
    /** @type {Record<string, string>} the saved generation and its prompt */
    this.last = {};
    const kept = page.kept.of("write") ?? {};
    const keep = () => this.keep();
    this.how = choice("How", [{ value: "draw", text: "Draw" }, { value: "likeliest", text: "Likeliest each time" }], kept.how ?? "draw", () => {
      this.setHow();
      this.keep();
    });
    /** @type {Record<string, {field: HTMLLabelElement, input: HTMLInputElement}>} */
    this.numbers = Object.fromEntries(NUMBERS.map(([name, label, attributes]) => {
      const own = entry(label, { type: "number", inputmode: "decimal", ...attributes, ...(kept[name] ? { value: kept[name] } : {}) }, keep);
      return [name, own];
    }));
    this.stopString = entry("End before", { type: "text", placeholder: "e.g. \\n", autocomplete: "off", spellcheck: "false", value: kept.stop ?? "" }, keep);
    this.begins = toggle("The prompt begins a document", kept.begins === "true", keep);
    this.input = element("textarea", {
      dir: "auto", rows: 4, spellcheck: "false", "aria-label": "Prompt", placeholder: "Type how it begins, or nothing…", oninput: keep,
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.write();
      },
    });
    this.input.value = kept.text ?? "";
    this.go = element("button", { type: "button", class: "heed-quiet heed-go", onclick: () => (this.writing ? this.stop() : this.write()) }, "Write");
    this.prompt = element("span", { class: "heed-prompt" });
    this.written = element("span", { class: "heed-written" });
    this.text = element("p", { class: "heed-text heed-story", dir: "auto" }, this.prompt, this.written);
    this.status = element("p", { class: "heed-where", role: "status" });
    this.most = element("span", { class: "heed-hint" });
    this.inside = element(
      "div", { class: "heed-tools heed-after" },
      element("button", { type: "button", class: "heed-quiet", onclick: () => page.open("heads") }, "See what each token looked at"), this.most,
    );
    this.output = element(
      "section", { class: "heed-output", "aria-label": "Written text" }, element("h2", {}, "Written"), this.text, this.status, this.inside,
    );
    this.body = this.build();
    this.setHow();
    this.forget();
    if (kept.written !== undefined) this.bring(kept.prompt, kept.written, kept.began === "true");
  }

  build() {
    const { asking } = this;
    return element(
      "div", { class: "heed-panel heed-write" }, asking.tools,
      element(
        "div", { class: "heed-two" },
        element(
          "section", { class: "heed-input" }, element("h2", {}, "Prompt"), this.input,
          element("div", { class: "heed-settings" }, this.how.field, ...NUMBERS.map(([name]) => this.numbers[name].field), this.stopString.field),
          this.begins.field,
          element("div", { class: "heed-tools heed-after" }, this.go, element("span", { class: "heed-hint" }, "or Ctrl+Enter in the prompt")),
        ),
        this.output,
      ),
      asking.notice,
    );
  }

  /** Sampling has settings that greedy search does not have. */
  setHow() {
    const draws = this.how.input.value === "draw";
    for (const name of ["temperature", "top_k", "top_p", "seed"]) this.numbers[name].field.hidden = !draws;
  }

  keep() {
    this.page.kept.put("write", {
      model: this.asking.model, text: this.input.value, how: this.how.input.value, stop: this.stopString.input.value,
      begins: String(this.begins.input.checked), ...this.last, ...Object.fromEntries(NUMBERS.map(([name]) => [name, this.numbers[name].input.value])),
    });
  }

  /** The generated text belongs to another prompt or model. */
  forget() {
    this.stop();
    this.last = {};
    this.prompt.textContent = this.written.textContent = this.status.textContent = "";
    this.asking.notice.textContent = "";
    this.output.hidden = true;
    this.asking.look(null, "let it write first");
  }

  /**
   * The fields of the request; a random seed is drawn here if none is given, so that it can be shown.
   * @returns {Record<string, unknown>}
   */
  body_() {
    const draws = this.how.input.value === "draw";
    const wanted = NUMBERS.map(([name]) => name).filter((name) => draws || name === "max_tokens");
    const given = wanted.filter((name) => this.numbers[name].input.value !== "")
      .map((name) => [name, this.numbers[name].input.valueAsNumber]);
    const stop = this.stopString.input.value.replace(/\\n/g, "\n");
    /** @type {Record<string, unknown>} */
    const body = { model: this.asking.model, prompt: this.input.value, begins: this.begins.input.checked, ...Object.fromEntries(given) };
    if (stop) body.stop = [stop];
    if (draws) body.seed ??= Math.floor(Math.random() * 1e6);
    else body.beam = 1;
    return body;
  }

  async write() {
    const wrong = NUMBERS.find(([name]) => !this.numbers[name].field.hidden && !this.numbers[name].input.checkValidity());
    this.asking.notice.textContent = "";
    if (wrong) {
      this.asking.tell(`${wrong[1]}: ${this.numbers[wrong[0]].input.validationMessage}`);
      this.numbers[wrong[0]].input.focus();
      return;
    }
    this.keep();
    this.stop();
    const body = this.body_();
    const writing = new AbortController();
    this.setWriting(writing);
    this.output.hidden = false;
    this.prompt.textContent = String(body.prompt);
    this.written.textContent = "";
    this.inside.hidden = true;
    this.status.textContent = "Writing…";
    const seed = body.seed === undefined ? "" : `; seed ${body.seed}`;
    try {
      const whole = await this.page.provider.write(body, (piece) => {
        if (writing === this.writing) this.written.append(piece);
      }, writing.signal);
      if (writing !== this.writing) return;
      this.written.textContent = whole.text;
      const end = ENDS[/** @type {keyof typeof ENDS} */ (whole.ended)] ?? whole.ended;
      this.status.textContent = `${whole.tokens.length} tokens, ${end}; log-probability ${signed(whole.log_probability, 2)}${seed}.`;
      this.page.announce(`Written: ${whole.text}`);
      this.look(body);
    } catch (error) {
      if (writing !== this.writing) return;
      if (wasAborted(error)) {
        this.status.textContent = `Stopped${seed}.`;
        this.look(body);
      } else {
        this.status.textContent = "";
        this.asking.tell(messageOf(error));
      }
    } finally {
      if (writing === this.writing) this.setWriting(null);
    }
  }

  /** @param {Record<string, unknown>} body */
  look({ model, prompt, begins }) {
    const { max_tokens: most } = this.asking.known;
    this.most.textContent = most ? `of the last ${most.toLocaleString("en")} tokens at most, as many as the model reads at once` : "";
    this.inside.hidden = false;
    const written = this.written.textContent ?? "";
    this.last = { prompt: String(prompt), written, began: String(Boolean(begins)) };
    this.keep();
    this.asking.look({ model: String(model), source: String(prompt), target: written, latest: true, ...(begins ? { begins: true } : {}) });
  }

  /** @param {AbortController | null} writing */
  setWriting(writing) {
    this.writing = writing;
    this.go.textContent = writing ? "Stop" : "Write";
    this.output.setAttribute("aria-busy", String(Boolean(writing)));
  }

  stop() {
    this.writing?.abort();
  }

  /** @param {string} prompt @param {string | undefined} written the continuation; generated if undefined */
  start(prompt, written) {
    this.input.value = prompt;
    if (written === undefined) this.write();
    else this.bring(prompt, written, false);
  }

  /**
   * Shows the generated text.
   * @param {string} prompt
   * @param {string} written
   * @param {boolean} begins
   */
  bring(prompt, written, begins) {
    this.output.hidden = false;
    this.prompt.textContent = prompt;
    this.written.textContent = written;
    this.look({ model: this.asking.model, prompt, begins });
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
  if (start.text && !page.kept.of("write")) write.start(start.text, start.second);
  return { name: "write", title: "Write", body: write.body, show: () => write.asking.again(), types: true };
}
