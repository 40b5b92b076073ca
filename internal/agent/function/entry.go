package function

import (
	"path/filepath"
	"slices"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// Name is the type of these agents.
const Name = "function"

// Type is the type of programs that read a JSON document and print one.
var Type = agent.Type{
	Name: Name, Parse: parse, Settings: func() any { return new(Settings) }, Check: agent.CheckCommand, New: New,
	Content: agent.ContentFolder,
}

// Settings are the settings that only the entries of function agents have.
type Settings struct {
	// Stdin says what the agent reads, and Output where its document is.
	Stdin  StdinMode  `json:"stdin,omitempty"`
	Output OutputMode `json:"output,omitempty"`
	// OutputFile is the name of the file to which EVALRUN_OUTPUT_FILE points with Output "file",
	// for programs that want a certain extension. By default it is output.json.
	OutputFile string `json:"outputFile,omitempty"`
	// Keep says that the program is kept for further segments, and speaks the protocol of package
	// worker.
	Keep bool `json:"keep,omitempty"`
}

// StdinMode says what a function agent reads on stdin.
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

var outputModes = []string{string(OutputStdout), string(OutputLastLine), string(OutputFile)}

// FromCommand returns the entry of `-- COMMAND…`: a function agent named after its program.
func FromCommand(args []string) agent.Entry {
	return agent.Entry{
		Name: agent.NameOf(args), Type: Name, Command: args, ResumeWhen: agent.ResumeAny,
		Settings: &Settings{Stdin: StdinEnvelope, Output: OutputStdout},
	}
}

func parse(r *input.Reader, f *input.Fields) agent.Entry {
	s := &Settings{
		Stdin:      StdinMode(f.Enum("stdin", string(StdinEnvelope), string(StdinEnvelope), string(StdinInput))),
		Output:     OutputMode(f.Enum("output", string(OutputStdout), outputModes...)),
		OutputFile: f.String("outputFile", ""),
		Keep:       f.Bool("keep", false),
	}
	e := agent.Entry{
		Cwd:           f.String("cwd", ""),
		Env:           agent.ParseEnv(r, f),
		Settings:      s,
		ResumeWhen:    agent.ParseResumeWhen(f, agent.ResumeAny),
		AcceptsFaults: f.Bool("acceptsFaults", false),
		Timeout:       wait.Duration(f.Duration("timeout", 0)),
	}
	e.Command = agent.ParseCommand(r, f, f.Required("command", input.Array))
	if s.OutputFile != "" {
		n := f.Get("outputFile")
		if s.Output != OutputFile {
			r.Errorf(n, `has a meaning only with "output": "file"`)
		}
		own := []string{record.FileStdout, record.FileStderr, record.FileTrace}
		if filepath.Base(s.OutputFile) != s.OutputFile || !filepath.IsLocal(s.OutputFile) ||
			slices.Contains(own, s.OutputFile) {
			r.Errorf(n, "expected the name of a file, without a folder, that evalrun does not use itself; got %q", s.OutputFile)
		}
	}
	if s.Keep && (s.Stdin != StdinEnvelope || s.Output != OutputStdout) {
		r.Errorf(f.Get("keep"), `a program that is kept reads and writes by the protocol; leave out "stdin" and "output"`)
	}
	e.Name = f.String("name", agent.NameOf(e.Command))
	return e
}
