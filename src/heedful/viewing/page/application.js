// The page: its head, its panels, what they share.

import { alignmentPanel } from "./alignment.js";
import { comparePanel } from "./compare.js";
import { choice, element, messageOf, roving } from "./elements.js";
import { headsPanel } from "./heads.js";
import { honesty } from "./honesty.js";
import { Refusal } from "./providers.js";
import { Session } from "./session.js";
import { stepsPanel } from "./steps.js";
import { translatePanel } from "./translate.js";

/** @typedef {import("./types.js").Provider} Provider */
/** @typedef {import("./types.js").Page} Page */
/** @typedef {import("./types.js").Panel} Panel */
/** @typedef {import("./types.js").Models} Models */

/**
 * Fills `root` with the page.
 * @param {HTMLElement} root
 * @param {Provider} provider
 * @param {{panel?: string, text?: string}} [start]
 */
export async function mount(root, provider, start = {}) {
  root.classList.add("heedful");
  root.replaceChildren(element("p", { class: "heed-notice" }, "Loading…"));
  let models;
  try {
    models = await provider.models();
  } catch (error) {
    const wants = error instanceof Refusal && error.status === 403;
    root.replaceChildren(
      element("p", { class: "heed-notice", role: "alert" }, messageOf(error)),
      wants ? keyField(provider, () => mount(root, provider, start)) : "",
    );
    return;
  }
  const live = element("div", { class: "heed-unseen", "aria-live": "polite" });
  /** @type {(() => void)[]} */
  const onTheme = [];
  const session = new Session(provider);
  /** @type {Page} */
  const page = {
    root, provider, session,
    announce: (text) => (live.textContent = text),
    onTheme: (listener) => onTheme.push(listener),
    open: (name) => open(name),
  };
  if (models.traces.length && !models.models.length) session.look({ trace: models.traces[0] });
  const honest = honesty(page, models);
  const panels = panelsOf(page, models, start);
  const tabs = tabsOf(panels, (name) => open(name));
  root.replaceChildren(
    header(page, models, tabs, () => onTheme.forEach((listener) => listener())),
    element("main", {}, ...panels.map((panel) => panel.body)), honest.body, live,
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
    panels.find((panel) => panel.name === name)?.show();
  }
  session.listeners.push(() => {
    honest.refresh();
    const panel = panels.find(({ name }) => name === current);
    if (panel && panel.name !== "translate") panel.show();
  });
  open(panels.some(({ name }) => name === start.panel) ? String(start.panel) : await firstPanel(page, panels));
}

/**
 * @param {Page} page
 * @param {Models} models
 * @param {{text?: string}} start
 * @returns {Panel[]}
 */
function panelsOf(page, models, start) {
  const panels = models.models.length ? [translatePanel(page, models, start)] : [];
  panels.push(alignmentPanel(page), headsPanel(page), stepsPanel(page));
  if (models.models.length + models.traces.length > 1) panels.push(comparePanel(page, models));
  for (const panel of panels) {
    panel.body.setAttribute("role", "tabpanel");
    panel.body.setAttribute("aria-label", panel.title);
  }
  return panels;
}

/**
 * @param {Provider} provider
 * @param {() => void} given
 */
function keyField(provider, given) {
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
 * The first panel that has something to show: one sequence has no alignment.
 * @param {Page} page
 * @param {Panel[]} panels
 * @returns {Promise<string>}
 */
async function firstPanel(page, panels) {
  const { subject } = page.session;
  if (panels[0].name === "translate" || !subject) return panels[0].name;
  try {
    return (await page.session.current()).alignment ? panels[0].name : "heads";
  } catch {
    return panels[0].name;
  }
}

/**
 * @param {Panel[]} panels
 * @param {(name: string) => void} open
 */
function tabsOf(panels, open) {
  const tabs = element("div", { class: "heed-tabs", role: "tablist", "aria-label": "Panels" });
  for (const { name, title } of panels) {
    tabs.append(element("button", { type: "button", role: "tab", "data-panel": name, onclick: () => open(name) }, title));
  }
  roving(tabs, "[role=tab]", () => 1, (tab) => tab.click());
  return tabs;
}

/**
 * @param {Page} page
 * @param {Models} models
 * @param {HTMLElement} tabs
 * @param {() => void} changed
 */
function header(page, models, tabs, changed) {
  const traces = choice("Trace", [
    ...(models.models.length ? [{ value: "", text: "What is typed" }] : []),
    ...models.traces.map((name) => ({ value: name, text: name })),
  ], models.models.length ? "" : models.traces[0] ?? "", (name) => page.session.look(name ? { trace: name } : page.session.typed));
  const several = models.traces.length > (models.models.length ? 0 : 1);
  const title = models.traces.length === 1 && !models.models.length ? models.traces[0] : "";
  return element(
    "header", { class: "heed-head" },
    element("span", { class: "heed-name" }, "heedful"),
    title ? element("span", { class: "heed-title", dir: "auto", title }, title) : "",
    several ? traces.field : "",
    tabs, themeSwitch(page.root, changed),
  );
}

/**
 * Dark or light: as the system is, until somebody chooses.
 * @param {HTMLElement} root
 * @param {() => void} changed
 */
function themeSwitch(root, changed) {
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const button = element("button", {
    type: "button", class: "heed-quiet heed-theme", onclick: () => {
      root.dataset.theme = dark() ? "light" : "dark";
      say();
    },
  });
  function say() {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colours`);
    document.documentElement.classList.toggle("heed-dark-page", dark() && root.dataset.whole === "true");
    changed();
  }
  system.addEventListener("change", say);
  say();
  return button;
}
