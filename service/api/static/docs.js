// Swagger UI over this service's own description; it fetches nothing else.

/* global SwaggerUIBundle */
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#interface",
  presets: [SwaggerUIBundle.presets.apis],
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
