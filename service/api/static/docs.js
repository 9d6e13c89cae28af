// Swagger UI over this service's own description; it fetches nothing else.

/* global SwaggerUIBundle */
const dark = matchMedia("(prefers-color-scheme: dark)");
const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches); // Swagger UI's own name for it
dark.addEventListener("change", follow);
follow();

SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#interface",
  presets: [SwaggerUIBundle.presets.apis],
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});

/** What Swagger UI leaves out: headings in order, and the keyboard's way into what scrolls. */
const LEVELS = { ".opblock-tag": 2, ".opblock-body h4, .models h4": 3, ".opblock-body h5": 4 };

function amend() {
  for (const [selector, level] of Object.entries(LEVELS)) {
    for (const heading of document.querySelectorAll(selector)) heading.setAttribute("aria-level", level);
  }
  for (const region of document.querySelectorAll("#interface pre")) region.setAttribute("tabindex", "0");
}

new MutationObserver(amend).observe(document.getElementById("interface"), { childList: true, subtree: true });
