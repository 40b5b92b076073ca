// Package pyagent runs agents of Python projects as they are: functions, agents of frameworks, and
// entry points of UiPath. It finds the project's interpreter and starts workers with it, which
// package function gives segments to. What the workers run is in sdk/python.
package pyagent

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
)

// The types of these agents.
const (
	Python       = "python"
	LangGraph    = "langgraph"
	UiPath       = "uipath"
	OpenAIAgents = "openai-agents"
	PydanticAI   = "pydantic-ai"
	LlamaIndex   = "llamaindex"
	GoogleADK    = "google-adk"
)

// Types are the types of agents in Python projects.
var Types = []agent.Type{
	typeOf(Python), typeOf(LangGraph), typeOf(UiPath), typeOf(OpenAIAgents), typeOf(PydanticAI), typeOf(LlamaIndex),
	typeOf(GoogleADK),
}

func typeOf(name string) agent.Type {
	t := agent.Type{
		Name: name, Settings: func() any { return new(Settings) }, Check: check, New: newAgent, Secrets: secrets, Absent: absent,
		Needs: agent.Needs{Mockable: true}, Content: agent.ContentFolder,
		Parse: func(r *input.Reader, f *input.Fields) agent.Entry { return parse(name, r, f) },
	}
	if name == Python { // for all of them
		t.InProject, t.OfWord = inProject, named
	}
	return t
}

// Settings are the settings that only the entries of these agents have.
type Settings struct {
	// Entrypoint is FILE.py:NAME or module:NAME, or the name of an agent in the project's file of the
	// type, such as langgraph.json; it may be left out if there is but one. Type python has no file,
	// and what type uipath runs is only named in one.
	Entrypoint string `json:"entrypoint,omitempty"`
	// Python is the interpreter: a path relative to the entry's cwd, or a name in PATH. By default it is
	// that of the project.
	Python string `json:"python,omitempty"`
	// Keep says that a worker is kept for further segments.
	Keep bool `json:"keep"`
}

// place matches FILE.py:NAME and module:NAME.
var place = regexp.MustCompile(`^([^:]+\.py|[A-Za-z_][\w.]*):[A-Za-z_][\w.]*$`)

func parse(kind string, r *input.Reader, f *input.Fields) agent.Entry {
	s := &Settings{
		Entrypoint: f.String("entrypoint", ""),
		Python:     f.String("python", ""),
		Keep:       f.Bool("keep", true),
	}
	e := agent.Entry{
		Cwd:           f.String("cwd", ""),
		Env:           agent.ParseEnv(r, f),
		Settings:      s,
		ResumeWhen:    agent.ParseResumeWhen(f, resumeWhen(kind)),
		AcceptsFaults: f.Bool("acceptsFaults", false),
		Timeout:       wait.Duration(f.Duration("timeout", 0)),
	}
	if kind == Python {
		if n := f.Required("entrypoint", input.String); n != nil && !place.MatchString(n.Text) {
			r.Errorf(n, "expected a function as FILE.py:NAME or module:NAME, got %q", n.Text)
		}
	} else if kind != UiPath && strings.Contains(s.Entrypoint, ":") && !place.MatchString(s.Entrypoint) {
		r.Errorf(f.Get("entrypoint"), "expected an agent as FILE.py:NAME, module:NAME or its name in %s, got %q",
			FileOf(kind), s.Entrypoint)
	}
	e.Name = f.String("name", nameOf(kind, s.Entrypoint))
	return e
}

// resumeWhen is when agents of a type are resumed that wait for several things, unless they say so:
// Pydantic AI and ADK go on when all have arrived.
func resumeWhen(kind string) agent.ResumeWhen {
	if kind == PydanticAI || kind == GoogleADK {
		return agent.ResumeAll
	}
	return agent.ResumeAny
}

// nameOf returns the name of an agent that has none.
func nameOf(kind, entrypoint string) string {
	return cmp.Or(entrypoint[strings.LastIndexByte(entrypoint, ':')+1:], kind)
}

// entry returns the entry of an entry point, in the folder cwd.
func entry(kind, entrypoint, cwd string) agent.Entry {
	return agent.Entry{Name: nameOf(kind, entrypoint), Type: kind, Cwd: cwd, ResumeWhen: resumeWhen(kind),
		Settings: &Settings{Entrypoint: entrypoint, Keep: true}}
}

func check(e agent.Entry) error {
	if s, ok := e.Settings.(*Settings); !ok || e.Type == Python && !place.MatchString(s.Entrypoint) {
		return fmt.Errorf("agent %q has no function as its entrypoint", e.Name)
	}
	return nil
}
