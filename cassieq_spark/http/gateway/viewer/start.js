SwaggerUIBundle({ url: "openapi.json", dom_id: "#page", validatorUrl: null });
