package acpagent

import (
	"cmp"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/wait"
)

// Name is the type of these agents.
const Name = "acp"

// Type is the type of agents that speak the Agent Client Protocol.
var Type = agent.Type{
	Name:  Name,
	Needs: agent.Needs{Sandbox: true, Home: true, Env: true, Models: true, Gateway: true},
	Parse: parse, Settings: func() any { return new(Settings) }, Check: agent.CheckCommand, New: New,
	Named: registry, Install: func(program string) string { return installs[program] },
	Credentials: hasCredentials, Skills: skills,
	AsksPeople: func(e agent.Entry) bool { return SettingsOf(e).Elicitation == PolicySuspend },
}

// Settings are the settings that only the entries of ACP agents have. The placeholders in values
// are {home}, {model}, {modelURL} and {modelKey}. A variable or a file that names one without a
// value is left out.
type Settings struct {
	// Files maps paths in the agent's home to files that are written there before each start;
	// values may hold placeholders.
	Files map[string]string `json:"files,omitempty"`
	// Permissions says how requests for permission are answered, and Elicitation how questions are
	// answered.
	Permissions Policy `json:"permissions,omitempty"`
	Elicitation Policy `json:"elicitation,omitempty"`
	// Mode is the session mode to set, ConfigOptions the options by their ids.
	Mode          string            `json:"mode,omitempty"`
	ConfigOptions map[string]string `json:"configOptions,omitempty"`
	// AuthMethod is the id of the method to authenticate with; empty for none.
	AuthMethod string `json:"authMethod,omitempty"`
	// ResumeBy are the ways to go on with a session in a new process, in order of preference; those
	// that the agent does not advertise are passed over, and "replay" is always possible.
	ResumeBy []ResumeBy `json:"resumeBy,omitempty"`
	// ToolName is the pattern by which the agent names a server's tool, with the placeholders
	// {server} and {tool}.
	ToolName string `json:"toolName,omitempty"`
	// FS and Terminal offer the agent the client's files and terminals.
	FS       bool `json:"fs,omitempty"`
	Terminal bool `json:"terminal,omitempty"`
	// HandshakeTimeout is how long the agent may take to answer initialize, once more to open its session,
	// and, if it is longer than a minute, to ask for its tools; 0 means the default of a minute.
	HandshakeTimeout wait.Duration `json:"handshakeTimeout,omitzero"`
	// IdleTimeout ends a turn in which nothing happens for so long; 0 means the default of ten
	// minutes.
	IdleTimeout wait.Duration `json:"idleTimeout,omitzero"`
	// Visible are folders that the agent must see in an environment that hides the rest of the
	// machine, beside the system and that of its program.
	Visible []string `json:"visible,omitempty"`
}

// SettingsOf returns the settings of an entry; nil if it is of another type.
func SettingsOf(e agent.Entry) *Settings {
	s, _ := e.Settings.(*Settings)
	return s
}

// Policy says how an agent's request is answered.
type Policy string

// The policies.
const (
	PolicyAllow   Policy = "allow"
	PolicyDeny    Policy = "deny"
	PolicySuspend Policy = "suspend" // a person is asked, and the rollout suspended until then
)

// ResumeBy is a way to go on with a session in a new process.
type ResumeBy string

// The ways.
const (
	ByResume ResumeBy = "resume" // session/resume
	ByLoad   ResumeBy = "load"   // session/load
	ByReplay ResumeBy = "replay" // a new session, with a transcript in its first prompt
)

var ways = []string{string(ByResume), string(ByLoad), string(ByReplay)}

// parse reads the entry of an ACP agent. The entry that it extends gives the settings that are
// missing.
func parse(r *input.Reader, f *input.Fields) agent.Entry {
	var base, e agent.Entry
	inherited := &Settings{
		Permissions: PolicyAllow, Elicitation: PolicyDeny, ResumeBy: []ResumeBy{ByResume, ByLoad, ByReplay},
	}
	if name := f.String("extends", ""); name != "" {
		registered, ok := agent.Registered(name)
		if !ok || registered.Type != Name {
			r.Errorf(f.Get("extends"), "no ACP agent of the registry has the name %q%s",
				name, input.Suggest(name, agent.Names()))
		} else {
			base, inherited, e.Extends = registered, SettingsOf(registered), name
		}
	}
	e.Command, e.Cwd, e.Env = base.Command, f.String("cwd", ""), merge(base.Env, agent.ParseEnv(r, f))
	s := &Settings{
		Files:         merge(inherited.Files, f.StringMap("files")),
		Permissions:   parsePolicy(f, "permissions", inherited.Permissions, PolicyAllow, PolicyDeny, PolicySuspend),
		Elicitation:   parsePolicy(f, "elicitation", inherited.Elicitation, PolicyDeny, PolicySuspend),
		Mode:          f.String("mode", inherited.Mode),
		ConfigOptions: merge(inherited.ConfigOptions, f.StringMap("configOptions")),
		AuthMethod:    f.String("authMethod", inherited.AuthMethod),
		ResumeBy:      inherited.ResumeBy,
		ToolName:      f.String("toolName", inherited.ToolName),
		FS:            f.Bool("fs", inherited.FS),
		Terminal:      f.Bool("terminal", inherited.Terminal),
		IdleTimeout:   wait.Duration(f.Duration("idleTimeout", 0)),
		Visible:       f.Strings("visible"),

		HandshakeTimeout: wait.Duration(f.Duration("handshakeTimeout", 0)),
	}
	e.Settings = s
	e.ResumeWhen = agent.ParseResumeWhen(f, agent.ResumeAll)
	e.AcceptsFaults = f.Bool("acceptsFaults", true)
	e.Timeout = wait.Duration(f.Duration("timeout", 0))
	if n := f.Optional("resumeBy", input.Array); n != nil {
		s.ResumeBy = nil
		for _, item := range n.Items {
			if item.Kind != input.String || !slices.Contains(ways, item.Text) {
				r.Errorf(item, "expected one of %q%s", ways, input.Suggest(item.Text, ways))
				continue
			}
			s.ResumeBy = append(s.ResumeBy, ResumeBy(item.Text))
		}
		f.Strings("resumeBy")
		if len(n.Items) == 0 {
			s.ResumeBy = []ResumeBy{ByReplay} // only a replay is left
		}
	}
	checkPaths(r, f)
	switch n := f.Optional("command", input.Array); {
	case n != nil:
		e.Command = agent.ParseCommand(r, f, n)
	case e.Command == nil && !f.Has("command"):
		f.Required("command", input.Array)
	}
	if n := f.Get("permissions"); n != nil && s.Permissions == PolicySuspend {
		if why := neverAsks(e); why != "" {
			r.Warnf(n, "%s never asks for permission with these settings: %s", e.Extends, why)
		}
	}
	e.Model = parseModel(f, r, base.Model)
	e.Name = f.String("name", cmp.Or(base.Name, agent.NameOf(e.Command)))
	return e
}

func parsePolicy(f *input.Fields, key string, inherited Policy, allowed ...Policy) Policy {
	var names []string
	for _, p := range allowed {
		names = append(names, string(p))
	}
	return Policy(f.Enum(key, string(inherited), names...))
}

// neverAsks says why an agent of the registry will not ask for permission, as far as its settings
// tell, and what to change.
func neverAsks(e agent.Entry) string {
	switch e.Extends {
	case "codex", "zed-codex":
		if e.Env["INITIAL_AGENT_MODE"] == "agent-full-access" {
			return `set "env": {"INITIAL_AGENT_MODE": "read-only"}`
		}
	case "qwen":
		if slices.Contains(e.Command, "yolo") {
			return `set "command": ["qwen", "--acp", "--approval-mode", "default"]`
		}
	case "opencode":
		if !strings.Contains(e.Env["OPENCODE_CONFIG_CONTENT"], `"permission"`) {
			return `set "permission" in the OPENCODE_CONFIG_CONTENT of "env"`
		}
	}
	return ""
}

// hasCredentials reports whether an entry adds something to base that may be credentials.
func hasCredentials(e, base agent.Entry) bool {
	return !maps.Equal(e.Env, base.Env) || !maps.Equal(SettingsOf(e).Files, SettingsOf(base).Files)
}

// skillFolders maps agents of the registry to the folders in their homes where they look for
// skills; Harbor copies skills there. All other agents have the folder on which agents have agreed.
var skillFolders = map[string]string{
	"claude": ".claude/skills", "gemini": ".gemini/skills", "opencode": ".config/opencode/skills", "qwen": ".qwen/skills",
	"goose": ".config/goose/skills", "cursor": ".cursor/skills",
}

const commonSkills = ".agents/skills"

func skills(e agent.Entry) string {
	return cmp.Or(skillFolders[cmp.Or(e.Extends, e.Name)], commonSkills)
}

// checkPaths checks the paths of an entry's files and of its visible folders.
func checkPaths(r *input.Reader, f *input.Fields) {
	if files := f.Get("files"); files != nil {
		for _, m := range files.Members {
			if !filepath.IsLocal(m.Key) || filepath.Clean(m.Key) == "." {
				r.Errorf(m.Value, "expected the path of a file in the agent's home, such as \".config/agent.json\"; got %q", m.Key)
			}
		}
	}
	if visible := f.Get("visible"); visible != nil {
		for _, item := range visible.Items {
			if item.Kind == input.String && (!filepath.IsAbs(item.Text) || filepath.Clean(item.Text) == "/") {
				r.Errorf(item, "expected the absolute path of a folder below /, got %q", item.Text)
			}
		}
	}
}

func parseModel(f *input.Fields, r *input.Reader, base *agent.Model) *agent.Model {
	n := f.Optional("model", input.Object)
	if n == nil {
		return base
	}
	if base == nil {
		base = &agent.Model{}
	}
	m := r.Object(n)
	key := base.Key
	if m.Has("url") {
		key = "" // the provider's own key must not go to anybody else
	}
	model := &agent.Model{
		API: m.Enum("api", base.API, "openai", "anthropic", "gemini"), URL: m.String("url", base.URL),
		Key: m.String("key", key), Name: m.String("name", base.Name),
	}
	if model.Key != "" && !strings.Contains(model.Key, "${") {
		r.Warnf(m.Get("key"), "the key itself would be stored with the run; write ${NAME}, and set the variable")
	}
	if model.URL == "" {
		r.Errorf(n, `expected the endpoint's "url"`)
	}
	m.Done()
	return model
}

// merge puts the own values over the inherited ones. It returns nil if there are none.
func merge(inherited, own map[string]string) map[string]string {
	var out map[string]string
	for _, from := range []map[string]string{inherited, own} {
		for k, v := range from {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = v
		}
	}
	return out
}
