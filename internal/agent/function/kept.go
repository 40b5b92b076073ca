package function

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/mock"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/sandbox"
	"github.com/evalrun/evalrun/internal/worker"
)

// kept runs segments on workers: programs that speak the protocol of package worker, each for one
// segment after another.
type kept struct {
	function
	pool    *worker.Pool
	command Command
}

// Command returns the command of a worker, whose first segment is given.
type Command func(ctx context.Context, seg agent.Segment) (sandbox.Command, *fault.Fault)

// NewKept makes an agent whose segments are run by workers. Without keep each segment has a worker
// of its own. A nil command starts that of the entry.
func NewKept(e agent.Entry, command Command, keep bool, opts agent.Options) agent.Agent {
	k := &kept{function: function{e, &Settings{}, opts}, pool: worker.New(!keep), command: command}
	if k.command == nil {
		k.command = func(_ context.Context, seg agent.Segment) (sandbox.Command, *fault.Fault) {
			return k.function.command(seg)
		}
	}
	return k
}

// Environ returns the environment in which an agent's worker starts.
func Environ(e agent.Entry, opts agent.Options, seg agent.Segment) ([]string, *fault.Fault) {
	return (&function{e, &Settings{}, opts}).environ(seg)
}

// request is the document that a worker reads: that of a function agent, and what else a process has
// from its start.
type request struct {
	envelope
	TraceFile string            `json:"traceFile"`
	Env       map[string]string `json:"env"`
	Mocks     *mock.Functions   `json:"mocks,omitempty"`
}

// Run implements Agent.
func (k *kept) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	ctx, cancel := seg.Bounded(ctx, time.Duration(k.entry.Timeout))
	defer cancel()
	if ctx.Err() != nil {
		return agent.Outcome{Fault: agent.CauseFault(ctx)}, nil
	}
	c := k.capture(seg)
	answer, err := k.pool.Do(ctx, worker.Job{
		Op: "segment", Body: k.request(seg), Stderr: c.stderr, Limit: c.limit,
		Start: func(ctx context.Context) (sandbox.Command, *fault.Fault) {
			command, bad := k.command(ctx, seg)
			command.Grace = k.opts.Grace
			return command, bad
		},
	})
	var refused *worker.StartError
	if errors.As(err, &refused) {
		answer.Fault, err = program.StartFault(refused.Command, refused.Err), nil
		if answer.Fault == nil {
			err = refused.Err
		}
	}
	if err = errors.Join(err, c.close()); err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", k.entry.Name, err)
	}
	if answer.Output != nil {
		text := append(bytes.Clone(answer.Output), '\n')
		if err := k.writeFile(filepath.Join(seg.Dir, record.FileOutput), bytes.NewReader(text)); err != nil {
			return agent.Outcome{}, fmt.Errorf("agent %q: %w", k.entry.Name, err)
		}
	}
	out := k.answered(ctx, answer)
	if out.Info, err = usage(seg, answer.Output); err != nil {
		return agent.Outcome{}, fmt.Errorf("agent %q: %w", k.entry.Name, err)
	}
	if played := playedFunctions(seg.Functions, answer.Mocks); played != nil {
		if out.Info == nil {
			out.Info = &record.Info{}
		}
		out.Info.Mocks = played
	}
	if out.Fault != nil {
		out.Fault.Message = k.opts.RedactText(out.Fault.Message) + c.stderr.StderrTail()
	}
	out.Files, err = k.keep(seg)
	return out, err
}

// Close implements Agent.
func (k *kept) Close() error { return k.pool.Close() }

func (k *kept) request(seg agent.Segment) request {
	env := map[string]string{sandbox.MarkerVar: seg.Marker, agent.TraceparentVar: seg.Traceparent()}
	for _, variable := range seg.Env {
		name, value, _ := strings.Cut(variable, "=")
		env[name] = value
	}
	trace := filepath.Join(seg.Dir, record.FileTrace)
	env[EnvTraceFile], env[EnvWorkspace] = trace, seg.Workspace
	return request{newEnvelope(seg), trace, env, seg.Functions}
}

// playedFunctions counts the calls of functions that a worker says it has played. Names that the strategy lacks
// are none of evalrun's.
func playedFunctions(f *mock.Functions, said *worker.Mocks) *record.Mocks {
	if f == nil || said == nil {
		return nil
	}
	out := record.Mocks{Calls: map[string]int{}, Unmatched: map[string]int{}}
	for _, name := range f.Names {
		if n := said.Calls[name]; n > 0 {
			out.Calls[f.Place+" "+name] = n
		}
		if n := said.Unmatched[name]; n > 0 {
			out.Unmatched[mock.FunctionKey(name)] = n
		}
	}
	return &out
}

// answered turns a worker's answer into the outcome of the segment.
func (k *kept) answered(ctx context.Context, a worker.Answer) agent.Outcome {
	switch {
	case ctx.Err() != nil && a.Output == nil && a.Error == nil:
		return agent.Outcome{Fault: agent.CauseFault(ctx)}
	case a.Fault != nil:
		return agent.Outcome{Fault: a.Fault}
	case a.Error != nil:
		return agent.Outcome{Fault: faultOf(a.Error)}
	}
	doc, bad := parseDocument(a.Output)
	if bad == nil {
		var err error
		if _, doc, err = record.SplitUsage(doc); err != nil {
			bad = fault.New(fault.InvalidOutput, err.Error())
		}
	}
	if bad != nil {
		return agent.Outcome{Fault: bad}
	}
	return interrupted(doc, StdinEnvelope)
}

// categories are the categories of the codes that a worker's errors have. Any other code says that
// the agent has failed.
var categories = map[string]fault.Category{
	"exit": fault.Exit, "invalid-output": fault.InvalidOutput, "too-deep": fault.TooDeep, "unresumable": fault.Unresumable,
	"start": fault.Start, "no-package": fault.NotRunnable,
}

// faultOf returns the fault of an error that a worker answers with.
func faultOf(e *worker.Error) *fault.Fault {
	message := e.Message
	switch e.Code {
	case "exit":
		message = "the agent ended itself: " + e.Type + ": " + message
	case "exception":
		message = "the agent raised " + e.Type + ": " + message
	}
	category, ok := categories[e.Code]
	if !ok {
		category = fault.AgentError
	}
	return fault.New(category, message)
}
