// Package promptfoo reads configurations of promptfoo, as its documentation describes them, and makes
// eval sets of them. What has no counterpart is listed with its line and left out.
package promptfoo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// Options say what a configuration does not say.
type Options struct {
	// Agent is the agent that takes the place of the prompts and providers, as an eval set has it; nil if
	// these are imported. Path is where the text is in its output; empty for all of it.
	Agent json.RawMessage
	Path  string
}

// Imported is what was made of a configuration.
type Imported struct {
	// Set is the eval set as JSON.
	Set json.RawMessage
	// Evaluations, Checks and Agents count what is in it.
	Evaluations, Checks, Agents int
	// Missing has what has no counterpart, and was left out. Differs has what is not quite the same.
	Missing, Differs input.Problems
}

// set is the eval set that is written.
type set struct {
	Version     string           `json:"version"`
	ID          string           `json:"id"`
	Name        string           `json:"name"`
	Agent       json.RawMessage  `json:"agent,omitempty"`
	Agents      []map[string]any `json:"agents,omitempty"`
	Epochs      int              `json:"epochs,omitempty"`
	Evaluators  []map[string]any `json:"evaluators,omitempty"`
	Evaluations []evaluation     `json:"evaluations"`
}

type evaluation struct {
	ID        string                     `json:"id"`
	Name      string                     `json:"name"`
	Inputs    json.RawMessage            `json:"inputs"`
	Criteria  map[string]map[string]any  `json:"evaluationCriterias"`
	Metadata  map[string]json.RawMessage `json:"metadata,omitempty"`
	hasChecks bool
}

// checksID is the evaluator of all checks.
const checksID = "checks"

// importer reads one configuration.
type importer struct {
	input.Reader
	dir     string
	out     set
	missing input.Problems
	differs input.Problems
	checks  int
	// judges are the evaluators that ask models, as JSON by their ids.
	judges map[string]string
}

// Import reads a configuration in YAML or JSON. The error says why nothing could be made of it.
func Import(file string, o Options) (*Imported, error) {
	data, err := input.ReadFile(file, input.MaxFile)
	if err != nil {
		return nil, err
	}
	if ext := filepath.Ext(file); !slices.Contains([]string{".yaml", ".yml", ".json"}, ext) {
		return nil, input.Errorf("%s: expected a configuration in YAML or JSON; one that is a program cannot be imported", file)
	}
	root, err := input.Parse(file, data)
	if err != nil {
		return nil, err
	}
	im := &importer{dir: filepath.Dir(file), judges: map[string]string{}}
	im.config(root, o)
	if err := im.Problems.Err(false); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(im.out); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	agents := len(im.out.Agents)
	if o.Agent != nil {
		agents = 1
	}
	return &Imported{Set: b.Bytes(), Evaluations: len(im.out.Evaluations), Checks: im.checks, Agents: agents,
		Missing: once(im.missing), Differs: once(im.differs)}, nil
}

// once returns problems in the order of their places. What a default test has would be there once for each
// test.
func once(problems input.Problems) input.Problems {
	seen := map[input.Problem]bool{}
	problems = slices.DeleteFunc(problems, func(p input.Problem) bool {
		again := seen[p]
		seen[p] = true
		return again
	})
	slices.SortStableFunc(problems, func(a, b input.Problem) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return problems
}

// miss records that something has no counterpart.
func (im *importer) miss(n *input.Node, format string, args ...any) {
	im.missing = append(im.missing, input.Problem{File: n.File, Line: n.Line, Column: n.Column, Key: n.Path,
		Message: fmt.Sprintf(format, args...)})
}

// differ records that something is not quite the same.
func (im *importer) differ(n *input.Node, format string, args ...any) {
	im.differs = append(im.differs, input.Problem{File: n.File, Line: n.Line, Column: n.Column, Key: n.Path,
		Message: fmt.Sprintf(format, args...), Warning: true})
}

// rest lists the keys of an object that nobody has read.
func (im *importer) rest(f *input.Fields) {
	for _, m := range f.Unknown() {
		im.miss(m.Value, "%s has no counterpart", m.Key)
	}
}

func (im *importer) config(root *input.Node, o Options) {
	f := im.Object(root)
	if root.Kind != input.Object {
		return
	}
	f.Ignore("$schema", "sharing", "outputPath", "commandLineOptions", "tags", "metadata", "writeLatestResults")
	name := f.String("description", "Imported from promptfoo")
	im.out = set{Version: "1.0", ID: "promptfoo", Name: cmp.Or(name, "Imported from promptfoo"), Agent: o.Agent,
		Evaluations: []evaluation{}}
	prompts, providers := f.Get("prompts"), f.Get("providers")
	if providers == nil {
		providers = f.Get("targets")
	}
	path := o.Path
	if o.Agent == nil {
		path = contentPath
		im.agents(root, prompts, providers)
	}
	checks := map[string]any{"id": checksID, "type": "checks"}
	if path != "" {
		checks["path"] = path
	}
	im.out.Evaluators = []map[string]any{checks}
	if n := f.Optional("evaluateOptions", input.Object); n != nil {
		eo := im.Object(n)
		eo.Ignore("maxConcurrency", "showProgressBar", "delay", "cache", "timeoutMs", "generateSuggestions")
		if repeat := eo.Int("repeat", 1, 1, 10_000); repeat > 1 {
			im.out.Epochs = repeat
		}
		im.rest(eo)
	}
	im.tests(f)
	im.rest(f)
	if len(im.out.Evaluations) == 0 && len(im.Problems) == 0 {
		im.Errorf(root, "there are no tests in it")
	}
	if !slices.ContainsFunc(im.out.Evaluations, func(e evaluation) bool { return e.hasChecks }) {
		im.out.Evaluators = im.out.Evaluators[1:]
	}
}

// text returns a text, or the content of the file of text that it names.
func (im *importer) text(n *input.Node) (string, bool) {
	name, ok := strings.CutPrefix(n.Text, "file://")
	if !ok {
		return n.Text, true
	}
	switch ext := filepath.Ext(name); ext {
	case ".txt", ".md", ".json", "":
	default:
		im.miss(n, "a value from a file %s has no counterpart; one in .txt, .md or .json has", ext)
		return "", false
	}
	data, err := im.read(name)
	if err != nil {
		im.Errorf(n, "%v", err)
		return "", false
	}
	return strings.TrimRight(string(data), "\r\n"), true
}

// read reads a file that the configuration names, relative to it.
func (im *importer) read(name string) ([]byte, error) {
	path := name
	if !filepath.IsAbs(path) {
		path = filepath.Join(im.dir, filepath.FromSlash(path))
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a folder", path)
	}
	return input.ReadFile(path, input.MaxFile)
}

func jsonOf(v any) json.RawMessage {
	raw, err := jsonobj.Marshal(v)
	if err != nil {
		return json.RawMessage("null") // everything here came from JSON
	}
	return raw
}
