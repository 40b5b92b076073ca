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
)

// maxBody is how large the body of a request may be.
const maxBody = 32 << 20

// readBody reads a body that is JSON, which is checked.
func readBody(r *http.Request) (json.RawMessage, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") {
		return nil, problem(http.StatusUnsupportedMediaType, "unsupported-media-type", "expected the header Content-Type: application/json")
	}
	data, err := io.ReadAll(r.Body)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, problem(http.StatusRequestEntityTooLarge, "body-too-large", fmt.Sprintf("expected at most %d MiB", maxBody>>20))
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
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	err = dec.Decode(into)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong) && wrong.Field == "":
		return problem(http.StatusBadRequest, "invalid-request", "expected a JSON object, got a JSON "+wrong.Value)
	case errors.As(err, &wrong):
		return problem(http.StatusBadRequest, "invalid-request", fmt.Sprintf("%s: expected %s, got a JSON %s", wrong.Field, kindOf(wrong), wrong.Value))
	case err != nil:
		return problem(http.StatusBadRequest, "invalid-request", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

// kindOf is the JSON type that was expected.
func kindOf(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind().String() {
	case "string":
		return "a string"
	case "bool":
		return "a boolean"
	case "slice":
		return "an array"
	case "int", "int64":
		return "a whole number"
	}
	return "an object"
}
