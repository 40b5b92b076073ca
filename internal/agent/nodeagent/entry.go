// Package nodeagent runs agents of TypeScript and JavaScript as they are: functions, graphs of
// LangGraph.js, and agents of the AI SDK. It finds the project's Node and starts workers with it, which
// package function gives segments to. What the workers run is in sdk/typescript.
package nodeagent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/pyagent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/wait"
)

// Name is the type of these agents.
const Name = "node"

// Type is the type of agents that Node runs.
var Type = agent.Type{
	Name: Name, Settings: func() any { return new(Settings) }, Parse: parse, Check: check, New: newAgent, Secrets: secrets,
	InProject: inProject, OfWord: named, Content: agent.ContentFolder,
}

// Settings are the settings that only the entries of these agents have.
type Settings struct {
	// Entrypoint is FILE.ts:NAME, or the name of a graph in langgraph.json.
	Entrypoint string `json:"entrypoint"`
	// Node is the program: a path relative to the entry's cwd, or a name in PATH. By default it is that
	// of the project.
	Node string `json:"node,omitempty"`
	// Keep says that a worker is kept for further segments.
	Keep bool `json:"keep"`
}

var (
	// place matches FILE.ts:NAME, and those with the other extensions that Node knows.
	place = regexp.MustCompile(`^[^:]+\.[cm]?[jt]s:[A-Za-z_$][\w$.]*$`)
	// graphName matches a name in langgraph.json.
	graphName = regexp.MustCompile(`^[\w-]+$`)
)

func valid(entrypoint string) bool {
	return place.MatchString(entrypoint) || graphName.MatchString(entrypoint)
}

func parse(r *input.Reader, f *input.Fields) agent.Entry {
	s := &Settings{Entrypoint: f.String("entrypoint", ""), Node: f.String("node", ""), Keep: f.Bool("keep", true)}
	e := agent.Entry{
		Cwd:           f.String("cwd", ""),
		Env:           agent.ParseEnv(r, f),
		Settings:      s,
		ResumeWhen:    agent.ParseResumeWhen(f, agent.ResumeAny),
		AcceptsFaults: f.Bool("acceptsFaults", false),
		Timeout:       wait.Duration(f.Duration("timeout", 0)),
	}
	if n := f.Required("entrypoint", input.String); n != nil && !valid(n.Text) {
		r.Errorf(n, "expected an agent as FILE.ts:NAME (or .js, .mjs, .cjs, .mts, .cts), or its name in langgraph.json, got %q", n.Text)
	}
	e.Name = f.String("name", nameOf(s.Entrypoint))
	return e
}

// nameOf returns the name of an agent that has none.
func nameOf(entrypoint string) string {
	file, name, _ := strings.Cut(entrypoint, ":")
	if name == "default" {
		base := filepath.Base(file)
		name = strings.TrimSuffix(base, filepath.Ext(base))
	}
	return cmp.Or(name, entrypoint, Name)
}

// entry returns the entry of an entry point, in the folder cwd.
func entry(entrypoint, cwd string) agent.Entry {
	return agent.Entry{Name: nameOf(entrypoint), Type: Name, Cwd: cwd, ResumeWhen: agent.ResumeAny,
		Settings: &Settings{Entrypoint: entrypoint, Keep: true}}
}

func check(e agent.Entry) error {
	if s, ok := e.Settings.(*Settings); !ok || !valid(s.Entrypoint) {
		return fmt.Errorf("agent %q has no function as its entrypoint", e.Name)
	}
	return nil
}

// secrets are the variables of the project's own file that look like secrets.
func secrets(e agent.Entry, dir string) map[string]string {
	if !filepath.IsAbs(e.Cwd) {
		dir = filepath.Join(dir, e.Cwd)
	} else {
		dir = e.Cwd
	}
	return redact.FromEnviron(variables(e.Settings.(*Settings), dir), nil)
}

// variables are those of langgraph.json, for an agent that is named in it.
func variables(s *Settings, dir string) []string {
	if strings.Contains(s.Entrypoint, ":") {
		return nil
	}
	return pyagent.Variables(dir, pyagent.LangGraph)
}

// inProject returns the agent that the files of a folder name: "evalrun": {"agent": "FILE.ts:NAME"} in its
// package.json, or the graph of a langgraph.json. It returns false if they name none for Node.
func inProject(dir string) (agent.Entry, bool, error) {
	var project struct {
		Evalrun struct {
			Agent string `json:"agent"`
		} `json:"evalrun"`
	}
	path := filepath.Join(dir, "package.json")
	data, err := input.ReadFile(path, input.MaxFile)
	if err == nil && json.Unmarshal(data, &project) == nil && project.Evalrun.Agent != "" {
		if !valid(project.Evalrun.Agent) {
			return agent.Entry{}, false, fmt.Errorf(`%s: "evalrun": expected "agent" to be FILE.ts:NAME, got %q`, path, project.Evalrun.Agent)
		}
		return entry(project.Evalrun.Agent, dir), true, nil
	}
	return ofGraphs(filepath.Join(dir, "langgraph.json"), "")
}

// ofGraphs returns one of the graphs of a langgraph.json, the only one if no name is given; false if it is none of Node.
func ofGraphs(path, name string) (agent.Entry, bool, error) {
	graphs := pyagent.Graphs(path)
	var names []string
	for one, where := range graphs {
		if place.MatchString(where) {
			names = append(names, one)
		}
	}
	slices.Sort(names)
	switch {
	case name == "" && len(names) == 1 && len(graphs) == 1:
		name = names[0]
	case name == "" && len(names) > 1 && len(graphs) == len(names):
		return agent.Entry{}, false, fmt.Errorf("%s names several agents: choose one with --agent %s:NAME, of %s", path,
			path, strings.Join(names, ", "))
	case !slices.Contains(names, name):
		return agent.Entry{}, false, nil
	}
	return entry(name, filepath.Dir(path)), true, nil
}

// named returns the agent that a word on the command line stands for: FILE.ts:NAME, or a graph of
// Node in a langgraph.json. It returns false if the word is none of these.
func named(word string) (agent.Entry, bool, error) {
	path, name, _ := strings.Cut(word, ":")
	if filepath.Base(path) == "langgraph.json" {
		return ofGraphs(path, name)
	}
	if !place.MatchString(word) {
		return agent.Entry{}, false, nil
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return agent.Entry{}, true, fmt.Errorf("%w%s", input.Unreadable(path, err), input.NearFile(path))
	}
	return entry(word, "."), true, nil
}
