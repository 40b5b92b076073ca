package serve

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
)

// maxBody is how large the body of a request may be.
const maxBody = 32 << 20

// readBody reads a body and checks that it is JSON.
func readBody(r *http.Request) (json.RawMessage, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil, problem(http.StatusUnsupportedMediaType, "unsupported-media-type",
			"expected the header Content-Type: application/json")
	}
	data, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, problem(http.StatusRequestEntityTooLarge, "body-too-large",
			fmt.Sprintf("expected at most %d MiB", maxBody>>20))
	case err != nil:
		return nil, problem(http.StatusBadRequest, "incomplete-body", "the body ended before all of it had come")
	case len(bytes.TrimSpace(data)) == 0:
		return nil, problem(http.StatusBadRequest, "invalid-json", "expected a JSON document, got an empty body")
	}
	if err := json.Unmarshal(data, new(json.RawMessage)); err != nil {
		return nil, problem(http.StatusBadRequest, "invalid-json", "expected a JSON document: "+err.Error())
	}
	return data, nil
}

// decodeBody reads a body that is a JSON object into a struct, which must have a field for each of
// its keys.
func decodeBody(r *http.Request, into any) error {
	data, err := readBody(r)
	if err != nil {
		return err
	}
	if err := jsonobj.Decode(data, into); err != nil {
		return problem(http.StatusBadRequest, "invalid-request", err.Error())
	}
	return nil
}
