// Package schemas holds the JSON Schemas (2020-12) of the files that evalrun reads and writes, and
// the Go types of those that other programs read.
//
// To read a results document, call [Decode] and use the [Results]: [Results.Failed] returns the
// failed rollouts. To read events, unmarshal each line of events.jsonl into an [Event] and call
// [Event.Decode] to read its data. Nothing else of evalrun is needed for either. Do not refuse
// documents or events because of fields that you do not know: a later minor version may add some.
//
// The schemas are evalset, agent, evaluator, results, event (one line of events.jsonl), span (one
// line of trace.jsonl), comparison and selftest (the output of compare), calibration, and the
// output of --json for runs (list), triggers, dry-run, validation and an error. [Validate] checks a
// document against one.
//
// The schemas of files that people write describe each key and let unknown keys pass; evalrun
// itself warns of these. The schemas of files that evalrun writes allow nothing else.
package schemas

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
)

// FS holds the schemas as <name>.schema.json.
//
//go:embed *.schema.json
var FS embed.FS

// OpenAPI describes the interface /v1 of evalrun serve, in OpenAPI 3.1.
//
//go:embed openapi.json
var OpenAPI []byte

// Names are the names of the schemas.
var Names = []string{
	"evalset", "agent", "evaluator", "results", "event", "span", "comparison", "selftest", "calibration",
	"list", "triggers", "dry-run", "validation", "error"}

var resolved = struct {
	sync.Mutex
	byName map[string]*jsonschema.Resolved
}{byName: map[string]*jsonschema.Resolved{}}

// Validate checks a JSON document against the schema with a name.
func Validate(name string, data []byte) error {
	schema, err := resolve(name)
	if err != nil {
		return err
	}
	var document any
	if err := json.Unmarshal(data, &document); err != nil {
		return fmt.Errorf("not valid JSON: %w", err)
	}
	return schema.Validate(document)
}

func resolve(name string) (*jsonschema.Resolved, error) {
	if !slices.Contains(Names, name) {
		return nil, fmt.Errorf("there is no schema %q; there are %s", name, strings.Join(Names, ", "))
	}
	resolved.Lock()
	defer resolved.Unlock()
	if r := resolved.byName[name]; r != nil {
		return r, nil
	}
	schema, err := load(name + ".schema.json")
	if err != nil {
		return nil, err
	}
	r, err := schema.Resolve(&jsonschema.ResolveOptions{Loader: func(uri *url.URL) (*jsonschema.Schema, error) {
		return load(path.Base(uri.Path))
	}})
	if err != nil {
		return nil, fmt.Errorf("schema %s: %w", name, err)
	}
	resolved.byName[name] = r
	return r, nil
}

func load(file string) (*jsonschema.Schema, error) {
	data, err := FS.ReadFile(file)
	if err != nil {
		return nil, err
	}
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal(data, schema); err != nil {
		return nil, fmt.Errorf("schema %s: %w", file, err)
	}
	return schema, nil
}
