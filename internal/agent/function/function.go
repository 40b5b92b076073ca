// Package function runs an agent that is a program: a JSON document on stdin, another on stdout,
// once for each segment. It knows nothing of sandboxes and protocols: the program runs as its
// owner's own.
package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/wait"
)

// The environment variables that a function agent gets, beside sandbox.MarkerVar.
const (
	EnvTraceFile  = "EVALRUN_TRACE_FILE"  // the file where it may leave OpenTelemetry spans, one JSON object a line
	EnvOutputFile = "EVALRUN_OUTPUT_FILE" // the file where it leaves its document, with "output": "file" only
	EnvWorkspace  = "EVALRUN_WORKSPACE"   // the rollout's folder, which survives suspension
)

// function runs a program once for each segment: a JSON document on stdin, another on stdout.
type function struct {
	entry    agent.Entry
	settings *Settings
	opts     agent.Options
}

// New makes an agent from an entry of type function.
func New(e agent.Entry, opts agent.Options) agent.Agent {
	if e.Settings.(*Settings).Keep {
		return NewKept(e, nil, !e.Fresh, opts)
	}
	return &function{e, e.Settings.(*Settings), opts}
}

// envelope is the document that the program reads.
type envelope struct {
	Input      json.RawMessage            `json:"input"`
	Resume     map[string]json.RawMessage `json:"resume"`
	Deliveries map[string]agent.Delivery  `json:"deliveries"`
	RolloutID  string                     `json:"rolloutId"`
	// ThreadID is RolloutID under the name that LangGraph programs know.
	ThreadID  string `json:"threadId"`
	Workspace string `json:"workspace"`
}

func newEnvelope(seg agent.Segment) envelope {
	return envelope{seg.Input, seg.Resume, seg.Deliveries, seg.RolloutID, seg.RolloutID, seg.Workspace}
}

// Run implements Agent.
func (f *function) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	ctx, cancel := seg.Bounded(ctx, time.Duration(f.entry.Timeout))
	defer cancel()
	command, bad := f.command(seg)
	if bad != nil {
		return agent.Outcome{Fault: bad}, nil
	}
	stdin, bad, err := f.stdin(seg)
	if bad != nil || err != nil {
		return agent.Outcome{Fault: bad}, err
	}
	if ctx.Err() != nil {
		return agent.Outcome{Fault: agent.CauseFault(ctx)}, nil
	}

	c := f.capture(seg)
	command.Stdin, command.Stdout, command.Stderr = stdin, c.stdout, c.stderr
	process, err := sandbox.Start(command)
	if err != nil {
		if bad := program.StartFault(command, err); bad != nil {
			return agent.Outcome{Fault: bad}, nil
		}
		return agent.Outcome{}, err
	}
	exit, err := process.Wait(ctx)
	if err := errors.Join(err, c.close()); err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", f.entry.Name, err)
	}

	document, missing, err := f.document(seg, c)
	if err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", f.entry.Name, err)
	}
	out := f.outcome(ctx, exit, c, document, missing)
	if out.Info, err = usage(seg, document); err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", f.entry.Name, err)
	}
	if out.Fault != nil {
		out.Fault.Message = f.opts.RedactText(out.Fault.Message) + c.stderr.StderrTail()
	}
	out.Files, err = f.keep(seg)
	return out, err
}

// Close implements Agent. Nothing is kept.
func (f *function) Close() error { return nil }

// outcome turns the end of the process and its document into the outcome of the segment. missing
// says why there is no document.
func (f *function) outcome(ctx context.Context, exit sandbox.Exit, c *capture, document []byte,
	missing string) agent.Outcome {
	switch {
	case errors.Is(exit.Ended, errOutputLimit) || int64(len(document)) > c.limit:
		return agent.Outcome{Fault: fault.Newf(fault.OutputLimit, "the agent printed more than %d bytes (limits.outputBytes)",
			c.limit)}
	case exit.Ended != nil:
		return agent.Outcome{Fault: agent.CauseFault(ctx)}
	case !exit.State.Success():
		return agent.Outcome{Fault: fault.New(fault.Exit, "the agent ended with "+exit.State.String())}
	case missing != "":
		return agent.Outcome{Fault: fault.New(fault.NoOutput, missing)}
	}
	return outcomeOf(document, f.settings.Stdin)
}

// Outcome returns the outcome of a segment whose agent has answered with a document.
func Outcome(document []byte) agent.Outcome { return outcomeOf(document, StdinEnvelope) }

func outcomeOf(document []byte, stdin StdinMode) agent.Outcome {
	doc, bad := parseDocument(document)
	if bad != nil {
		return agent.Outcome{Fault: bad}
	}
	_, doc, err := record.SplitUsage(doc)
	if err != nil {
		return agent.Outcome{Fault: fault.New(fault.InvalidOutput, err.Error())}
	}
	return interrupted(doc, stdin)
}

// Kept adds to the outcome of a document that is in output.json the usage of models and that file.
func Kept(seg agent.Segment, out agent.Outcome, document []byte) (agent.Outcome, error) {
	var err error
	if out.Info, err = usage(seg, document); err != nil {
		return agent.Outcome{}, err
	}
	out.Files, err = record.FilesIn(seg.Dir, record.FileOutput)
	return out, err
}

// usage reports the segment's usage of models, also if the segment has failed; nil if it is not
// known.
func usage(seg agent.Segment, document []byte) (*record.Info, error) {
	used, source, err := record.UsageOf(seg.Dir, document, seg.Earlier)
	if used == nil || err != nil {
		return nil, err
	}
	return &record.Info{Usage: used, UsageSource: source}, nil
}

// document returns what should be the agent's document, having written it to output.json, or says
// why there is none.
func (f *function) document(seg agent.Segment, c *capture) (data []byte, missing string, err error) {
	switch f.settings.Output {
	case OutputLastLine:
		data, missing = lastLine(c.stdout.buf), "the agent printed nothing on stdout"
	case OutputFile:
		missing = fmt.Sprintf("the agent did not write the file that %s names", EnvOutputFile)
		if data, err = record.ReadRegular(f.outputFile(seg), c.limit+1); err != nil {
			return nil, "", err
		}
		if len(data) > 0 && f.opts.Redact == nil && f.settings.OutputFile == "" {
			return data, "", nil // the file is where it belongs
		}
	default:
		data, missing = c.stdout.buf, "the agent printed nothing on stdout"
	}
	if len(data) == 0 {
		return nil, missing, nil
	}
	return data, "", f.writeFile(filepath.Join(seg.Dir, record.FileOutput), bytes.NewReader(data))
}

// interrupted looks for interrupts in a document. LangGraph prints an empty list or null where
// there are none.
func interrupted(doc json.RawMessage, stdin StdinMode) agent.Outcome {
	value, rest, found := splitInterrupt(doc)
	if !found {
		return agent.Outcome{Output: doc}
	}
	interrupts, err := []wait.Interrupt(nil), error(nil)
	if !isEmpty(value) {
		interrupts, err = wait.ParseInterrupts(value)
	}
	switch {
	case err != nil:
		return agent.Outcome{Fault: fault.New(fault.InvalidInterrupt, interruptKey+": "+err.Error())}
	case len(interrupts) == 0:
		return agent.Outcome{Output: rest}
	case stdin == StdinInput:
		return agent.Outcome{Fault: fault.New(fault.Unresumable,
			`the agent suspended, but with "stdin": "input" it could never read what it waits for; use "stdin": "envelope"`)}
	}
	return agent.Outcome{Interrupts: interrupts}
}

func (f *function) stdin(seg agent.Segment) ([]byte, *fault.Fault, error) {
	if f.settings.Stdin == StdinInput {
		if seg.Resume != nil {
			return nil, fault.New(fault.Unresumable, `an agent with "stdin": "input" cannot be resumed`), nil
		}
		return seg.Input, nil, nil
	}
	b, err := Envelope(seg)
	if err != nil {
		return nil, nil, fmt.Errorf("agent %q: input or payload: %w", f.entry.Name, err)
	}
	return b, nil, nil
}

// Envelope returns the document that an agent reads for a segment.
func Envelope(seg agent.Segment) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(newEnvelope(seg))
	return b.Bytes(), err
}

func (f *function) outputFile(seg agent.Segment) string {
	if f.settings.OutputFile != "" {
		return filepath.Join(seg.Dir, f.settings.OutputFile)
	}
	return filepath.Join(seg.Dir, record.FileOutput)
}

// keep lists the files of the segment, the agent's own trace among them.
func (f *function) keep(seg agent.Segment) ([]string, error) {
	trace := filepath.Join(seg.Dir, record.FileTrace)
	if f.opts.Redact != nil {
		if err := f.redactFile(trace); err != nil {
			return nil, err
		}
	}
	return record.FilesIn(seg.Dir, record.FileOutput, record.FileStdout, record.FileStderr, record.FileTrace)
}

// command returns the process of a segment, without its streams.
func (f *function) command(seg agent.Segment) (sandbox.Command, *fault.Fault) {
	env, bad := f.environ(seg)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	dir := f.entry.Cwd
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(seg.BaseDir, dir)
	}
	if info, err := os.Stat(dir); err != nil {
		return sandbox.Command{}, fault.Newf(fault.Start, "the agent's working directory: %v", err)
	} else if !info.IsDir() {
		return sandbox.Command{}, fault.Newf(fault.Start, "the agent's working directory: %s is not a directory", dir)
	}
	path, bad := program.Find(f.entry.Command[0], dir, env)
	if bad != nil {
		return sandbox.Command{}, bad
	}
	return sandbox.Command{Marker: seg.Marker, Path: path, Args: f.entry.Command, Dir: dir, Env: env, Grace: f.opts.Grace,
		Ended: seg.Ended}, nil
}

// environ returns evalrun's environment without evalrun's own variables, with the rollout's trace
// parent. Then come the variables of the entry, those of the segment, and those that tell the agent
// where its files are. A later value overrides an earlier one.
func (f *function) environ(seg agent.Segment) ([]string, *fault.Fault) {
	env := append(sandbox.Environ(os.Environ()), agent.TraceparentVar+"="+seg.Traceparent())
	for _, name := range slices.Sorted(maps.Keys(f.entry.Env)) {
		value, unknown := f.opts.Expand(f.entry.Env[name])
		if unknown != "" {
			return nil, fault.Newf(fault.Start, "the agent's environment variable %s needs ${%s}, which is not set",
				name, unknown)
		}
		env = append(env, name+"="+value)
	}
	env = append(env, seg.Env...)
	env = append(env, EnvTraceFile+"="+filepath.Join(seg.Dir, record.FileTrace), EnvWorkspace+"="+seg.Workspace)
	if f.settings.Output == OutputFile {
		env = append(env, EnvOutputFile+"="+f.outputFile(seg))
	}
	return env, nil
}
