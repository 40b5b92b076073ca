// Package a2aagent runs an agent that speaks Agent2Agent: the input of a rollout is a message, and
// what becomes of it a task. A task that goes on for long, and one that asks for input, suspend the
// rollout. It knows nothing of sandboxes and workspaces.
package a2aagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/function"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/a2a"
	"github.com/evalrun/evalrun/internal/wait/httpcall"
)

// The ids of the interrupts: a task goes on, or the agent asks. The number of the segment follows
// the latter two, so that each question has an id of its own.
const (
	workID   = "a2a-task"
	inputID  = "a2a-input-"
	authorID = "a2a-auth-"
)

// longest is how long one request may take if nothing else limits it.
const longest = 24 * time.Hour

// a2aAgent sends the messages of segments.
type a2aAgent struct {
	entry    agent.Entry
	settings *Settings
	opts     agent.Options
	peer     a2a.Peer
	// pause waits between tries and looks.
	pause func(ctx context.Context, d time.Duration)
}

// New makes an agent from an entry of type a2a.
func New(e agent.Entry, opts agent.Options) agent.Agent {
	s := agent.SettingsOf[Settings](e)
	// An agent that does its work within a request may take long for it.
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone(), Timeout: longest}
	g := &a2aAgent{entry: e, settings: s, opts: opts, pause: agent.Pause}
	g.peer = a2a.Peer{Caller: opts.Caller(client), URL: s.URL, Headers: s.Headers}
	return g
}

// Close implements Agent.
func (g *a2aAgent) Close() error {
	g.peer.HTTP.CloseIdleConnections()
	return nil
}

// Run implements Agent.
func (g *a2aAgent) Run(ctx context.Context, seg agent.Segment) (agent.Outcome, error) {
	ctx, cancel := seg.Bounded(ctx, time.Duration(g.entry.Timeout))
	defer cancel()
	t := turn{a2aAgent: g, seg: seg}
	out, err := t.run(ctx)
	return g.opts.Ended(ctx, g.entry.Name, out, err, t.giveUp)
}

// turn is a segment.
type turn struct {
	*a2aAgent
	seg agent.Segment
	// card is that of the agent, read when it is needed first.
	card *a2a.Card
	// note is what the segment has done so far. before is that of the segment before it.
	note, before note
}

// run runs the segment. Its error is an *httpcall.Error, a *fault.Fault, or evalrun's own.
func (t *turn) run(ctx context.Context) (agent.Outcome, error) {
	var err error
	if t.note, t.before, err = readNotes(t.seg.Earlier, t.seg.WorkKey()); err != nil {
		return agent.Outcome{}, err
	}
	if task, waited := t.seg.Resume[workID]; waited {
		return t.settleRaw(ctx, task)
	}
	if err := t.meet(ctx); err != nil {
		return agent.Outcome{}, err
	}
	if t.seg.Number == 1 {
		return t.begin(ctx)
	}
	for id, payload := range t.seg.Resume {
		if strings.HasPrefix(id, inputID) || strings.HasPrefix(id, authorID) {
			return t.answer(ctx, id, payload)
		}
	}
	return agent.Outcome{}, fault.New(fault.Unresumable, "nothing arrived that the agent has asked for")
}

func (t *turn) settleRaw(ctx context.Context, raw json.RawMessage) (agent.Outcome, error) {
	task, err := a2a.ParseTask(raw)
	if err != nil {
		return agent.Outcome{}, err
	}
	return t.settle(ctx, task)
}

// meet reads the agent's card.
func (t *turn) meet(ctx context.Context) error {
	if t.card != nil {
		return nil
	}
	card, err := agent.Tried(ctx, t.pause, func() (a2a.Card, error) { return t.peer.Card(ctx) })
	if err != nil {
		return err
	}
	if address := card.Endpoint + card.Tenant; t.opts.RedactText(address) != address {
		return fault.New(fault.Protocol, "the agent's card has a secret in the address of its interface, which would be stored")
	}
	t.card = &card
	return nil
}

// begin sends the input, unless an attempt that was broken off has done so.
func (t *turn) begin(ctx context.Context) (agent.Outcome, error) {
	if t.note.TaskID != "" {
		return t.look(ctx, t.note.TaskID)
	}
	message := a2a.Sent{MessageID: t.seg.WorkKey(), ContextID: t.seg.WorkKey(), Parts: partsOf(t.seg.Input, t.card.JSON)}
	return t.send(ctx, message, "", func(ctx context.Context) (id string, known bool, err error) {
		return t.peer.Find(ctx, t.card.Interface, message.ContextID)
	})
}

// send sends a message. If it may have been received before, by a request that was broken off or of
// a process that is gone, find tells the task that has it.
// answers identifies the question that the message answers, if it answers one.
func (t *turn) send(ctx context.Context, m a2a.Sent, answers string,
	find func(ctx context.Context) (id string, known bool, err error)) (agent.Outcome, error) {
	m.Headers = map[string]string{"Traceparent": t.seg.Traceparent()}
	type sought struct {
		id    string
		known bool
	}
	for tries := 1; ; tries++ {
		if t.note.MessageID == m.MessageID {
			found, err := agent.Tried(ctx, t.pause, func() (s sought, err error) {
				s.id, s.known, err = find(ctx)
				return s, err
			})
			switch {
			case err != nil:
				return agent.Outcome{}, err
			case !found.known:
				return agent.Outcome{}, fault.New(fault.StartUnknown,
					"the agent may or may not have received the message before the connection or evalrun broke off, and cannot tell")
			case found.id != "":
				return t.look(ctx, found.id)
			}
		}
		t.note = note{MessageID: m.MessageID, TaskID: m.TaskID, Answers: answers}
		if err := t.note.write(t.seg.Dir); err != nil {
			return agent.Outcome{}, err
		}
		failpoint.Hit("a2aagent.sending")
		task, message, err := t.peer.Send(ctx, t.card.Interface, m)
		var failed *httpcall.Error
		switch {
		case err == nil && task == nil:
			return t.complete(message.Parts)
		case err == nil:
			failpoint.Hit("a2aagent.sent")
			return t.settle(ctx, *task)
		case !errors.As(err, &failed) || !failed.Temporary || tries == agent.MaxTries || ctx.Err() != nil:
			return agent.Outcome{}, err
		case !failed.Sent:
			t.note.MessageID = "" // nobody has it
		}
		t.pause(ctx, agent.BeforeTry(tries, failed.After))
	}
}

// answer answers what a task has asked, unless it has gone on in the meantime.
func (t *turn) answer(ctx context.Context, id string, payload json.RawMessage) (agent.Outcome, error) {
	if t.before.TaskID == "" {
		return agent.Outcome{}, fault.New(fault.Unresumable, "the files of the segment that has asked are gone: the task is not known")
	}
	task, err := t.get(ctx, t.before.TaskID)
	if err != nil {
		return agent.Outcome{}, err
	}
	message := a2a.Sent{MessageID: t.seg.WorkKey(), ContextID: task.ContextID, TaskID: task.ID}
	asked := cmp.Or(t.before.Asks, t.before.Answers) // the latter if an attempt to answer it has failed
	if task.Question() != asked || task.Has(message.MessageID) {
		t.note = note{Answers: asked}
		return t.settle(ctx, task)
	}
	message.Parts = partsOf(payload, t.card.JSON)
	if strings.HasPrefix(id, authorID) {
		message.Parts = partsOf(authorization(payload), false)
	}
	t.note = note{} // it still asks: nobody has the answer
	return t.send(ctx, message, asked, func(ctx context.Context) (string, bool, error) {
		now, err := t.peer.Get(ctx, t.card.Interface, task.ID)
		if err != nil || now.Question() == asked && !now.Has(message.MessageID) {
			return "", true, err
		}
		return task.ID, true, nil
	})
}

// get asks for a task.
func (t *turn) get(ctx context.Context, id string) (a2a.Task, error) {
	task, err := agent.Tried(ctx, t.pause, func() (a2a.Task, error) { return t.peer.Get(ctx, t.card.Interface, id) })
	if a2a.IsGone(err) {
		return task, fault.Newf(fault.JobLost, "the agent does not know its task %s any more: %v", id, err)
	}
	return task, err
}

// look goes on with a task that is known.
func (t *turn) look(ctx context.Context, id string) (agent.Outcome, error) {
	task, err := t.get(ctx, id)
	if err != nil {
		return agent.Outcome{}, err
	}
	return t.settle(ctx, task)
}

// settle waits a while for a task that goes on, and makes the outcome of what it has come to.
func (t *turn) settle(ctx context.Context, task a2a.Task) (agent.Outcome, error) {
	t.note.MessageID, t.note.TaskID = t.seg.WorkKey(), task.ID
	if err := t.note.write(t.seg.Dir); err != nil {
		return agent.Outcome{}, err
	}
	goesOn := func(task a2a.Task) bool { return task.GoesOn(t.note.Answers) }
	task, unfinished, err := agent.Watched(ctx, t.pause, t.settings.SoftWait, task, goesOn, func() (a2a.Task, error) {
		if err := t.meet(ctx); err != nil {
			return a2a.Task{}, err
		}
		return t.get(ctx, task.ID)
	})
	switch {
	case err != nil:
		return agent.Outcome{}, err
	case unfinished:
		return t.suspend(ctx, task)
	}
	var parts []a2a.Part
	if m := task.Status.Message; m != nil {
		parts = m.Parts
	}
	switch state := task.Status.State; state {
	case a2a.Completed:
		var made []a2a.Part
		for _, artifact := range task.Artifacts {
			made = append(made, artifact.Parts...)
		}
		if len(made) == 0 {
			made = parts
		}
		return t.complete(made)
	case a2a.InputRequired, a2a.AuthRequired:
		return t.ask(task)
	case a2a.Canceled:
		return agent.Outcome{}, fault.Newf(fault.Job, "the task %s was canceled at the agent%s", task.ID, reason(parts))
	default:
		return agent.Outcome{}, fault.Newf(fault.AgentError, "the task %s is %s%s", task.ID, state, reason(parts))
	}
}

func reason(parts []a2a.Part) string {
	if text := a2a.Texts(parts); text != "" {
		return ": " + text
	}
	return ""
}

// suspend makes an interrupt of a task that goes on.
func (t *turn) suspend(ctx context.Context, task a2a.Task) (agent.Outcome, error) {
	if err := t.meet(ctx); err != nil {
		return agent.Outcome{}, err
	}
	watch := a2a.Watch{URL: t.settings.URL, Headers: t.settings.Headers, Interface: t.card.Interface,
		Answered: t.note.Answers, Interval: t.settings.Interval}
	return agent.AtWork(workID, task.ID, wait.SourceA2A, watch,
		map[string]string{"what": "task", "title": t.entry.Name + " is at work", "task": task.ID})
}

// ask makes a question to a person of what a task asks.
func (t *turn) ask(task a2a.Task) (agent.Outcome, error) {
	t.note.Asks = task.Question()
	if err := t.note.write(t.seg.Dir); err != nil {
		return agent.Outcome{}, err
	}
	id, title := inputID, t.entry.Name+" asks for input"
	shown := map[string]any{"what": "input", "task": task.ID}
	if task.Status.State == a2a.AuthRequired {
		id, title, shown["what"] = authorID, t.entry.Name+" asks for an authorization", "authorization"
		shown["note"] = "Authorize the agent where it says, then approve. " +
			"Your answer is not sent, and would be stored: put no secret into it."
	}
	if m := task.Status.Message; m != nil {
		if text := a2a.Texts(m.Parts); text != "" {
			title = text
		}
		for _, p := range m.Parts {
			if p.Text == nil && len(p.Data) > 0 {
				shown["data"] = p.Data
			}
		}
	}
	shown["title"] = title
	payload, err := jsonobj.Marshal(shown)
	if err != nil {
		return agent.Outcome{}, err
	}
	return agent.Outcome{Interrupts: []wait.Interrupt{{ID: fmt.Sprint(id, t.seg.Number), Specs: []wait.Spec{{
		Type: wait.TypeTask, Name: string(wait.TypeTask), Payload: payload,
	}}}}}, nil
}

// complete makes the output of the parts that the agent has answered with.
func (t *turn) complete(parts []a2a.Part) (agent.Outcome, error) {
	document, err := documentOf(parts)
	if err != nil {
		return agent.Outcome{}, err
	}
	if int64(len(document)) > t.seg.OutputBytes {
		return agent.Outcome{}, fault.Newf(fault.OutputLimit, "the agent answered more than %d bytes (limits.outputBytes)",
			t.seg.OutputBytes)
	}
	if err := os.WriteFile(filepath.Join(t.seg.Dir, record.FileOutput), []byte(t.opts.RedactText(string(document))), 0o600); err != nil {
		return agent.Outcome{}, err
	}
	out := function.Outcome(document)
	if out.Interrupts != nil {
		return agent.Outcome{}, fault.New(fault.InvalidInterrupt,
			"the agent's artifact has a key __interrupt__; an A2A agent asks by the state input-required of its task")
	}
	return function.Kept(t.seg, out, document)
}

// giveUp cancels the task of a segment that has ended before it, once.
func (t *turn) giveUp(ctx context.Context) {
	if t.note.TaskID == "" || t.card == nil {
		return
	}
	_ = t.peer.Cancel(ctx, t.card.Interface, t.note.TaskID) // nobody waits for it any more
}
