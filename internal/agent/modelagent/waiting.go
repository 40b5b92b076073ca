package modelagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// mustApprove reports whether a person has to allow a call of a tool.
func (l *loop) mustApprove(name string) bool {
	own := ""
	if t := l.tool(name); t != nil {
		own = t.Tool
	}
	return slices.ContainsFunc(l.a.settings.Approve, func(pattern string) bool {
		return fits(pattern, name) || own != "" && fits(pattern, own)
	})
}

// fits reports whether a pattern matches the name of a tool. A name is no path: * stands for / too.
func fits(pattern, name string) bool {
	plain := func(s string) string { return strings.ReplaceAll(s, "/", "\x00") }
	matches, _ := path.Match(plain(pattern), plain(name)) // the pattern was checked
	return matches
}

// checkApprove refuses a pattern that fits none of the tools: a call would go through unasked that a
// person was to allow.
func (l *loop) checkApprove() *fault.Fault {
	tools := l.question.tools
	if l.a.settings.has(bashTool) {
		tools = append([]mcpTool{{Name: bashTool, Tool: bashTool}}, tools...)
	}
	var names []string
	for _, t := range tools {
		names = append(names, t.Name)
	}
	for _, pattern := range l.a.settings.Approve {
		if !slices.ContainsFunc(tools, func(t mcpTool) bool { return fits(pattern, t.Name) || fits(pattern, t.Tool) }) {
			return fault.Newf(fault.MCP, "approve: %q fits none of the tools, so nobody would be asked: %s", pattern,
				strings.Join(names, ", "))
		}
	}
	return nil
}

// tool returns the tool of a server that the model calls by a name; nil if there is none.
func (l *loop) tool(name string) *mcpTool {
	i := slices.IndexFunc(l.question.tools, func(t mcpTool) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &l.question.tools[i]
}

// wait makes durable that a call waits.
func (l *loop) wait(n int, w *waiting) error {
	if err := l.journal.add(step{Step: stepWait, Call: n, Wait: w}); err != nil {
		return err
	}
	w.fresh = true
	l.waiting[n] = w
	failpoint.Hit("model.waits")
	return nil
}

// waitForWork makes a call wait for what it has started.
func (l *loop) waitForWork(n int, w *wait.Work) error {
	out := &waiting{Interrupt: "call-" + w.CallID, CallID: w.CallID}
	if w.Input != nil {
		out.Asked = &wait.Input{Requests: json.RawMessage(l.a.opts.RedactText(string(w.Input.Requests)))}
		if !json.Valid(out.Asked.Requests) {
			out.Asked.Requests = nil
		}
	}
	return l.wait(n, out)
}

// suspend ends the segment: the rollout waits for all calls that have no result.
func (l *loop) suspend(ctx context.Context) (agent.Outcome, error) {
	var interrupts []wait.Interrupt
	known := map[string]bool{}
	for n, c := range l.answer.Calls {
		w := l.waiting[n]
		if w == nil || known[w.Interrupt] { // equal calls wait for the same work
			continue
		}
		known[w.Interrupt] = true
		var spec wait.Spec
		if w.CallID == "" {
			spec = l.permission(c)
		} else {
			work, f := l.work(ctx, w)
			if f != nil {
				return agent.Outcome{Fault: f}, nil
			}
			if work.Input == nil {
				work.Input = w.Asked
			}
			var err error
			if spec, err = work.Spec(); err != nil {
				return agent.Outcome{Fault: fault.New(fault.InvalidInterrupt, err.Error())}, nil
			}
		}
		interrupts = append(interrupts, wait.Interrupt{ID: w.Interrupt, Specs: []wait.Spec{spec}})
		l.trail.Add(record.EventSuspended, "", "", object{"interrupt": w.Interrupt, "tool": c.Name, "toolCallId": c.ID})
	}
	err := l.journal.add(step{Step: stepSuspend, Segment: l.seg.Number})
	failpoint.Hit("model.suspends")
	return agent.Outcome{Interrupts: interrupts, Batched: l.asks}, err
}

// permission is the question whether a call is allowed.
func (l *loop) permission(c call) wait.Spec {
	asked := object{"what": "permission", "kind": "execute", "title": c.Name + " " + model.Short(c.Arguments),
		"input": asJSON(c.Arguments), "tool": c.Name}
	if t := l.tool(c.Name); t != nil {
		asked["kind"], asked["server"], asked["tool"] = t.Server, t.Server, t.Tool
	} else if command, _ := commandOf(c); command != "" {
		asked["title"] = model.Short(command)
	}
	payload, _ := jsonobj.Marshal(asked) // its values are JSON and strings
	return wait.Spec{Type: wait.TypeTask, Name: string(wait.TypeTask), Payload: payload}
}

// work reads what a call has started.
func (l *loop) work(ctx context.Context, w *waiting) (*wait.Work, *fault.Fault) {
	if l.seg.Gateway == nil {
		return nil, fault.New(fault.NotRunnable, "a model reaches MCP servers through the gateway only; leave out --mcp direct")
	}
	work, err := l.seg.Gateway.Ledger.Work(context.WithoutCancel(ctx), w.CallID)
	if err == nil && work == nil {
		err = errors.New("nothing is recorded")
	}
	if err != nil {
		return nil, fault.Newf(fault.MCP, "what the call %s has started cannot be read: %v", w.CallID, err)
	}
	return work, nil
}

// arrive gives the calls that wait what has arrived for them.
func (l *loop) arrive(ctx context.Context) (*fault.Fault, error) {
	if l.answer == nil {
		return nil, nil
	}
	arrived := false
	for n := range len(l.answer.Calls) {
		w := l.waiting[n]
		if w == nil || w.fresh {
			continue
		}
		d, ok := l.seg.Deliveries[w.Interrupt]
		if !ok {
			continue
		}
		if !arrived {
			l.trail.Add(record.EventResumed, "", "", l.seg.Deliveries)
			arrived = true
		}
		var f *fault.Fault
		var err error
		if w.CallID == "" {
			err = l.decided(ctx, n, d)
		} else {
			f, err = l.workDone(ctx, n, w, d)
		}
		if f != nil || err != nil {
			return f, err
		}
		if l.answer == nil { // the last one had its result
			return nil, nil
		}
	}
	return nil, nil
}

// decided takes a person's decision on a call. A permission that an attempt that was broken off has
// used is asked for again.
func (l *loop) decided(ctx context.Context, n int, d agent.Delivery) error {
	decision := toolserver.Decide(d)
	if !decision.Allowed {
		text := "not run: a person has not allowed this call"
		if decision.Said != "" {
			text += ": " + decision.Said
		}
		return l.store(ctx, n, &result{Text: l.a.opts.RedactText(text), Failed: true, StartedAt: l.a.opts.Now().UTC()})
	}
	if l.seg.Consume != nil {
		if fresh, err := l.seg.Consume(context.WithoutCancel(ctx), d.TriggerID); err != nil || !fresh {
			return err
		}
	}
	l.approve(n)
	return l.journal.add(step{Step: stepApproved, Call: n})
}

// approve notes that a call is allowed.
func (l *loop) approve(n int) {
	delete(l.waiting, n)
	l.approved[n] = true
}

// workDone takes what was delivered for the work of a call. Equal calls wait for the same work, and
// get what the first of them has got: a question is answered once.
func (l *loop) workDone(ctx context.Context, n int, w *waiting, d agent.Delivery) (*fault.Fault, error) {
	for other := range l.answer.Calls {
		if r := l.results[other]; r != nil && r.CallID == w.CallID {
			same := *r
			return nil, l.store(ctx, n, &same)
		}
		if next := l.waiting[other]; next != nil && next.fresh && next.CallID == w.CallID {
			same := *next
			return nil, l.wait(n, &same)
		}
	}
	work, f := l.work(ctx, w)
	if f != nil {
		return f, nil
	}
	var endpoint = l.servers.endpoint(work.Server)
	raw, again, f := toolserver.Result(ctx, work, w.Asked, d, endpoint, l.seg.Gateway.Jobs, fetchLimit)
	switch {
	case f != nil:
		return f, nil
	case again:
		return nil, l.waitForWork(n, work)
	}
	failpoint.Hit("model.arrived")
	return nil, l.store(ctx, n, l.resultOf(raw, w.CallID, &result{StartedAt: l.a.opts.Now().UTC()}))
}

// resultOf completes the result of a call with what its tool has answered.
func (l *loop) resultOf(raw json.RawMessage, callID string, r *result) *result {
	text, failed := textOf(raw)
	kept := &excerpt{half: l.a.settings.commandOutput() / 2}
	_, _ = kept.Write([]byte(l.a.opts.RedactText(text)))
	r.Text, r.Failed, r.CallID = cmp.Or(kept.text(), "[no output]"), failed, callID
	return r
}

// callServer calls a tool of a server. A call that waits has no result yet.
func (l *loop) callServer(ctx context.Context, n int, t mcpTool, arguments string) error {
	started := l.a.opts.Now()
	got, err := l.servers.call(ctx, t, arguments)
	switch {
	case ctx.Err() != nil:
		return nil // it was ended in the middle; the ledger says what whoever goes on may do
	case err != nil:
		return err
	case got.left != nil:
		return l.waitForWork(n, got.left)
	}
	failpoint.Hit("model.ran")
	took := l.a.opts.Now().Sub(started).Milliseconds()
	return l.store(ctx, n, l.resultOf(got.result, got.callID, &result{StartedAt: started.UTC(), Ms: took, Mock: got.mock}))
}

// nextCall returns the first call of the answer that has no result and waits for nothing; -1 if there
// is none.
func (l *loop) nextCall() int {
	for n, r := range l.results {
		if r == nil && l.waiting[n] == nil {
			return n
		}
	}
	return -1
}

// noTool says that there is no tool of a name.
func (l *loop) noTool(name string) string {
	var names []string
	for _, t := range l.question.offered() {
		names = append(names, t.name)
	}
	return fmt.Sprintf("not run: there is no tool %q; there are: %v", model.Short(name), names)
}
