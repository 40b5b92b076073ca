package agent

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// Entry is an agent as an eval set or the command line names it. It is stored with a run as JSON,
// so that a run is resumed with the agent that it was started with; secrets stay ${VAR} in it.
type Entry struct {
	Name string `json:"name"`
	// Type is TypeFunction, TypeACP, TypeOracle or TypeNop.
	Type    string   `json:"type"`
	Command []string `json:"command,omitempty"`
	// Cwd is relative to Segment.BaseDir, which is the default: where a function agent starts, and
	// where the program of an ACP agent is looked for if its path is relative.
	Cwd string `json:"cwd,omitempty"`
	// Env is added to the environment; ${VAR} in a value is resolved for each segment.
	Env map[string]string `json:"env,omitempty"`
	// Stdin is what a function agent reads, Output where its document is.
	Stdin  StdinMode  `json:"stdin,omitempty"`
	Output OutputMode `json:"output,omitempty"`
	// OutputFile is the name of the file that EVALRUN_OUTPUT_FILE points to with Output "file", for
	// programs that want a certain extension. By default it is output.json.
	OutputFile string `json:"outputFile,omitempty"`
	// ACP is set in entries of TypeACP.
	*ACP
	// ResumeWhen says whether a rollout with several triggers resumes when any of them or when all
	// have fired.
	ResumeWhen ResumeWhen `json:"resumeWhen,omitempty"`
	// AcceptsFaults says that the agent takes a failed job as {"error":…} in place of a payload.
	AcceptsFaults bool `json:"acceptsFaults"`
	// Timeout bounds each segment, beside Segment.Timeout; 0 means none.
	Timeout wait.Duration `json:"timeout,omitzero"`
}

// The types of agents.
const (
	TypeFunction = "function" // a program that reads a JSON document and prints one
	TypeACP      = "acp"      // an agent that speaks the Agent Client Protocol
	TypeOracle   = "oracle"   // runs a task's own solution
	TypeNop      = "nop"      // does nothing
)

// types are those that an entry may have, laterTypes those of the design that this version does not
// run.
var (
	types      = []string{TypeFunction, TypeACP, TypeOracle, TypeNop}
	laterTypes = []string{"langgraph"}
)

// NeedsSandbox reports whether the agent runs in the sandbox of its rollout, and not as its owner's
// own program.
func (e Entry) NeedsSandbox() bool { return e.Type != TypeFunction }

// TimeoutOfEntry names the timeout of an entry.
const TimeoutOfEntry = "timeout of the agent"

// Check says why no agent can be made of the entry.
func (e Entry) Check() error {
	switch {
	case !slices.Contains(types, e.Type):
		return fmt.Errorf("agent %q: type %q is not supported by this version; supported: %s", e.Name, e.Type, strings.Join(types, ", "))
	case (e.Type == TypeFunction || e.Type == TypeACP) && (len(e.Command) == 0 || e.Command[0] == ""):
		return fmt.Errorf("agent %q has no command", e.Name)
	}
	return nil
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

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// FromCommand is the entry of `-- COMMAND…`: a function agent named after its program.
func FromCommand(args []string) Entry {
	return Entry{Name: nameOf(args), Type: TypeFunction, Command: args, Stdin: StdinEnvelope, Output: OutputStdout, ResumeWhen: ResumeAny}
}

// ParseEntry reads the value of `agent`, or of one element of `agents`: an object, or a name from
// the registry. What is wrong with it is recorded in r.
func ParseEntry(r *input.Reader, n *input.Node) Entry {
	if n.Kind == input.String {
		e, ok := Registered(n.Text)
		if !ok {
			r.Errorf(n, "no agent has the name %q%s; the registry has %s; any other agent is an object with a \"type\"", n.Text, input.Suggest(n.Text, Names()), strings.Join(Names(), ", "))
			return Entry{Name: n.Text}
		}
		return e
	}
	f := r.Object(n)
	if n.Kind != input.Object {
		return Entry{}
	}
	var e Entry
	switch parseType(r, f) {
	case TypeFunction:
		e = parseFunction(r, f)
	case TypeACP:
		e = parseACP(r, f)
	case TypeOracle:
		e = Entry{Type: TypeOracle, Name: f.String("name", TypeOracle)}
		f.Ignore("acceptsFaults") // stored with every entry
	case TypeNop:
		e = Entry{Type: TypeNop, Name: f.String("name", TypeNop)}
		f.Ignore("acceptsFaults")
	default:
		return Entry{Name: f.String("name", ""), Type: f.String("type", "")}
	}
	checkEnv(r, f)
	f.Done()
	return e
}

func parseFunction(r *input.Reader, f *input.Fields) Entry {
	e := Entry{
		Type:          TypeFunction,
		Cwd:           f.String("cwd", ""),
		Env:           f.StringMap("env"),
		Stdin:         StdinMode(f.Enum("stdin", string(StdinEnvelope), string(StdinEnvelope), string(StdinInput))),
		Output:        OutputMode(f.Enum("output", string(OutputStdout), string(OutputStdout), string(OutputLastLine), string(OutputFile))),
		OutputFile:    f.String("outputFile", ""),
		ResumeWhen:    ResumeWhen(f.Enum("resumeWhen", string(ResumeAny), string(ResumeAny), string(ResumeAll))),
		AcceptsFaults: f.Bool("acceptsFaults", false),
		Timeout:       wait.Duration(f.Duration("timeout", 0)),
	}
	e.Command = parseCommand(r, f, f.Required("command", input.Array))
	if e.OutputFile != "" {
		n := f.Get("outputFile")
		if e.Output != OutputFile {
			r.Errorf(n, `has a meaning only with "output": "file"`)
		}
		if filepath.Base(e.OutputFile) != e.OutputFile || !filepath.IsLocal(e.OutputFile) || slices.Contains([]string{record.FileStdout, record.FileStderr, record.FileTrace}, e.OutputFile) {
			r.Errorf(n, "expected the name of a file, without a folder, that evalrun does not use itself; got %q", e.OutputFile)
		}
	}
	e.Name = f.String("name", nameOf(e.Command))
	return e
}

// parseCommand reads a program and its arguments; n is the value of "command", nil if there is
// none.
func parseCommand(r *input.Reader, f *input.Fields, n *input.Node) []string {
	if n == nil {
		return nil
	}
	if len(n.Items) == 0 || n.Items[0].Kind == input.String && n.Items[0].Text == "" {
		r.Errorf(n, `expected a program and its arguments, such as ["python3", "agent.py"]`)
	}
	return f.Strings("command")
}

// checkEnv checks the names of an entry's variables.
func checkEnv(r *input.Reader, f *input.Fields) {
	env := f.Get("env")
	if env == nil {
		return
	}
	for _, m := range env.Members {
		if !envName.MatchString(m.Key) {
			r.Errorf(m.Value, "%q is not a name that an environment variable can have", m.Key)
		}
		if strings.HasPrefix(m.Key, "EVALRUN_") {
			r.Errorf(m.Value, "variables that begin with EVALRUN_ are set by evalrun itself")
		}
	}
}

// parseType reads the type of an entry; empty if this version cannot run it.
func parseType(r *input.Reader, f *input.Fields) string {
	n := f.Required("type", input.String)
	switch {
	case n == nil:
		return ""
	case slices.Contains(types, n.Text):
		return n.Text
	case slices.Contains(laterTypes, n.Text):
		r.Errorf(n, "agents of type %q are not supported by this version; supported: %s", n.Text, strings.Join(types, ", "))
	default:
		r.Errorf(n, "unknown type %q; supported: %s%s", n.Text, strings.Join(types, ", "), input.Suggest(n.Text, types))
	}
	return ""
}

// nameOf is the name of an agent that has none: that of its program.
func nameOf(command []string) string {
	if len(command) == 0 {
		return ""
	}
	return filepath.Base(command[0])
}
