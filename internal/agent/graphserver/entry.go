package graphserver

import (
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/httpagent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
)

// Name is the type of these agents.
const Name = "langgraph-server"

// Type is the type of graphs behind a server of LangGraph.
var Type = agent.Type{
	Name: Name, Parse: parse, Settings: func() any { return new(Settings) }, New: New,
	Texts: func(e agent.Entry) []string {
		s := agent.SettingsOf[Settings](e)
		return httpagent.Texts(s.URL, s.Headers)
	},
}

// defaultSoftWait is how long a segment waits for a run before the rollout is suspended.
const defaultSoftWait = 10 * time.Second

// Settings are the settings that only the entries of these agents have. URL and Headers may hold
// ${VAR}.
type Settings struct {
	// URL is where the server is.
	URL string `json:"url,omitempty"`
	// Assistant is the id of an assistant, or the name of a graph.
	Assistant string `json:"assistant,omitempty"`
	// Headers are sent with every request.
	Headers map[string]string `json:"headers,omitempty"`
	// Interval is how often a run is asked for, at first, when the rollout is suspended.
	Interval wait.Duration `json:"interval,omitzero"`
	// SoftWait is how long a segment waits for a run before the rollout is suspended.
	SoftWait wait.Duration `json:"softWait,omitempty"`
}

func parse(r *input.Reader, f *input.Fields) agent.Entry {
	s := &Settings{Assistant: f.RequiredString("assistant"), SoftWait: wait.Duration(f.Duration("softWait", defaultSoftWait))}
	s.URL, s.Headers, s.Interval = httpagent.ParseRemote(r, f)
	e := agent.Entry{
		Settings:      s,
		ResumeWhen:    agent.ParseResumeWhen(f, agent.ResumeAny),
		AcceptsFaults: f.Bool("acceptsFaults", false),
		Timeout:       wait.Duration(f.Duration("timeout", 0)),
	}
	e.Name = f.String("name", s.Assistant)
	return e
}
