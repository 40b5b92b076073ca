package a2aagent

import (
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/httpagent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
)

// Name is the type of these agents.
const Name = "a2a"

// Type is the type of agents that speak Agent2Agent.
var Type = agent.Type{
	Name: Name, Parse: parse, Settings: func() any { return new(Settings) }, New: New,
	Texts: func(e agent.Entry) []string {
		s := agent.SettingsOf[Settings](e)
		return httpagent.Texts(s.URL, s.Headers)
	},
}

// defaultSoftWait is how long a segment waits for a task before the rollout is suspended.
const defaultSoftWait = 10 * time.Second

// Settings are the settings that only the entries of these agents have. URL and Headers may hold
// ${VAR}.
type Settings struct {
	// URL is where the agent is, or its card.
	URL string `json:"url,omitempty"`
	// Headers are sent with every request.
	Headers map[string]string `json:"headers,omitempty"`
	// Interval is how often a task is asked for, at first, when the rollout is suspended.
	Interval wait.Duration `json:"interval,omitzero"`
	// SoftWait is how long a segment waits for a task before the rollout is suspended.
	SoftWait wait.Duration `json:"softWait,omitempty"`
}

func parse(r *input.Reader, f *input.Fields) agent.Entry {
	s := &Settings{SoftWait: wait.Duration(f.Duration("softWait", defaultSoftWait))}
	s.URL, s.Headers, s.Interval = httpagent.ParseRemote(r, f)
	return agent.Entry{
		Name:       f.String("name", httpagent.NameOf(s.URL, Name)),
		Settings:   s,
		ResumeWhen: agent.ParseResumeWhen(f, agent.ResumeAny),
		Timeout:    wait.Duration(f.Duration("timeout", 0)),
	}
}
