// The page of a server. Its URL may select a panel and a text (#panel=heads&text=…,
// and &second=… for a pair).

import { mount } from "./application.js";
import { serverProvider } from "./providers.js";

const root = /** @type {HTMLElement} */ (document.getElementById("heedful"));
const asked = new URLSearchParams(window.location.hash.slice(1));
mount(root, serverProvider(new URL("../api/", import.meta.url).href), {
  panel: asked.get("panel") ?? undefined,
  text: asked.get("text") ?? undefined,
  second: asked.get("second") ?? undefined,
});
