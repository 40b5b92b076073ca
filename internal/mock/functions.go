package mock

import (
	"encoding/json"
	"slices"

	"github.com/evalrun/evalrun/internal/input"
)

// Functions are functions of an agent that are played in the agent's process, by the package uipath of
// its project: a mockingStrategy of type mockito.
type Functions struct {
	// Place says where it stands: "evaluation 1 mockingStrategy".
	Place    string          `json:"place"`
	Strategy json.RawMessage `json:"strategy"`
	// Names are the functions that it plays, each once.
	Names []string `json:"names"`
}

// FunctionKey stands for a function among the tools of which no mock has matched a call: it has no server.
func FunctionKey(name string) string { return " " + name }

// ParseFunctions reads a mockingStrategy of type mockito, as UiPath's package does. Problems are recorded
// in r with their places.
func ParseFunctions(r *input.Reader, n *input.Node, place string) *Functions {
	out := &Functions{Place: place, Strategy: n.JSON()}
	f := r.Object(n)
	f.Ignore("type")
	name := "behaviors"
	if f.Get(name) == nil && f.Get("config") != nil {
		name = "config" // UiPath's other word
	}
	list := f.Required(name, input.Array)
	f.Done()
	if list == nil {
		return out
	}
	for _, g := range r.Objects(list) {
		function := g.RequiredString("function")
		if !slices.Contains(out.Names, function) {
			out.Names = append(out.Names, function)
		}
		if arguments := g.Optional("arguments", input.Object); arguments != nil {
			a := r.Object(arguments)
			a.Optional("args", input.Array)
			a.Optional("kwargs", input.Object)
			a.Done()
		}
		if then := g.Required("then", input.Array); then != nil {
			readThen(r, then)
		}
		g.Done()
	}
	return out
}

// readThen checks what the calls of a function get, one after the other.
func readThen(r *input.Reader, n *input.Node) {
	if len(n.Items) == 0 {
		r.Errorf(n, "expected at least one answer")
	}
	for _, f := range r.Objects(n) {
		if f.Required("type", input.String) != nil {
			f.Enum("type", "", "return", "raise")
		}
		if f.Get("value") == nil {
			r.Errorf(f.Node, `the key "value" is missing`)
		}
		f.Done()
	}
}

// HasCode reports whether a strategy makes an object of a class in Python, which may do anything.
func HasCode(n *input.Node) bool {
	return slices.ContainsFunc(n.Members, func(m input.Member) bool { return m.Key == "_target_" || HasCode(m.Value) }) ||
		slices.ContainsFunc(n.Items, HasCode)
}
