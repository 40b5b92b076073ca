package probe

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/evalrun/evalrun/acp"
	"github.com/evalrun/evalrun/internal/peers/fakemcp"
	"github.com/evalrun/evalrun/internal/peers/fakemodel"
)

// way is a way to go on with a session in a new process.
type way struct {
	fact   string
	offers func(acp.Capabilities) bool
	again  func(*acp.Conn, context.Context, string, acp.SessionParams) (acp.Session, error)
}

var (
	byResume = way{FactResume, func(c acp.Capabilities) bool { return c.Resume }, (*acp.Conn).ResumeSession}
	byLoad   = way{FactLoad, func(c acp.Capabilities) bool { return c.LoadSession }, (*acp.Conn).LoadSession}
)

// continueSession checks whether a session survives the death of its process: after a turn the whole
// process group is killed, and a new process, with the same home and working directory and another
// server, goes on with the session.
func continueSession(w way) func(context.Context, *rig, *Check) error {
	return func(ctx context.Context, r *rig, c *Check) error {
		a, err := r.start(ctx)
		if err != nil {
			return err
		}
		offered := w.offers(a.initialized.Capabilities)
		c.add(FactAdvertised, whether(offered), timeless, "")
		if !offered {
			c.Verdict, c.Detail = No, notAdvertised
			return nil
		}
		l, err := a.lose(ctx)
		if err != nil {
			return err
		}
		if a, err = r.start(ctx); err != nil {
			return err
		}
		after, err := r.serve(l.server.declared.Transport, 0)
		if err != nil {
			return err
		}
		began := time.Now()
		_, err = w.again(a.conn, ctx, l.session, a.params([]*server{after}))
		took := time.Since(began)
		replayed := a.said()
		var refused *acp.AgentError
		if errors.As(err, &refused) {
			c.Verdict, c.Detail = No, refusal(err)
			c.add(w.fact, No, took, "%s", c.Detail)
			return nil
		} else if err != nil {
			return err
		}
		c.add(w.fact, Yes, took, "after a start of %v", a.started.Round(time.Millisecond))
		if err := errors.Join(a.configure(ctx, l.session), after.awaitTools(ctx)); err != nil {
			return err
		}
		c.addReplay(replayed, a.said())
		if err := c.addSecondTurn(ctx, a, l, after); err != nil {
			return err
		}
		c.Verdict = Yes
		if c.Detail = c.missing(FactHistory, FactNewServer, FactOldServer); c.Detail != "" {
			c.Verdict = "incomplete"
		}
		return nil
	}
}

// lost is a session whose process is gone.
type lost struct {
	session string
	// codeword was said in its first turn, in which a tool of server was called. log is the
	// server's log at the end.
	codeword string
	server   *server
	log      []fakemcp.Entry
}

// lose runs a turn and kills the process.
func (a *process) lose(ctx context.Context) (l lost, err error) {
	l.codeword = "petunia-" + rand.Text()
	t, _ := a.remote()
	if l.server, err = a.r.serve(t, 0); err != nil {
		return l, err
	}
	if l.session, _, err = a.open(ctx, l.server); err != nil {
		return l, err
	}
	if err := l.server.awaitTools(ctx); err != nil {
		return l, err
	}
	if _, err := a.prompt(ctx, l.session, "The codeword is "+l.codeword+". "+
		call(l.server.tool, "{}")+" [[SAY the first turn is over]]"); err != nil {
		return l, err
	}
	if err := a.kill(); err != nil {
		return l, err
	}
	if l.log, err = l.server.log(); err == nil && !has("tools/call", l.server.tool, true)(l.log) {
		err = errors.New("the tool was not called in the first turn")
	}
	return l, err
}

// addSecondTurn runs a turn in the new process, and adds facts about what the model is shown and
// which server is called.
func (c *Check) addSecondTurn(ctx context.Context, a *process, l lost, after *server) error {
	turn, err := a.prompt(ctx, l.session, call(after.tool, "{}")+" [[SAY the second turn is over]]")
	if err != nil {
		return err
	}
	c.addHistory(turn, []fragment{
		{"the codeword", said(l.codeword)}, {"the call", called(l.server.tool)},
		{"its result", func(r fakemodel.Request) bool { return holdsResult(r, l.server.marker) }},
		{"what was answered", said("the first turn is over")}, {"the new prompt", said(turn.word)},
	})
	log, err := after.log()
	if err != nil {
		return err
	}
	c.add(FactNewServer, whether(has("tools/call", after.tool, true)(log)), timeless, "it was asked for %s", methods(log))
	calls := len(slices.DeleteFunc(slices.Clone(log), func(e fakemcp.Entry) bool { return e.Method != "tools/call" || !e.Answered }))
	c.add(FactRepeated, whether(calls > 1), timeless, "%d calls in the second turn", calls)
	asked := a.asks()
	c.add(FactPermission, whether(len(asked) > 0), timeless, "%s", strings.Join(asked, ", "))
	if after.declared.Transport == onStdio {
		return nil // the old server is gone with its process
	}
	now, err := l.server.log()
	if err != nil {
		return err
	}
	further := arrived(now) - arrived(l.log)
	c.add(FactOldServer, whether(further == 0), timeless, "%d further requests", further)
	return nil
}

// arrived counts the requests that have come. The end of the answer to one is noticed only when its
// client is gone.
func arrived(log []fakemcp.Entry) (n int) {
	for _, e := range log {
		if !e.Answered {
			n++
		}
	}
	return n
}

// refusal returns the text of an agent's error, with the data beside its message.
func refusal(err error) string {
	var refused *acp.AgentError
	if errors.As(err, &refused) && len(refused.Data) > 0 {
		return fmt.Sprintf("%v %s", err, refused.Data)
	}
	return err.Error()
}

// kill kills the process group, as the end of a machine would, and waits until it is gone.
func (a *process) kill() error {
	if err := syscall.Kill(-a.process.PID(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the agent: %w", err)
	}
	return a.end(time.Minute)
}

// said counts the updates about messages and tool calls.
func (a *process) said() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, u := range a.updates {
		switch u.Kind {
		case acp.UpdateUserMessage, acp.UpdateAgentMessage, acp.UpdateAgentThought, acp.UpdateToolCall,
			acp.UpdateToolCallUpdate:
			n++
		}
	}
	return n
}

// addReplay adds a fact about when the history was replayed: n counts the updates before the
// answer, and all counts those before the prompt.
func (c *Check) addReplay(n, all int) {
	switch {
	case n > 0:
		c.add(FactReplay, "before the answer", timeless, "%d updates", n)
	case all > 0:
		c.add(FactReplay, "after the answer", timeless, "%d updates", all)
	default:
		c.add(FactReplay, No, timeless, "")
	}
}

// fragment is a part of the history.
type fragment struct {
	name string
	in   func(fakemodel.Request) bool
}

func said(text string) func(fakemodel.Request) bool {
	return func(r fakemodel.Request) bool {
		return slices.ContainsFunc(r.Messages, func(m fakemodel.Message) bool { return strings.Contains(m.Text, text) })
	}
}

func called(tool string) func(fakemodel.Request) bool {
	return func(r fakemodel.Request) bool {
		return slices.ContainsFunc(r.Messages, func(m fakemodel.Message) bool {
			return slices.ContainsFunc(m.Calls, func(c fakemodel.Call) bool { return strings.HasSuffix(c.Name, tool) })
		})
	}
}

// addHistory adds a fact: whether the first request of a turn has the whole history.
func (c *Check) addHistory(t *turn, parts []fragment) {
	requests := t.requests()
	if len(requests) == 0 {
		c.add(FactHistory, NA, timeless, notCalled)
		return
	}
	var lacks, holds []string
	for _, p := range parts {
		if p.in(requests[0]) {
			holds = append(holds, p.name)
		} else {
			lacks = append(lacks, p.name)
		}
	}
	if len(lacks) > 0 {
		c.add(FactHistory, No, timeless, "the model is not shown %s", strings.Join(lacks, ", "))
		return
	}
	c.add(FactHistory, Yes, timeless, "the model is shown %s", strings.Join(holds, ", "))
}
