package modelagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	shell   *shell // nil if it has ended and cannot be started again
	// answer is the last answer, with the results of its calls as far as they have come; nil if the
	// model is to be asked.
	answer  *answered
	results []*result
	// turns counts the answers, wrong those at the end that had only wrong calls.
	turns, wrong int
	ran          bool
	last         string // the last text of the model
}

// runLoop asks the model, and runs what it calls, until an answer calls nothing.
func (s *segment) runLoop(ctx context.Context) (out agent.Outcome, err error) {
	if s.seg.Sandbox == nil {
		return agent.Outcome{Fault: fault.New(fault.NotRunnable, "the tool bash needs a sandbox, and there is none")}, nil
	}
	s.info.Isolation = s.seg.Sandbox.Config.Isolation
	l := &loop{segment: s}
	var f *fault.Fault
	if l.shell, f, err = s.startShell(ctx); f != nil || err != nil {
		return agent.Outcome{Fault: f}, err
	}
	defer func() { err = errors.Join(err, l.closeShell()) }()
	if err := l.open(); err != nil {
		return agent.Outcome{}, err
	}
	defer func() { err = errors.Join(err, l.journal.close()) }()
	if out, err = l.converse(ctx); err != nil {
		return out, err
	}
	if f := out.Fault; f != nil && f.Category == fault.Timeout {
		out = l.limited(f) // the verifier sees what was done until then
	}
	if hasFailed(out) {
		err = l.journal.add(step{Step: stepEnd})
	}
	return out, err
}

// hasFailed reports whether another attempt of the segment, if there is one, begins anew. A
// conversation that has come to its end is not marked: until its output is committed this process
// may be killed, and then the next attempt finds the same end in it, and asks for nothing again.
func hasFailed(out agent.Outcome) bool {
	f := cmp.Or(out.Fault, out.Limit)
	return f != nil && f.Category != fault.Interrupted && f.Category != fault.Model
}

// open goes on with the conversation of an earlier attempt, or begins one.
func (l *loop) open() error {
	var before []step
	var err error
	if dir := l.seg.GoesOnFrom; dir != "" {
		if before, err = readJournal(dir); err != nil {
			return err
		}
	}
	if l.journal, err = openJournal(l.seg.Dir, before); err != nil {
		return err
	}
	if before == nil {
		failpoint.Hit("model.begins")
		return l.journal.add(step{Step: stepBegin, System: l.question.system, Items: l.question.items})
	}
	open := -1 // the call that may have been run
	for _, one := range before {
		switch one.Step {
		case stepBegin:
			l.question.system, l.question.items = one.System, one.Items
		case stepAnswer:
			l.take(one.Answer, one.Items)
		case stepIntent:
			open = one.Call
		case stepResult:
			open = -1
			l.settle(one.Call, one.Result)
		}
	}
	if open < 0 {
		return nil
	}
	text := "[interrupted; the command may have run, partly or wholly, and is not run again]"
	if printed, err := os.ReadFile(filepath.Join(l.seg.GoesOnFrom, fileCommand)); err == nil && len(printed) > 0 {
		kept := &excerpt{half: l.a.settings.commandOutput() / 2}
		_, _ = kept.Write(printed)
		text = strings.TrimRight(kept.text(), "\n") + "\n" + text
	}
	return l.store(open, &result{Text: l.a.opts.RedactText(text), StartedAt: l.a.opts.Now().UTC()})
}

// converse makes one step after another.
func (l *loop) converse(ctx context.Context) (agent.Outcome, error) {
	for {
		switch {
		case ctx.Err() != nil:
			return agent.Outcome{Fault: agent.CauseFault(ctx)}, nil
		case l.answer != nil && len(l.results) < len(l.answer.Calls):
			err := l.call(ctx, len(l.results))
			if f := (*fault.Fault)(nil); errors.As(err, &f) {
				return agent.Outcome{Fault: f}, nil
			}
			if err != nil {
				return agent.Outcome{}, err
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
		got, c, f, err := l.ask(ctx)
		if err != nil || c == nil {
			return agent.Outcome{Fault: f}, err
		}
		items, err := answerItems(l.a.api, json.RawMessage(l.a.opts.RedactText(string(c.Response))))
		if err != nil {
			return agent.Outcome{Fault: fault.Newf(fault.Model,
				"the answer of the model is not what its API promises: %v", err)}, nil
		}
		failpoint.Hit("model.answered")
		a := l.answerOf(got)
		if err := l.journal.add(step{Step: stepAnswer, Items: items, Answer: a}); err != nil {
			return agent.Outcome{}, err
		}
		failpoint.Hit("model.answerStored")
		if l.take(a, items); f != nil { // the budget
			return agent.Outcome{Fault: f}, nil
		}
	}
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
	l.question.items = append(l.question.items, items...)
	l.answer, l.results = a, nil
	l.turns++
	if a.Text != "" {
		l.last = a.Text
		l.trail.Add(record.EventMessage, "", a.Text, nil)
	}
}

// settle adds the result of a call. When all calls of the answer have one, they are added to the
// conversation together.
func (l *loop) settle(n int, r *result) {
	c := l.answer.Calls[n]
	kept := record.Call{ID: c.ID, Name: c.Name, Status: "completed", Input: asJSON(c.Arguments), StartedAt: r.StartedAt,
		DurationMs: &r.Ms, Output: jsonobj.Quote(r.Text)}
	if r.Wrong {
		kept.Status = "failed"
	} else {
		l.ran = true
	}
	l.trail.Call("", kept)
	l.trail.Span(kept)
	l.info.ToolCalls++
	if l.results = append(l.results, r); len(l.results) < len(l.answer.Calls) {
		return
	}
	l.wrong++
	for _, one := range l.results {
		if !one.Wrong {
			l.wrong = 0
		}
	}
	l.question.items = append(l.question.items, resultItems(l.a.api, l.answer.Calls, l.results)...)
	l.answer = nil
}

// asJSON returns a JSON value as it is, and anything else as a JSON string.
func asJSON(text string) json.RawMessage {
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return jsonobj.Quote(text)
}

// store makes the result of a call durable, before the model can learn of it.
func (l *loop) store(n int, r *result) error {
	if err := l.journal.add(step{Step: stepResult, Call: n, Result: r}); err != nil {
		return err
	}
	l.settle(n, r)
	failpoint.Hit("model.resultStored")
	return nil
}

// call runs a call of the answer. Its intent is durable before.
func (l *loop) call(ctx context.Context, n int) error {
	c := l.answer.Calls[n]
	started := l.a.opts.Now()
	command, wrong := commandOf(c)
	switch {
	case l.answer.Truncated:
		wrong = "not run: the answer was cut off at its limit of tokens, so that the call may be incomplete"
	case n >= mostCalls:
		wrong = fmt.Sprintf("not run: one answer may have at most %d calls", mostCalls)
	}
	if wrong != "" {
		return l.store(n, &result{Text: wrong, Wrong: true, StartedAt: started.UTC()})
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
	return l.store(n, &result{Text: l.a.opts.RedactText(text), StartedAt: started.UTC(), Ms: took})
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
	case c.Name != bashTool:
		return "", fmt.Sprintf("not run: there is no tool %q; the only tool is %s", model.Short(c.Name), bashTool)
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
