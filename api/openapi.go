package api

import _ "embed"

// OpenAPI is the document of the API, as it is served at /openapi.yaml.
//
//go:embed openapi.yaml
var OpenAPI []byte
