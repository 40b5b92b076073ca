// Package graphserver runs a graph that a server of LangGraph has: a rollout is a thread, and a
// segment a run of it. The graph's interrupts suspend the rollout, and so does a run that goes on for
// long. It knows nothing of sandboxes and workspaces.
package graphserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/durable"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
	"github.com/evalrun/evalrun/internal/wait/langgraph"
)

const (
	// workID is the interrupt of a run that goes on.
	workID = "langgraph-run"
	// breakpoint begins the id of a thread's stop before or after a node, which no interrupt has made.
	breakpoint = "breakpoint:"
	// fileThread names the thread of an attempt.
	fileThread = "thread"
)

// graphAgent starts the runs of segments.
type graphAgent struct {
	entry    agent.Entry
	settings *Settings
	opts     agent.Options
	server   langgraph.Server
	// pause waits between tries and looks.
	pause func(ctx context.Context, d time.Duration)
}

// New makes an agent from an entry of type langgraph-server.
func New(e agent.Entry, opts agent.Options) agent.Agent {
	s := agent.SettingsOf[Settings](e)
	g := &graphAgent{entry: e, settings: s, opts: opts, pause: agent.Pause}
	g.server = langgraph.Server{URL: s.URL, Headers: s.Headers, Caller: opts.Caller(nil)}
	return g
}

// Close implements Agent.
func (g *graphAgent) Close() error {
	g.server.HTTP.CloseIdleConnections()
	return nil
}

// Run implements Agent.
func (g *graphAgent) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	ctx, cancel := seg.Bounded(ctx, time.Duration(g.entry.Timeout))
	defer cancel()
	t := turn{graphAgent: g, seg: seg}
	out, err := t.run(ctx)
	return g.opts.Ended(ctx, g.entry.Name, out, err, t.giveUp)
}

// turn is a segment.
type turn struct {
	*graphAgent
	seg    agent.Segment
	thread string
	// running is the run that has been started; empty if none has.
	running string
}

// run runs the segment. Its error is a *httpcall.Error, a *fault.Fault, or evalrun's own.
func (t *turn) run(ctx context.Context) (agent.Outcome, error) {
	if err := t.findThread(); err != nil {
		return agent.Outcome{}, err
	}
	if payload, waited := t.seg.Resume[workID]; waited {
		if d := t.seg.Deliveries[workID]; d.Error != nil {
			return agent.Outcome{}, fault.New(fault.Job, d.Error.Message)
		}
		var run langgraph.Run
		if err := json.Unmarshal(payload, &run); err != nil {
			return agent.Outcome{}, fault.New(fault.Unresumable, "what arrived for the run is none")
		}
		return t.finish(ctx, run)
	}
	if t.seg.Number == 1 {
		if _, err := agent.Tried(ctx, t.pause, func() (struct{}, error) { return struct{}{}, t.server.NewThread(ctx, t.thread) }); err != nil {
			return agent.Outcome{}, err
		}
	}
	run, err := t.start(ctx)
	if err != nil {
		return agent.Outcome{}, err
	}
	t.running = run.ID
	run, unfinished, err := agent.Watched(ctx, t.pause, t.settings.SoftWait, run, langgraph.Run.GoesOn,
		func() (langgraph.Run, error) {
			return agent.Tried(ctx, t.pause, func() (langgraph.Run, error) { return t.server.Get(ctx, t.thread, t.running) })
		})
	switch {
	case err != nil:
		return agent.Outcome{}, err
	case unfinished:
		return t.suspend(run)
	}
	return t.finish(ctx, run)
}

// findThread finds the thread of the rollout. The first segment makes one whose id is that of its
// work, and so it is the same for the attempt after one that was broken off.
func (t *turn) findThread() error {
	t.thread = uuid.NewSHA1(uuid.NameSpaceURL, []byte("evalrun:"+t.seg.WorkKey())).String()
	if t.seg.Number > 1 {
		t.thread = ""
		for _, dir := range t.seg.Earlier {
			text, err := os.ReadFile(filepath.Join(dir, fileThread))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if err == nil {
				t.thread = string(text)
			}
		}
		if _, err := uuid.Parse(t.thread); err != nil {
			return fault.New(fault.Unresumable, "the files of earlier segments are gone: the thread is not known")
		}
	}
	return durable.WriteFile(filepath.Join(t.seg.Dir, fileThread), 0o600, func(w io.Writer) error {
		_, err := io.WriteString(w, t.thread)
		return err
	})
}

// start starts the run of the segment, unless it has been started by an attempt that was broken off
// or by a request whose answer was lost: the run has the key of the work in its metadata.
func (t *turn) start(ctx context.Context) (langgraph.Run, error) {
	what, err := t.what()
	if err != nil {
		return langgraph.Run{}, err
	}
	sent := t.seg.Attempt > 1
	return agent.Tried(ctx, t.pause, func() (langgraph.Run, error) {
		if sent {
			if run, found, err := t.server.Find(ctx, t.thread, t.seg.WorkKey()); found || err != nil {
				return run, err
			}
		}
		failpoint.Hit("graphserver.starting")
		run, err := t.server.Start(ctx, t.thread, t.settings.Assistant, t.seg.WorkKey(), what)
		var failed *httpcall.Error
		sent = sent || errors.As(err, &failed) && failed.Sent
		return run, err
	})
}

// what returns the input of the run, or the command that resumes the graph.
func (t *turn) what() (map[string]any, error) {
	if t.seg.Number == 1 {
		return map[string]any{"input": inputOf(t.seg.Input)}, nil
	}
	answers := map[string]json.RawMessage{}
	for id, payload := range t.seg.Resume {
		if strings.HasPrefix(id, breakpoint) {
			return map[string]any{"input": nil}, nil
		}
		answers[id] = payload
	}
	if len(answers) == 0 {
		return nil, fault.New(fault.Unresumable, "nothing arrived that the graph waits for")
	}
	return map[string]any{"command": map[string]any{"resume": answers}}, nil
}

// inputOf makes the input of a graph. A text is a message of the user.
func inputOf(given json.RawMessage) any {
	var text string
	if json.Unmarshal(given, &text) == nil && !jsonobj.IsNull(given) {
		return map[string]any{"messages": []any{map[string]string{"role": "user", "content": text}}}
	}
	if jsonobj.IsNull(given) {
		return map[string]any{}
	}
	return given
}

// suspend makes an interrupt of a run that goes on.
func (t *turn) suspend(run langgraph.Run) (agent.Outcome, error) {
	watch := langgraph.Watch{URL: t.settings.URL, Headers: t.settings.Headers, Thread: t.thread, Interval: t.settings.Interval}
	return agent.AtWork(workID, run.ID, wait.SourceLangGraph, watch,
		map[string]string{"what": "run", "title": t.entry.Name + " is at work", "thread": t.thread, "run": run.ID})
}

// finish makes the outcome of what the thread has come to with a run that has ended.
func (t *turn) finish(ctx context.Context, run langgraph.Run) (agent.Outcome, error) {
	state, err := agent.Tried(ctx, t.pause, func() (langgraph.State, error) { return t.server.State(ctx, t.thread) })
	if err != nil {
		return agent.Outcome{}, err
	}
	var waiting []json.RawMessage
	why := ""
	for _, task := range state.Tasks {
		if !jsonobj.IsNull(task.Error) {
			why += fmt.Sprintf("; %s: %s", task.Name, task.Error)
		}
		var list []json.RawMessage
		if jsonobj.IsNull(task.Result) && json.Unmarshal(task.Interrupts, &list) == nil {
			waiting = append(waiting, list...)
		}
	}
	switch {
	case run.Status != "success" && run.Status != "interrupted":
		return agent.Outcome{}, fault.Newf(fault.AgentError, "the run %s of thread %s ended with %s%s", run.ID, t.thread, run.Status, why)
	case len(waiting) == 0 && len(state.Next) > 0:
		stop, err := jsonobj.Marshal(map[string]any{"id": breakpoint + state.Next[0],
			"value": map[string]string{"breakpoint": state.Next[0]}})
		if err != nil {
			return agent.Outcome{}, err
		}
		waiting = append(waiting, stop)
	}
	return t.outcome(state.Values, waiting)
}

// outcome reads the values of a graph and what it waits for by the rules of function agents.
func (t *turn) outcome(values json.RawMessage, waiting []json.RawMessage) (agent.Outcome, error) {
	document := []byte(values)
	o, err := jsonobj.ParseObject(values)
	if err == nil {
		o = o.Delete("__interrupt__")
		if len(waiting) > 0 {
			list, err := jsonobj.Marshal(waiting)
			if err != nil {
				return agent.Outcome{}, err
			}
			o = o.Set("__interrupt__", list)
		} else if text, ok := lastAnswer(o.Get("messages")); ok && !o.Has("result") {
			o = o.Set("result", jsonobj.Quote(text))
		}
		document = o.JSON()
	}
	if int64(len(document)) > t.seg.OutputBytes {
		return agent.Outcome{}, fault.Newf(fault.OutputLimit, "the graph has values of more than %d bytes (limits.outputBytes)",
			t.seg.OutputBytes)
	}
	if err := os.WriteFile(filepath.Join(t.seg.Dir, record.FileOutput), []byte(t.opts.RedactText(string(document))), 0o600); err != nil {
		return agent.Outcome{}, err
	}
	out := function.Outcome(document)
	for _, in := range out.Interrupts {
		if in.ID == workID {
			return agent.Outcome{}, fault.Newf(fault.InvalidInterrupt, "the id %s of an interrupt is evalrun's own", workID)
		}
	}
	return function.Kept(t.seg, out, document)
}

// lastAnswer returns the text of the last message, if that is the model's.
func lastAnswer(messages json.RawMessage) (string, bool) {
	var list []struct {
		Type    string          `json:"type"`
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(messages, &list) != nil || len(list) == 0 || list[len(list)-1].Type != "ai" {
		return "", false
	}
	content := list[len(list)-1].Content
	var text string
	if json.Unmarshal(content, &text) == nil {
		return text, true
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return "", false
	}
	for _, part := range parts {
		text += part.Text
	}
	return text, true
}

// giveUp cancels the run of a segment that has ended before it, once.
func (t *turn) giveUp(ctx context.Context) {
	if t.running == "" {
		return
	}
	_ = t.server.Cancel(ctx, t.thread, t.running) // nobody waits for it any more
}
