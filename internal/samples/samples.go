// Package samples makes eval sets of the data sets of other harnesses: the samples of OpenAI evals in JSON
// Lines, and those of Inspect in CSV, JSON and JSON Lines. What has no counterpart is listed with its line and
// left out. It knows rows, and nothing of runs.
package samples

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/dataset"
	"github.com/evalrun/evalrun/internal/input"
)

// Options say what a data set does not say.
type Options struct {
	// Model is the model that gets the messages; empty if Agent gets the inputs, or if who runs the set
	// names an agent. Agent is as an eval set has it. Path is where the text is in its output.
	Model string
	Agent json.RawMessage
	Path  string
	// Check is how an answer is compared with its targets: one of [Checks]; empty for what the harness does
	// by itself.
	Check string
}

// The ways in which an answer is compared.
const (
	checkStarts   = "startsWith"
	checkContains = "contains"
	checkEquals   = "equals"
)

// Checks are the values of [Options].Check.
var Checks = []string{checkStarts, checkContains, checkEquals}

// Imported is what was made of a data set.
type Imported struct {
	// Set is the eval set as JSON.
	Set json.RawMessage
	// Evaluations, Checks and Agents count what is in it.
	Evaluations, Checks, Agents int
	// Missing has what has no counterpart, and was left out. Differs has what is not quite the same.
	Missing, Differs input.Problems
}

// Are reports whether a file has samples, by its name and, if that is .json, by its beginning.
func Are(file string) bool {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".csv", ".tsv", ".jsonl", ".ndjson":
		return true
	case ".json":
		data, _ := os.ReadFile(file) // who reads it next says why it cannot be read
		return bytes.HasPrefix(bytes.TrimSpace(data), []byte("["))
	}
	return false
}

type set struct {
	Version     string           `json:"version"`
	ID          string           `json:"id"`
	Name        string           `json:"name"`
	Agent       any              `json:"agent,omitempty"`
	Evaluators  []map[string]any `json:"evaluators"`
	Evaluations []evaluation     `json:"evaluations"`
}

type evaluation struct {
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Inputs   map[string]any  `json:"inputs"`
	Criteria map[string]any  `json:"evaluationCriterias"`
	Checks   []any           `json:"checks,omitempty"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// importer reads one file.
type importer struct {
	o    Options
	file string
	made Imported
	out  set
	ids  map[string]int
	// shape is the form of the first row's messages, and agent what sends them to the model. of is the line.
	shape string
	agent map[string]any
	of    int
	// said has what was said of a column, which is said once.
	said map[string]bool
}

// Import makes an eval set of a file. The error says why nothing could be made of it.
func Import(file string, o Options) (*Imported, error) {
	im := &importer{o: o, file: file, ids: map[string]int{}, said: map[string]bool{}}
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	im.out = set{Version: "1.0", ID: name, Name: name, Evaluations: []evaluation{}}
	if err := dataset.EachRow(file, im.row); err != nil {
		if p := (input.Problem{}); errors.As(err, &p) {
			return nil, p
		}
		return nil, err
	}
	if len(im.out.Evaluations) == 0 {
		return nil, input.Errorf("%s: there are no samples in it that can be imported", file)
	}
	checks := map[string]any{"id": "checks", "type": "checks"}
	switch path := o.Path; {
	case o.Agent != nil:
		im.out.Agent, im.made.Agents = o.Agent, 1
		if path != "" {
			checks["path"] = path
		}
	case o.Model != "":
		im.agent["type"], im.agent["model"] = "model", o.Model
		im.out.Agent, im.made.Agents, checks["path"] = im.agent, 1, "content"
	default:
		checks["path"] = "content"
	}
	im.out.Evaluators = []map[string]any{checks}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(im.out); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	im.made.Set, im.made.Evaluations = b.Bytes(), len(im.out.Evaluations)
	return &im.made, nil
}

// problem makes a problem of a row.
func (im *importer) problem(line int, key, format string, args ...any) input.Problem {
	return input.Problem{File: im.file, Line: line, Column: 1, Key: key, Message: fmt.Sprintf(format, args...)}
}

// missOnce records that a column has no counterpart, for the first row that has it.
func (im *importer) missOnce(line int, key, format string, args ...any) {
	if p := im.problem(line, key, format, args...); !im.said[key+p.Message] {
		im.said[key+p.Message] = true
		im.made.Missing = append(im.made.Missing, p)
	}
}

func (im *importer) differOnce(line int, key, format string, args ...any) {
	if p := im.problem(line, key, format, args...); !im.said[key+p.Message] {
		im.said[key+p.Message], p.Warning = true, true
		im.made.Differs = append(im.made.Differs, p)
	}
}

// row makes an evaluation of a sample: of OpenAI evals if it has an ideal answer, else of Inspect.
func (im *importer) row(n *input.Node, line int) error {
	if blank(n) {
		return nil
	}
	targets, check := n.Member("target"), cmp.Or(im.o.Check, checkContains)
	openAI := n.Member("ideal") != nil
	if openAI {
		targets, check = n.Member("ideal"), cmp.Or(im.o.Check, checkStarts)
	}
	if n.Member("input") == nil || empty(n.Member("input")) {
		return im.problem(line, "input", "expected a sample with the key input, a text or a list of messages")
	}
	e := evaluation{Criteria: map[string]any{}}
	if e.ID = im.id(n.Member("id")); im.ids[e.ID] > 0 {
		return im.problem(line, "id", "the id %q is that of line %d, too", e.ID, im.ids[e.ID])
	}
	im.ids[e.ID], e.Name = line, e.ID
	choices := choicesOf(n.Member("choices"))
	messages, ok := im.messages(n.Member("input"), choices, line)
	if !ok || !im.inputs(&e, messages, line) {
		return nil
	}
	if n := n.Member("metadata"); n != nil && !empty(n) {
		if e.Metadata = n.JSON(); n.Kind == input.String {
			e.Metadata = json.RawMessage(n.Text)
		}
		if !json.Valid(e.Metadata) || e.Metadata[0] != '{' {
			return im.problem(line, "metadata", "expected an object of JSON")
		}
	}
	e.Checks = im.check(targets, choices, check, !openAI, line)
	for _, m := range n.Members {
		switch {
		case slices.Contains([]string{"input", "target", "ideal", "choices", "id", "metadata"}, m.Key) || empty(m.Value):
		case slices.Contains([]string{"files", "setup", "sandbox", "checkpoint"}, m.Key) || openAI:
			im.missOnce(line, m.Key, "%s has no counterpart", m.Key)
		default:
			im.differOnce(line, m.Key, "%s is left out: Inspect does not read it, either, unless a program says so", m.Key)
		}
	}
	im.out.Evaluations = append(im.out.Evaluations, e)
	return nil
}

// id is the id of a sample; its number, if it has none.
func (im *importer) id(n *input.Node) string {
	if n == nil || empty(n) {
		return fmt.Sprint(len(im.ids) + 1)
	}
	return n.Text
}

// check makes the check of a sample's targets, of which one is enough.
func (im *importer) check(n *input.Node, choices []string, kind string, anyCase bool, line int) []any {
	targets := textsOf(n)
	switch {
	case len(targets) == 0:
		im.missOnce(line, "target", "a sample without a target has no check")
		return nil
	case choices != nil && len(targets) == 1 && len(targets[0]) == 1 && len(choices) <= 26:
		im.made.Checks++
		return []any{map[string]any{"choice": targets[0], "choices": letters[:len(choices)]}}
	case choices != nil:
		im.missOnce(line, "target", "a choice of several letters has no counterpart")
		return nil
	case im.o.Check == "":
		im.differOnce(line, "target", "the file does not say how answers are compared; here they pass with %s (--check)", kind)
	}
	var all []any
	for _, one := range targets {
		c := map[string]any{kind: one}
		if anyCase { // as Inspect's scorers; those of OpenAI evals know case
			c["ignoreCase"] = true
		}
		all = append(all, c)
	}
	im.made.Checks++
	if len(all) > 1 {
		return []any{map[string]any{"anyOf": all}}
	}
	return all
}

const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// choicesOf reads choices as Inspect does: a list, or a text with commas or spaces.
func choicesOf(n *input.Node) (out []string) {
	if n == nil || empty(n) {
		return nil
	}
	all := textsOf(n)
	if n.Kind == input.String {
		if all = strings.Split(n.Text, ","); len(all) == 1 {
			all = strings.Fields(n.Text)
		}
	}
	for _, one := range all {
		if one = strings.TrimSpace(one); one != "" {
			out = append(out, one)
		}
	}
	return out
}

// textsOf returns a text, or those of a list.
func textsOf(n *input.Node) (out []string) {
	switch {
	case n == nil || empty(n):
	case n.Kind == input.Array:
		for _, item := range n.Items {
			out = append(out, textsOf(item)...)
		}
	default:
		out = append(out, n.Text)
	}
	return out
}

// empty reports whether a value says nothing.
func empty(n *input.Node) bool {
	return n.Kind == input.Null || n.Kind == input.String && n.Text == "" || n.Kind == input.Array && len(n.Items) == 0
}

// blank reports whether all cells of a row are empty.
func blank(n *input.Node) bool {
	return !slices.ContainsFunc(n.Members, func(m input.Member) bool {
		return !empty(m.Value) && (m.Value.Kind != input.String || strings.TrimSpace(m.Value.Text) != "")
	})
}
