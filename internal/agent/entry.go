package agent

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// Entry is an agent as an eval set or the command line names it. It is stored with a run as JSON,
// so that a run is resumed with the agent that it was started with; secrets stay ${VAR} in it.
type Entry struct {
	Name string
	// Type is the name of a registered [Type].
	Type    string
	Command []string
	// Cwd is relative to Segment.BaseDir, which is the default. An agent without a sandbox starts
	// there; the program of any other agent is looked up there if its path is relative.
	Cwd string
	// Env is added to the environment; ${VAR} in a value is resolved for each segment.
	Env map[string]string
	// Extends names the registry's entry that supplies everything this one leaves out.
	Extends string
	// Model is the endpoint of the agent's model. Without it, or without a key, the agent talks to
	// its provider as it likes.
	Model *Model
	// Settings holds the settings that only entries of this type have, made by the type's own
	// Settings; nil if the type has none.
	Settings any
	// ResumeWhen says whether a rollout with several triggers resumes when any of them or when all
	// have fired.
	ResumeWhen ResumeWhen
	// AcceptsFaults says that the agent accepts a failed job as {"error":…} in place of a payload.
	AcceptsFaults bool
	// Timeout bounds each segment, beside Segment.Timeout; 0 means none.
	Timeout wait.Duration
	// WorkerTags are what a process must have to run the agent.
	WorkerTags []string
	// Fresh says that a process serves one segment alone, whatever the entry says.
	Fresh bool
}

// Model is a model endpoint, which the agent reaches through evalrun's proxy.
type Model struct {
	// API is "openai", "anthropic" or "gemini".
	API string `json:"api,omitempty"`
	// URL is the base URL as the agent's own setting has it, and Key the key; both may hold ${VAR}.
	URL string `json:"url,omitempty"`
	Key string `json:"key,omitempty"`
	// Name is the name of the model.
	Name string `json:"name,omitempty"`
}

// TimeoutOfEntry names the timeout of an entry.
const TimeoutOfEntry = "timeout of the agent"

// ResumeWhen says how many of its triggers a rollout waits for.
type ResumeWhen string

// The values of resumeWhen.
const (
	ResumeAny ResumeWhen = "any"
	ResumeAll ResumeWhen = "all"
)

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ParseEntry reads the value of `agent`, or of one element of `agents`: an object, or a name from
// the registry. Problems are recorded in r.
func ParseEntry(r *input.Reader, n *input.Node) Entry {
	if n.Kind == input.String {
		e, ok := Registered(n.Text)
		if !ok {
			r.Errorf(n, "no agent has the name %q%s; the registry has %s; any other agent is an object with a \"type\"",
				n.Text, input.Suggest(n.Text, Names()), strings.Join(Names(), ", "))
			return Entry{Name: n.Text}
		}
		return e
	}
	f := r.Object(n)
	if n.Kind != input.Object {
		return Entry{}
	}
	e := Entry{Type: parseType(r, f)}
	switch t := e.typeOf(); {
	case t.Name == "":
		return Entry{Name: f.String("name", ""), Type: f.String("type", "")}
	case t.Parse == nil:
		e.Name = f.String("name", t.Name)
	default:
		e = t.Parse(r, f)
		e.Type = t.Name
	}
	e.WorkerTags = f.Labels("workerTags")
	f.Ignore("acceptsFaults") // stored with every entry
	f.Done()
	return e
}

// CheckCommand is the [Type].Check of entries with a command.
func CheckCommand(e Entry) error {
	if len(e.Command) == 0 || e.Command[0] == "" {
		return fmt.Errorf("agent %q has no command", e.Name)
	}
	return nil
}

// ParseResumeWhen reads "resumeWhen".
func ParseResumeWhen(f *input.Fields, otherwise ResumeWhen) ResumeWhen {
	return ResumeWhen(f.Enum("resumeWhen", string(otherwise), string(ResumeAny), string(ResumeAll)))
}

// ParseCommand reads a program and its arguments; n is the value of "command", nil if there is
// none.
func ParseCommand(r *input.Reader, f *input.Fields, n *input.Node) []string {
	if n == nil {
		return nil
	}
	if len(n.Items) == 0 || n.Items[0].Kind == input.String && n.Items[0].Text == "" {
		r.Errorf(n, `expected a program and its arguments, such as ["python3", "agent.py"]`)
	}
	return f.Strings("command")
}

// ParseEnv reads "env" and checks the names of the variables.
func ParseEnv(r *input.Reader, f *input.Fields) map[string]string {
	env := f.Get("env")
	if env == nil {
		return nil
	}
	for _, m := range env.Members {
		if !envName.MatchString(m.Key) {
			r.Errorf(m.Value, "%q is not a name that an environment variable can have", m.Key)
		}
		if strings.HasPrefix(m.Key, "EVALRUN_") {
			r.Errorf(m.Value, "variables that begin with EVALRUN_ are set by evalrun itself")
		}
	}
	return f.StringMap("env")
}

// parseType reads the type of an entry. It is empty if this version cannot run it.
func parseType(r *input.Reader, f *input.Fields) string {
	n, known := f.Required("type", input.String), typeNames()
	switch {
	case n == nil:
		return ""
	case slices.Contains(known, n.Text):
		return n.Text
	default:
		r.Errorf(n, "unknown type %q; supported: %s%s", n.Text, strings.Join(known, ", "), input.Suggest(n.Text, known))
	}
	return ""
}

// NameOf returns the name of an agent that has none: the name of its program.
func NameOf(command []string) string {
	if len(command) == 0 {
		return ""
	}
	return filepath.Base(command[0])
}

// SettingsOf returns the settings of an entry; empty ones if it is of a type with others.
func SettingsOf[T any](e Entry) *T {
	if s, ok := e.Settings.(*T); ok {
		return s
	}
	return new(T)
}

// storedHead and storedTail have the keys of a stored entry before and after those of its type. The
// digest of a plan depends on their order.
type storedHead struct {
	Name    string            `json:"name"`
	Type    string            `json:"type"`
	Command []string          `json:"command,omitempty"`
	Cwd     string            `json:"cwd,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Extends string            `json:"extends,omitempty"`
	Model   *Model            `json:"model,omitempty"`
}

type storedTail struct {
	ResumeWhen    ResumeWhen    `json:"resumeWhen,omitempty"`
	AcceptsFaults bool          `json:"acceptsFaults"`
	Timeout       wait.Duration `json:"timeout,omitzero"`
	Fresh         bool          `json:"fresh,omitempty"`
	WorkerTags    []string      `json:"workerTags,omitempty"`
}

// MarshalJSON makes one object of the keys that all entries have and those of the entry's type.
func (e Entry) MarshalJSON() ([]byte, error) {
	return jsonobj.Join(storedHead{e.Name, e.Type, e.Command, e.Cwd, e.Env, e.Extends, e.Model}, e.Settings,
		storedTail{e.ResumeWhen, e.AcceptsFaults, e.Timeout, e.Fresh, e.WorkerTags})
}

// UnmarshalJSON reads a stored entry.
func (e *Entry) UnmarshalJSON(data []byte) error {
	var head storedHead
	var tail storedTail
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &tail); err != nil {
		return err
	}
	*e = Entry{
		Name: head.Name, Type: head.Type, Command: head.Command, Cwd: head.Cwd, Env: head.Env,
		Extends: head.Extends, Model: head.Model,
		ResumeWhen: tail.ResumeWhen, AcceptsFaults: tail.AcceptsFaults, Timeout: tail.Timeout,
		Fresh: tail.Fresh, WorkerTags: tail.WorkerTags,
	}
	if settings := e.typeOf().Settings; settings != nil {
		e.Settings = settings()
		return json.Unmarshal(data, e.Settings)
	}
	return nil
}
