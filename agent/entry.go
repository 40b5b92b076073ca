package agent

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/input"
	"github.com/evalrun/evalrun/trigger"
)

// Entry is an agent as an eval set or the command line names it. It is stored with a run as JSON, so that a run is
// resumed with the agent that it was started with; secrets stay ${VAR} in it.
type Entry struct {
	Name string `json:"name"`
	// Type is "function", the only one that this version runs.
	Type    string   `json:"type"`
	Command []string `json:"command"`
	// Cwd is relative to Segment.BaseDir, which is the default.
	Cwd string `json:"cwd,omitempty"`
	// Env is added to the environment; ${VAR} in a value is resolved for each segment.
	Env map[string]string `json:"env,omitempty"`
	// Stdin is what the agent reads, Output where its document is.
	Stdin  StdinMode  `json:"stdin"`
	Output OutputMode `json:"output"`
	// OutputFile is the name of the file that EVALRUN_OUTPUT_FILE points to with Output "file", for programs that want a
	// certain extension. By default it is output.json.
	OutputFile string `json:"outputFile,omitempty"`
	// ResumeWhen says whether a rollout with several triggers resumes when any of them or when all have fired.
	ResumeWhen ResumeWhen `json:"resumeWhen"`
	// AcceptsFaults says that the agent takes a failed job as {"error":…} in place of a payload.
	AcceptsFaults bool `json:"acceptsFaults"`
	// Timeout bounds each segment, beside Segment.Timeout; 0 means none.
	Timeout trigger.Duration `json:"timeout,omitzero"`
}

// StdinMode is what a function agent reads.
type StdinMode string

// The stdin modes.
const (
	StdinEnvelope StdinMode = "envelope" // {"input":…,"resume":…,…}
	StdinInput    StdinMode = "input"    // the evaluation's input alone; such an agent cannot be resumed
)

// OutputMode is where a function agent leaves its document.
type OutputMode string

// The output modes.
const (
	OutputStdout   OutputMode = "stdout"    // all of stdout is the document
	OutputLastLine OutputMode = "last-line" // the last line of stdout that is not empty
	OutputFile     OutputMode = "file"      // the file that EVALRUN_OUTPUT_FILE points to
)

// ResumeWhen says how many of its triggers a rollout waits for.
type ResumeWhen string

// The values of resumeWhen.
const (
	ResumeAny ResumeWhen = "any"
	ResumeAll ResumeWhen = "all"
)

// typeFunction is the only type of agent in this version; laterTypes are those of the design.
const typeFunction = "function"

var laterTypes = []string{"acp", "langgraph", "oracle", "nop"}

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// FromCommand is the entry of `-- COMMAND…`: a function agent named after its program.
func FromCommand(args []string) Entry {
	return Entry{Name: nameOf(args), Type: typeFunction, Command: args, Stdin: StdinEnvelope, Output: OutputStdout, ResumeWhen: ResumeAny}
}

// ParseEntry reads the value of `agent`, or of one element of `agents`. What is wrong with it is recorded in r.
func ParseEntry(r *input.Reader, n *input.Node) Entry {
	if n.Kind == input.String {
		r.Errorf(n, "the agent %q is a name from the registry, which is not supported by this version; supported: an object with \"type\": %q", n.Text, typeFunction)
		return Entry{Name: n.Text}
	}
	f := r.Object(n)
	if n.Kind != input.Object {
		return Entry{}
	}
	if !parseType(r, f) {
		return Entry{Name: f.String("name", ""), Type: f.String("type", "")}
	}
	e := Entry{
		Type:          typeFunction,
		Cwd:           f.String("cwd", ""),
		Env:           f.StringMap("env"),
		Stdin:         StdinMode(f.Enum("stdin", string(StdinEnvelope), string(StdinEnvelope), string(StdinInput))),
		Output:        OutputMode(f.Enum("output", string(OutputStdout), string(OutputStdout), string(OutputLastLine), string(OutputFile))),
		OutputFile:    f.String("outputFile", ""),
		ResumeWhen:    ResumeWhen(f.Enum("resumeWhen", string(ResumeAny), string(ResumeAny), string(ResumeAll))),
		AcceptsFaults: f.Bool("acceptsFaults", false),
		Timeout:       trigger.Duration(f.Duration("timeout", 0)),
	}
	if command := f.Required("command", input.Array); command != nil {
		e.Command = f.Strings("command")
		if len(command.Items) == 0 || command.Items[0].Kind == input.String && command.Items[0].Text == "" {
			r.Errorf(command, `expected a program and its arguments, such as ["python3", "agent.py"]`)
		}
	}
	if env := f.Get("env"); e.Env != nil {
		for _, m := range env.Members {
			if !envName.MatchString(m.Key) {
				r.Errorf(m.Value, "%q is not a name that an environment variable can have", m.Key)
			}
			if strings.HasPrefix(m.Key, "EVALRUN_") {
				r.Errorf(m.Value, "variables that begin with EVALRUN_ are set by evalrun itself")
			}
		}
	}
	if e.OutputFile != "" {
		n := f.Get("outputFile")
		if e.Output != OutputFile {
			r.Errorf(n, `has a meaning only with "output": "file"`)
		}
		if filepath.Base(e.OutputFile) != e.OutputFile || !filepath.IsLocal(e.OutputFile) || slices.Contains([]string{FileStdout, FileStderr, FileTrace}, e.OutputFile) {
			r.Errorf(n, "expected the name of a file, without a folder, that evalrun does not use itself; got %q", e.OutputFile)
		}
	}
	e.Name = f.String("name", nameOf(e.Command))
	f.Done()
	return e
}

// parseType reports whether the object is an entry that this version can run.
func parseType(r *input.Reader, f *input.Fields) bool {
	n := f.Required("type", input.String)
	switch {
	case n == nil:
		return false
	case n.Text == typeFunction:
		return true
	}
	for _, t := range laterTypes {
		if n.Text == t {
			r.Errorf(n, "agents of type %q are not supported by this version; supported: %s", t, typeFunction)
			return false
		}
	}
	r.Errorf(n, "unknown type %q; supported: %s%s", n.Text, typeFunction, input.Suggest(n.Text, []string{typeFunction}))
	return false
}

// nameOf is the name of an agent that has none: that of its program.
func nameOf(command []string) string {
	if len(command) == 0 {
		return ""
	}
	return filepath.Base(command[0])
}

// Variables names every ${VAR} of the entry, each once and in order.
func (e Entry) Variables() []string {
	var names []string
	for _, value := range e.Env {
		for _, m := range variable.FindAllStringSubmatch(value, -1) {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
