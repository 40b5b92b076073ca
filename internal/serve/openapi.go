package serve

import (
	"net/http"

	"github.com/evalrun/evalrun/schemas"
)

// openAPI serves the description of the interface.
func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(schemas.OpenAPI) // the client may be gone
}
