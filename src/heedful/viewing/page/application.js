// The page: its header, its panels, and the state that they share.

import { alignmentPanel } from "./alignment.js";
import { comparePanel } from "./compare.js";
import { selectField, element, messageOf, rovingTabindex } from "./elements.js";
import { headsPanel } from "./heads.js";
import { howPanel } from "./how.js";
import { linksPanel } from "./links.js";
import { offersLinks } from "./links_offer.js";
import { faithfulnessNote } from "./faithfulness.js";
import { SavedInputs } from "./saved_inputs.js";
import { hasView } from "./axis_views.js";
import { presentButton } from "./present.js";
import { RequestError } from "./providers.js";
import { SentenceBar } from "./sentence_bar.js";
import { Session } from "./session.js";
import { stepsPanel } from "./steps.js";
import { TraceNote } from "./trace_note.js";

/** @typedef {import("./types.js").Provider} Provider */
/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Models} Models */
/** @typedef {import("./types.js").Start} Start */

// With more tokens, the first panel is a matrix.
const MANY_TOKENS = 200;

/**
 * Render the page in `root`.
 * @param {HTMLElement} root
 * @param {Provider} provider
 * @param {Start} [start]
 */
export async function mount(root, provider, start = {}) {
  root.classList.add("heedful");
  root.replaceChildren(element("p", { class: "heed-notice" }, "Loading…"));
  /** @type {Models} */
  let models;
  try {
    models = await provider.models();
  } catch (error) {
    const needsKey = error instanceof RequestError && error.status === 403;
    root.replaceChildren(
      element("p", { class: "heed-notice", role: "alert" }, messageOf(error)),
      needsKey ? apiKeyField(provider, () => mount(root, provider, start)) : "",
    );
    return;
  }
  const live = element("div", { class: "heed-visually-hidden", "aria-live": "polite" });
  /** @type {(() => void)[]} */
  const onTheme = [];
  const session = new Session(provider);
  const savedInputs = new SavedInputs(provider.live);
  /** @type {Page} */
  const page = {
    root, provider, session, savedInputs, input: firstInput(models, start, savedInputs.get("page")?.input),
    announce: (text) => (live.textContent = text),
    onTheme: (listener) => onTheme.push(listener),
    open: (name) => open(name),
    inputs: models.inputs ?? {},
    maxBody: models.max_body ?? 0,
    panelOf: (model) => panels.find(({ name }) => models.panels?.some((one) => one.name === name && one.models.includes(model))),
    mapsOf: (model) => [...models.models, ...(models.readers ?? [])].find(({ name }) => name === model)?.maps ?? [],
  };
  if (models.traces.length && !hasModels(models)) session.setSubject({ trace: models.traces[0] });
  const note = faithfulnessNote(page, models);
  /** @type {Panel[]} */
  const panels = [];
  panels.push(...await loadPanels(page, models, start));
  const [bar, part] = [new SentenceBar(page), new TraceNote(page)];
  const tabs = makeTabs(panels, (name) => visit(name));
  root.replaceChildren(
    header(page, models, tabs, () => onTheme.forEach((listener) => listener())),
    bar.body, part.body, element("main", {}, ...panels.map((panel) => panel.body)), note.body, live,
  );
  let current = "";
  /** @param {string} name */
  function open(name) {
    current = name;
    for (const panel of panels) panel.body.hidden = panel.name !== name;
    for (const tab of /** @type {NodeListOf<HTMLElement>} */ (tabs.querySelectorAll("[role=tab]"))) {
      const chosen = tab.dataset.panel === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
    }
    const panel = panels.find((one) => one.name === name);
    if (panel?.hasInput) page.input = name;
    page.savedInputs.set("page", { panel: name, input: page.input });
    bar.show(panel);
    panel?.show();
    part.show(panel);
  }
  /**
   * Open a panel that the user chose; Back returns to the one before.
   * @param {string} name
   */
  function visit(name) {
    if (name !== current) page.savedInputs.visit(name);
    open(name);
  }
  page.savedInputs.onReturn = (name) => {
    if (panels.some((panel) => panel.name === name)) open(name);
  };
  session.listeners.push(() => {
    note.refresh();
    const panel = panels.find(({ name }) => name === current);
    bar.show(panel);
    if (panel && !panel.hasInput) panel.show();
    part.show(panel);
  });
  const initial = page.savedInputs.get("page")?.panel ?? start.panel;
  open(panels.some(({ name }) => name === initial) ? String(initial) : await firstPanel(page, panels));
}

/**
 * Whether there is a model, so that the user can type a text.
 * @param {Models} models
 */
function hasModels({ models, readers }) {
  return models.length + (readers ?? []).length > 0;
}

/**
 * The panel whose input the other panels show: the one before a reload, the one that the URL names, or the first.
 * @param {Models} models
 * @param {Start} start
 * @param {string} [before]
 * @returns {string}
 */
function firstInput({ panels = [] }, start, before) {
  const [found] = [before, start.panel].flatMap((wanted) => panels.filter(({ name }) => name === wanted));
  return (found ?? panels[0])?.name ?? "";
}

/**
 * The panels that the tasks of the models declare (one module each), and those that show any trace.
 * @param {Page} page
 * @param {Models} models
 * @param {Start} start
 * @returns {Promise<Panel[]>}
 */
async function loadPanels(page, models, start) {
  const declared = models.panels ?? [];
  const known = [...models.models, ...(models.readers ?? [])];
  const target = firstInput(models, start);
  const modules = await Promise.all(declared.map(({ name }) => import(`./${name}.js`)));
  const panels = declared.map(({ name, title, models: own }, i) => ({
    .../** @type {Panel} */ (modules[i].panel(page, known.filter((one) => own.includes(one.name)), target === name ? start : {})), title,
  }));
  if (await offersLinks(page, models)) panels.push(linksPanel(page));
  panels.push(alignmentPanel(page), headsPanel(page), stepsPanel(page), howPanel(page));
  // A single model is compared with itself for an edited text.
  const edits = page.provider.live && known.some(({ name }) => page.inputs[name]?.type !== "object");
  if (known.length + models.traces.length > 1 || edits) panels.push(comparePanel(page, models));
  for (const panel of panels) {
    panel.body.setAttribute("role", "tabpanel");
    panel.body.setAttribute("aria-label", panel.title);
    if (!panel.hasInput) panel.body.prepend(element("h2", { class: "heed-visually-hidden" }, panel.title));
  }
  return panels;
}

/**
 * @param {Provider} provider
 * @param {() => void} given
 */
function apiKeyField(provider, given) {
  /** @type {HTMLInputElement} */
  const input = element("input", {
    type: "text", class: "heed-key", autocomplete: "off", spellcheck: "false", onchange: () => {
      provider.useKey(input.value.trim());
      given();
    },
  });
  return element("label", { class: "heed-field" }, element("span", {}, "API key of this server"), input);
}

/**
 * The first panel that has something to show; a trace of one sequence has no alignment.
 * @param {Page} page
 * @param {Panel[]} panels
 * @returns {Promise<string>}
 */
async function firstPanel(page, panels) {
  const { subject } = page.session;
  if (panels[0].hasInput || !subject) return panels[0].name;
  try {
    const { alignment, summary } = await page.session.current();
    if (alignment && hasView(summary.kinds[summary.maps[alignment.map].key_axis])) return "steps";
    const longest = Math.max(...Object.values(summary.labels).map((labels) => labels.length), 0);
    if (!summary.maps.length || longest > MANY_TOKENS) return alignment ? "alignment" : "heads";
    if (!alignment) return summary.maps.some((map) => !summary.kinds[map.key_axis].extent.length) ? panels[0].name : "heads";
    return panels[0].name;
  } catch {
    return panels[0].name;
  }
}

/**
 * @param {Panel[]} panels
 * @param {(name: string) => void} open
 */
function makeTabs(panels, open) {
  const tabs = element("div", { class: "heed-tabs", role: "tablist", "aria-label": "Panels" });
  const firstView = panels.find(({ hasInput }) => !hasInput)?.name;
  for (const { name, title } of panels) {
    if (name === firstView && panels[0].name !== name) tabs.append(element("span", { class: "heed-inside", "aria-hidden": "true" }, "Look inside"));
    tabs.append(element("button", { type: "button", role: "tab", "data-panel": name, onclick: () => open(name) }, title));
  }
  rovingTabindex(tabs, "[role=tab]", () => 1, (tab) => tab.click());
  return tabs;
}

/**
 * @param {Page} page
 * @param {Models} models
 * @param {HTMLElement} tabs
 * @param {() => void} changed
 */
function header(page, models, tabs, changed) {
  const { session } = page;
  const typed = hasModels(models);
  const traces = selectField("Trace", [
    ...(typed ? [{ value: "", text: "Typed text" }] : []),
    ...models.traces.map((name) => ({ value: name, text: name })),
  ], typed ? "" : models.traces[0] ?? "", (name) => session.setSubject(name ? { trace: name } : session.inputSubject));
  session.listeners.push(() => {
    const { subject } = session;
    traces.input.value = subject && "trace" in subject ? subject.trace : "";
  });
  const several = models.traces.length > (typed ? 0 : 1);
  const title = models.traces.length === 1 && !typed ? models.traces[0] : "";
  return element(
    "header", { class: "heed-head" },
    element("h1", { class: "heed-name" }, "heedful"),
    title ? element("span", { class: "heed-title", dir: "auto", title }, title) : "",
    several ? traces.field : "",
    tabs, tabs.querySelector("[data-panel=links]") ? presentButton(page, models, changed) : "", themeSwitch(page.root, changed),
  );
}

/**
 * The button for the dark or light theme. The default is the theme of the system.
 * @param {HTMLElement} root
 * @param {() => void} changed
 */
function themeSwitch(root, changed) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  // A page of its own keeps the choice; a notebook or another page around this one does not.
  const stored = root.dataset.whole === "true" ? storedTheme() : null;
  if (stored) root.dataset.theme = stored;
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const button = element("button", {
    type: "button", class: "heed-button heed-theme", onclick: () => {
      root.dataset.theme = dark() ? "light" : "dark";
      if (root.dataset.whole === "true") storeTheme(root.dataset.theme);
      update();
    },
  });
  function update() {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
    document.documentElement.classList.toggle("heed-dark-page", dark() && root.dataset.whole === "true");
    changed();
  }
  system.addEventListener("change", update);
  update();
  return button;
}

const THEME = "heedful-theme";

/** The theme that was chosen before; null if none was, or if the browser stores nothing for this page. */
function storedTheme() {
  try {
    const theme = window.localStorage.getItem(THEME);
    return theme === "dark" || theme === "light" ? theme : null;
  } catch {
    return null;
  }
}

/** @param {string} theme */
function storeTheme(theme) {
  try {
    window.localStorage.setItem(THEME, theme);
  } catch {
    // The theme then lasts until the page is left.
  }
}
