// Entry point of the exported HTML file, which contains its data.

import { mount } from "./application.js";
import { embeddedProvider } from "./providers.js";

const root = /** @type {HTMLElement} */ (document.getElementById("heedful"));
const data = document.getElementById("heedful-data")?.textContent ?? "";
mount(root, embeddedProvider(JSON.parse(data)));
