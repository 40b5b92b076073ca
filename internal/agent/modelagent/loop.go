package modelagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/program"
	"github.com/evalrun/evalrun/internal/failpoint"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/model"
	"github.com/evalrun/evalrun/internal/record"
)

const (
	// mostCalls is how many calls of one answer are run. The others are answered, too.
	mostCalls = 100
	// mostWrong is how many answers in a row may have only calls that are wrong.
	mostWrong = 3

	defaultTurns          = 250
	defaultCommandTimeout = 5 * time.Minute
	defaultCommandOutput  = 10_000
)

// bashTool is the tool that runs commands.
const bashTool = "bash"

const bashDescription = "Run a command with bash. Each command begins in the working directory, in a shell of its " +
	"own: cd and exports do not last. It has no terminal and no input."

var bashSchema = json.RawMessage(
	`{"type":"object","properties":{"command":{"type":"string","description":"The command"}},"required":["command"]}`)

// fileCommand has the output of the command that runs, or was the last to run.
const fileCommand = "command.log"

// loop is a conversation with tools. Each step is stored before the next one begins.
type loop struct {
	*segment
	journal *journal
	servers *servers
	shell   *shell // nil if it has ended and cannot be started again
	// answer is the last answer, with the results of its calls as far as they have come; nil if the
	// model is to be asked. waiting has the calls that wait, and approved those that a person has
	// allowed.
	answer   *answered
	results  []*result
	waiting  map[int]*waiting
	approved map[int]bool
	// begins has where the items of each answer begin, and first where those of the first did. left is
	// how many answers are left out.
	begins      []int
	first, left int
	// summarising is how many answers a summary is to be written of, which is what the model is asked
	// for next; 0 if it is asked to go on.
	summarising int
	// ended is the limit that has ended an attempt that was killed before that was committed.
	ended *fault.Fault
	// full says that the next request would be longer than contextTokens.
	full bool
	// recorded says that the trajectory of an earlier segment has what is read from the journal.
	recorded bool
	// counted says that an earlier attempt has counted what the user says in the journal.
	counted bool
	// asks counts the answers that were asked for in batches. asked says that the next one is among them.
	asks  int
	asked bool
	// turns counts the answers, wrong those at the end that had only wrong calls.
	turns, wrong int
	ran          bool
	last         string // the last text of the model
	// user is the side of a user who is played; nil if there is none. said is what both have said.
	user *conversation
	said []Message
}

// runLoop asks the model, and runs what it calls, until an answer calls nothing.
func (s *segment) runLoop(ctx context.Context) (out agent.Outcome, err error) {
	hasTools := len(s.a.settings.Tools) > 0
	if hasTools && s.seg.Sandbox == nil {
		return agent.Outcome{Fault: fault.New(fault.NotRunnable, "tools need a sandbox, and there is none")}, nil
	}
	l := &loop{segment: s}
	var f *fault.Fault
	if s.a.settings.User != nil {
		if l.user, f = s.newConversation(); f != nil {
			return agent.Outcome{Fault: f}, nil
		}
		l.said = slices.Clone(s.opening)
	}
	if l.servers, f, err = s.openServers(); f != nil || err != nil {
		return agent.Outcome{Fault: f}, err
	}
	defer func() { err = errors.Join(err, l.servers.close(s.info)) }()
	if hasTools {
		s.info.Isolation = s.seg.Sandbox.Config.Isolation
		if l.shell, f, err = s.startShell(ctx); f != nil || err != nil {
			return agent.Outcome{Fault: f}, err
		}
	}
	defer func() { err = errors.Join(err, l.closeShell()) }()
	f, err = l.open(ctx)
	if l.journal != nil {
		defer func() { err = errors.Join(err, l.journal.close()) }()
	}
	if err != nil || l.journal == nil {
		return agent.Outcome{Fault: f}, err
	}
	if out.Fault = f; f == nil {
		if out, err = l.converse(ctx); err != nil {
			return out, err
		}
	}
	if f := out.Fault; f != nil && f.Category == fault.Timeout {
		out = l.limited(f) // the verifier sees what was done until then
	}
	if hasFailed(out) {
		err = l.journal.add(step{Step: stepEnd, Limit: out.Limit})
		failpoint.Hit("model.ended")
	} else if out.Fault != nil && l.info.User != nil { // another attempt goes on from here
		err = l.journal.add(step{Step: stepCounted})
	}
	return out, err
}

// hasFailed reports whether the end of a conversation is marked. After a fault another attempt of the
// segment, if there is one, begins anew. An end by a limit, or by an answer, is found again by the next
// attempt: until it is committed this process may be killed, and then nothing is asked for again.
func hasFailed(out agent.Outcome) bool {
	f := cmp.Or(out.Fault, out.Limit)
	return f != nil && f.Category != fault.Interrupted && f.Category != fault.Model
}

// open goes on with the conversation of an earlier attempt or segment, or begins one.
func (l *loop) open(ctx context.Context) (f *fault.Fault, err error) {
	var before []step
	dir := l.seg.GoesOnFrom
	if dir == "" && len(l.seg.History) > 0 {
		dir = l.seg.History[len(l.seg.History)-1]
	}
	if dir != "" {
		if before, err = readJournal(dir); err != nil {
			return nil, err
		}
		if before == nil {
			return fault.New(fault.Unresumable, "the conversation is not where it was: "+FileJournal+" is missing"), nil
		}
	} else {
		if l.question.tools, f = l.servers.list(ctx, l.info); f == nil {
			f = l.checkApprove()
		}
		if f != nil {
			return f, nil
		}
	}
	if l.journal, err = openJournal(l.seg.Dir, before); err != nil {
		return nil, err
	}
	if before == nil {
		for i := range l.question.tools {
			l.question.tools[i].redact(l.a.opts.RedactText)
		}
		failpoint.Hit("model.begins")
		return nil, l.journal.add(step{Step: stepBegin, System: l.question.system, Items: l.question.items,
			FileBytes: l.question.fileBytes, Tools: l.question.tools})
	}
	if err := l.replay(ctx, before); err != nil {
		return nil, err
	}
	return l.arrive(ctx)
}

// replay makes the conversation of its steps. Only steps of this segment are told: of those before,
// the segments before have told.
func (l *loop) replay(ctx context.Context, steps []step) error {
	earlier, counted := -1, -1
	for i, one := range steps {
		switch {
		case one.Step == stepSuspend && one.Segment < l.seg.Number:
			earlier = i
		case one.Step == stepCounted:
			counted = i
		}
	}
	open := -1 // the call that may have been run
	for i, one := range steps {
		l.recorded, l.counted = i <= earlier, i <= max(earlier, counted)
		switch one.Step {
		case stepBegin:
			l.question.system, l.question.items, l.question.tools = one.System, one.Items, one.Tools
			l.question.fileBytes = one.FileBytes
		case stepAsk:
			l.asks, l.asked = l.asks+1, true
		case stepAnswer:
			l.take(one.Answer, one.Items)
		case stepIntent:
			open = one.Call
		case stepWait:
			open = -1
			one.Wait.fresh = !l.recorded
			l.waiting[one.Call] = one.Wait
		case stepApproved:
			l.approve(one.Call)
		case stepUser:
			l.hearUser(one)
		case stepCut:
			l.cut(one.Answers, one.Summary)
		case stepSummarise:
			l.summarise(one.Answers)
		case stepEnd:
			l.ended = one.Limit
		case stepResult:
			open = -1
			if t := l.tool(l.answer.Calls[one.Call].Name); t != nil && one.Result.Mock != "" && !l.recorded {
				l.seg.Mocks.Repeat(t.Server, t.Tool, one.Result.Mock)
			}
			if err := l.settle(context.WithoutCancel(ctx), one.Call, one.Result); err != nil {
				return err
			}
		}
	}
	l.recorded, l.counted = false, false
	if open < 0 || l.tool(l.answer.Calls[open].Name) != nil {
		return nil // the ledger says what becomes of the call of a server's tool
	}
	text := "[interrupted; the command may have run, partly or wholly, and is not run again]"
	if printed, err := os.ReadFile(filepath.Join(l.seg.GoesOnFrom, fileCommand)); err == nil && len(printed) > 0 {
		kept := &excerpt{half: l.a.settings.commandOutput() / 2}
		_, _ = kept.Write(printed)
		text = strings.TrimRight(kept.text(), "\n") + "\n" + text
	}
	return l.store(ctx, open, &result{Text: l.a.opts.RedactText(text), StartedAt: l.a.opts.Now().UTC()})
}

// converse makes one step after another.
func (l *loop) converse(ctx context.Context) (agent.Outcome, error) {
	for {
		switch {
		case l.ended != nil:
			return l.limited(l.ended), nil
		case ctx.Err() != nil:
			return agent.Outcome{Fault: agent.CauseFault(ctx)}, nil
		case l.answer != nil && l.nextCall() >= 0:
			err := l.call(ctx, l.nextCall())
			if f := (*fault.Fault)(nil); errors.As(err, &f) {
				return agent.Outcome{Fault: f}, nil
			}
			if err != nil {
				return agent.Outcome{}, err
			}
			continue
		case len(l.waiting) > 0:
			return l.suspend(ctx)
		case l.user != nil && l.user.over != "":
			return l.conversed(), nil
		case l.userIsNext():
			if f, err := l.askUser(ctx); f != nil || err != nil {
				return agent.Outcome{Fault: f}, err
			}
			continue
		case l.answer != nil && len(l.answer.Calls) == 0 && l.answer.Stop != "pause_turn":
			return l.over(), nil
		case l.wrong >= mostWrong:
			return agent.Outcome{Fault: fault.Newf(fault.Protocol, "the model has called its tools wrongly %d times in a row",
				l.wrong)}, nil
		case l.turns >= l.a.settings.turns():
			return l.limited(fault.Newf(fault.Budget, "the model has answered %d times (turns)", l.turns)), nil
		}
		if l.full && len(l.begins) > 1 {
			if err := l.shorten(); err != nil {
				return agent.Outcome{}, err
			}
		}
		n := l.asks
		if !l.asked {
			n++
		}
		all := l.question
		if l.summarising > 0 {
			l.question = l.summaryQuestion()
		}
		got, c, waits, f, err := l.next(ctx, n)
		if waits {
			return l.askLater(n)
		}
		l.question = all
		if err == nil && c == nil && l.tooLong && len(l.begins) > 1 {
			if err := l.shorten(); err != nil {
				return agent.Outcome{}, err
			}
			continue
		}
		if err != nil || c == nil {
			return agent.Outcome{Fault: f}, err
		}
		if l.summarising > 0 {
			if err := l.summarised(got); f != nil || err != nil { // the budget
				return agent.Outcome{Fault: f}, err
			}
			continue
		}
		items, err := answerItems(l.a.api, json.RawMessage(l.a.opts.RedactText(string(c.Response))))
		if err != nil {
			return agent.Outcome{Fault: fault.Newf(fault.Model,
				"the answer of the model is not what its API promises: %v", err)}, nil
		}
		failpoint.Hit("model.answered")
		a := l.answerOf(got)
		a.Full = got.Usage != nil && l.a.settings.ContextTokens > 0 &&
			got.Usage.InputTokens+got.Usage.OutputTokens > int64(l.a.settings.ContextTokens)
		if err := l.journal.add(step{Step: stepAnswer, Items: items, Answer: a}); err != nil {
			return agent.Outcome{}, err
		}
		failpoint.Hit("model.answerStored")
		if l.take(a, items); f != nil { // the budget
			return agent.Outcome{Fault: f}, nil
		}
	}
}

// askLater makes the rollout wait for its nth answer, which comes in a batch.
func (l *loop) askLater(n int) (agent.Outcome, error) {
	if !l.asked {
		if err := l.journal.add(step{Step: stepAsk}); err != nil {
			return agent.Outcome{}, err
		}
		l.asks, l.asked = n, true
	}
	if err := l.journal.add(step{Step: stepSuspend, Segment: l.seg.Number}); err != nil {
		return agent.Outcome{}, err
	}
	return l.askInBatch(n)
}

// answerOf returns what is kept of an answer.
func (l *loop) answerOf(got model.Reply) *answered {
	a := &answered{Text: l.a.opts.RedactText(got.Text), Stop: got.Stop, Refusal: got.Refusal, Truncated: got.Truncated}
	for _, c := range got.Calls {
		a.Calls = append(a.Calls, call{c.ID, c.Name, l.a.opts.RedactText(string(c.Arguments))})
	}
	return a
}

// take adds an answer to the conversation.
func (l *loop) take(a *answered, items []json.RawMessage) {
	if l.begins = append(l.begins, len(l.question.items)); l.turns == 0 {
		l.first = len(l.question.items)
	}
	l.question.items = append(l.question.items, items...)
	l.asked, l.full = false, a.Full
	l.answer, l.results = a, make([]*result, len(a.Calls))
	l.waiting, l.approved = map[int]*waiting{}, map[int]bool{}
	l.turns++
	if l.user != nil && len(a.Calls) == 0 && a.Text != "" {
		l.said = append(l.said, Message{Role: "assistant", Content: a.Text})
		l.user.hear(model.API(l.a.settings.User.Model.API), a.Text)
	}
	if a.Text != "" {
		if l.last = a.Text; !l.recorded {
			l.trail.Add(record.EventMessage, "", a.Text, nil)
		}
	}
}

// settle adds the result of a call. When all calls of the answer have one, they are added to the
// conversation together.
func (l *loop) settle(ctx context.Context, n int, r *result) error {
	if l.ran = l.ran || !r.Wrong; !l.recorded {
		l.tell(n, r)
		if err := l.servers.ended(ctx, r.CallID); err != nil {
			return err
		}
	}
	delete(l.waiting, n)
	if l.results[n] = r; slices.Contains(l.results, nil) {
		return nil
	}
	l.wrong++
	for _, one := range l.results {
		if !one.Wrong {
			l.wrong = 0
		}
	}
	l.question.items = append(l.question.items, resultItems(l.a.api, l.answer.Calls, l.results)...)
	l.answer = nil
	return nil
}

// tell records a call with its result.
func (l *loop) tell(n int, r *result) {
	c := l.answer.Calls[n]
	kept := record.Call{ID: c.ID, Name: c.Name, Status: "completed", Input: asJSON(c.Arguments), StartedAt: r.StartedAt,
		DurationMs: &r.Ms, Output: jsonobj.Quote(r.Text), Mock: r.Mock}
	if t := l.tool(c.Name); t != nil {
		kept.Name, kept.Server = spanName(l.question.tools, *t), t.Server
	}
	if r.Wrong || r.Failed {
		kept.Status = "failed"
	}
	l.trail.Call("", kept)
	l.trail.Span(kept)
	l.info.ToolCalls++
}

// asJSON returns a JSON value as it is, and anything else as a JSON string.
func asJSON(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return jsonobj.Quote(text)
}

// store makes the result of a call durable, before the model can learn of it.
func (l *loop) store(ctx context.Context, n int, r *result) error {
	if err := l.journal.add(step{Step: stepResult, Call: n, Result: r}); err != nil {
		return err
	}
	failpoint.Hit("model.resultStored")
	return l.settle(context.WithoutCancel(ctx), n, r)
}

// call runs a call of the answer. Its intent is durable before.
func (l *loop) call(ctx context.Context, n int) error {
	c := l.answer.Calls[n]
	started := l.a.opts.Now()
	var command, wrong string
	t := l.tool(c.Name)
	switch {
	case t != nil:
		command, wrong = asArguments(c.Arguments)
	case c.Name == bashTool && l.a.settings.has(bashTool):
		command, wrong = commandOf(c)
	default:
		wrong = l.noTool(c.Name)
	}
	switch {
	case l.answer.Truncated:
		wrong = "not run: the answer was cut off at its limit of tokens, so that the call may be incomplete"
	case n >= mostCalls:
		wrong = fmt.Sprintf("not run: one answer may have at most %d calls", mostCalls)
	}
	if wrong != "" {
		return l.store(ctx, n, &result{Text: wrong, Wrong: true, StartedAt: started.UTC()})
	}
	if l.mustApprove(c.Name) && !l.approved[n] {
		return l.wait(n, &waiting{Interrupt: fmt.Sprintf("permission-%d-%d", l.turns, n+1)})
	}
	if t != nil {
		if err := l.journal.add(step{Step: stepIntent, Call: n}); err != nil {
			return err
		}
		failpoint.Hit("model.intended")
		return l.callServer(ctx, n, *t, command)
	}
	if err := os.Remove(filepath.Join(l.seg.Dir, fileCommand)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := l.journal.add(step{Step: stepIntent, Call: n}); err != nil {
		return err
	}
	failpoint.Hit("model.intended")
	log := program.OpenLog(filepath.Join(l.seg.Dir, fileCommand), l.a.opts.Redact)
	text, err := l.shell.run(command, l.a.settings.commandTimeout(), l.a.settings.commandOutput(), l.a.opts.Redact,
		log, l.a.opts.Now)
	if closed := log.Close(); closed != nil {
		return closed
	}
	if ctx.Err() != nil {
		return nil // the command was ended in the middle: whoever goes on says so to the model
	}
	failpoint.Hit("model.ran")
	if errors.Is(err, errShellEnded) {
		text += "\n[the command has ended the shell that runs commands; a new one runs the next]"
		if err := l.restart(ctx); err != nil {
			return err
		}
	}
	took := l.a.opts.Now().Sub(started).Milliseconds()
	return l.store(ctx, n, &result{Text: l.a.opts.RedactText(text), StartedAt: started.UTC(), Ms: took})
}

// closeShell closes the shell, if there is one.
func (l *loop) closeShell() error {
	sh := l.shell
	if l.shell = nil; sh == nil {
		return nil
	}
	return sh.close()
}

// restart starts another shell after a command has ended the first one.
func (l *loop) restart(ctx context.Context) error {
	if err := l.closeShell(); err != nil {
		return err
	}
	if setup := l.seg.Sandbox.Setup; setup != nil {
		again := *setup
		again.Commands = nil // they have run
		box := *l.seg.Sandbox
		box.Setup, l.seg.Sandbox = &again, &box
	}
	sh, f, err := l.startShell(ctx)
	if err != nil {
		return err
	}
	if f != nil {
		return f
	}
	l.shell = sh
	return nil
}

// commandOf returns the command of a call, or what is wrong with the call.
func commandOf(c call) (command, wrong string) {
	var in struct {
		Command *string `json:"command"`
	}
	switch err := json.Unmarshal([]byte(c.Arguments), &in); {
	case err != nil:
		return "", fmt.Sprintf("not run: the arguments are no JSON object with a command: %v", err)
	case in.Command == nil || strings.TrimSpace(*in.Command) == "":
		return "", "not run: the arguments have no command"
	case strings.ContainsRune(*in.Command, 0):
		return "", "not run: the command has a zero byte"
	}
	return *in.Command, ""
}

// over makes the outcome of an answer without calls.
func (l *loop) over() agent.Outcome {
	got := model.Reply{Text: l.answer.Text, Stop: l.answer.Stop, Refusal: l.answer.Refusal, Truncated: l.answer.Truncated}
	if l.ran && strings.TrimSpace(got.Text) == "" && got.Refusal == "" && !got.Truncated && l.a.settings.Output == nil {
		l.info.StopReason = got.Stop
		return l.output("") // it has done its work, and says nothing more
	}
	return l.end(got)
}

// limited makes the outcome of a conversation that a limit has ended.
func (l *loop) limited(f *fault.Fault) agent.Outcome {
	out, err := jsonobj.Marshal(struct {
		Content string       `json:"content"`
		Limit   *fault.Fault `json:"limit"`
	}{l.last, f})
	if err != nil {
		return agent.Outcome{Fault: f}
	}
	l.info.Limit = f
	return agent.Outcome{Output: out, Limit: f}
}
