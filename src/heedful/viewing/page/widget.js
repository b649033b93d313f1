// Entry point of the notebook widget, called by anywidget.

import { mount } from "./application.js";
import { embeddedProvider } from "./providers.js";

/**
 * @param {{model: {get: (name: string) => any}, el: HTMLElement}} place
 */
export function render({ model, el }) {
  const root = document.createElement("div");
  // The notebook must not see keys that are typed here: X would cut its cell. It still sees those with Ctrl, such as Ctrl + S.
  root.addEventListener("keydown", (event) => {
    if (!event.ctrlKey && !event.metaKey) event.stopPropagation();
  });
  const theme = themeOfHost(document.body);
  if (theme) root.dataset.theme = theme;
  el.replaceChildren(root);
  mount(root, embeddedProvider(JSON.parse(model.get("data"))));
}

/**
 * The colours of JupyterLab, VS Code or marimo; null if the notebook does not name its own.
 * @param {HTMLElement} body
 * @returns {"dark" | "light" | null}
 */
function themeOfHost(body) {
  const { jpThemeLight, vscodeThemeKind } = body.dataset;
  if (jpThemeLight) return jpThemeLight === "false" ? "dark" : "light";
  if (vscodeThemeKind) return /dark|high-contrast$/.test(vscodeThemeKind) ? "dark" : "light";
  if (body.classList.contains("dark")) return "dark";
  return body.classList.contains("light") ? "light" : null;
}
