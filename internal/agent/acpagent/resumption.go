package acpagent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/agent"
	"github.com/evalrun/evalrun/internal/agent/toolserver"
	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/wait"
)

// resumption makes the prompt with which a session is resumed. It fetches the results of pending
// work, and tells the agent what people have decided.
type resumption struct {
	deliveries   map[string]agent.Delivery
	gateway      *agent.Gateway
	fetchTimeout time.Duration
	now          func() time.Time

	conversation *conversation
	servers      *servers
	calls        *callRecorder
	permissions  *permissions
}

// prompt returns the text that tells the agent what has arrived. Requests without an arrival are
// pending again; the text is empty if nothing has arrived and some are pending.
func (r *resumption) prompt(ctx context.Context) (string, error) {
	waited := r.conversation.record.Pending
	r.conversation.record.Pending = nil
	var parts []string
	for _, a := range waited {
		if a.Call != nil {
			if err := r.loadWork(ctx, &a); err != nil {
				return "", err
			}
		}
		d, ok := r.deliveries[a.Interrupt]
		switch {
		case !ok:
			r.conversation.record.Pending = append(r.conversation.record.Pending, a)
		case a.Call == nil:
			parts = append(parts, r.tellDecision(a, d))
		default:
			result, again, f := r.result(ctx, &a, d)
			switch {
			case f != nil:
				return "", f
			case again:
				r.conversation.record.Pending = append(r.conversation.record.Pending, a)
				continue
			}
			if err := r.gateway.Ledger.Ended(ctx, a.Call.CallID); err != nil {
				return "", err
			}
			parts = append(parts, r.recordResult(a, result))
		}
	}
	if parts == nil && len(r.conversation.record.Pending) > 0 {
		return "", nil
	}
	if n := len(r.conversation.record.Pending); n > 0 {
		parts = append(parts, fmt.Sprintf("%d more that you wait for will come in a later message.", n))
	}
	return strings.Join(append(parts, "Go on with your work."), "\n\n"), nil
}

// tellDecision notes what a person has allowed, and tells it.
func (r *resumption) tellDecision(a request, d agent.Delivery) string {
	decided := toolserver.Decide(d)
	if decided.Allowed && a.What == requestPermission {
		r.permissions.approve(a, d.TriggerID)
	}
	return a.tell(decided)
}

// recordResult records the result of work as the result of the call that has started it, and tells
// it.
func (r *resumption) recordResult(a request, result json.RawMessage) string {
	w := *a.work
	w.Arguments = r.conversation.withoutSecrets(w.Arguments)
	prompt, text, failed := tellResult(&w, result)
	call := record.Call{
		ID: cmp.Or(a.ToolCallID, a.Interrupt), Name: w.Tool, Server: w.Server, Status: "completed", Input: w.Arguments,
		StartedAt: r.now().UTC(),
	}
	if failed {
		call.Status = "failed"
	}
	// Strings always marshal.
	call.Content, _ = json.Marshal([]any{map[string]any{"type": "content",
		"content": map[string]string{"type": "text", "text": text}}})
	r.conversation.trail.Call(r.conversation.record.SessionID, call)
	r.calls.resultArrived(a, call)
	return prompt
}

// result returns the result of pending work, as a result of its tool. again says that there is no
// result yet; the rollout then waits for a again.
func (r *resumption) result(ctx context.Context, a *request, d agent.Delivery) (
	result json.RawMessage, again bool, f *fault.Fault) {
	result, again, f = toolserver.Result(ctx, a.work, a.Call.Input, d,
		r.servers.endpoint(a.work.Server), r.gateway.Jobs, r.fetchTimeout)
	if again {
		a.Call = r.conversation.recorded(request{work: a.work}).Call // a question may have another text by now
	}
	return result, again, f
}

// loadWork reads the work that the call of a has started.
func (r *resumption) loadWork(ctx context.Context, a *request) (err error) {
	if a.work, err = r.gateway.Ledger.Work(ctx, a.Call.CallID); err == nil && a.work == nil {
		err = errors.New("nothing is recorded")
	}
	if err != nil {
		return fault.Newf(fault.MCP, "what the call %s has started cannot be read: %v", a.Call.CallID, err)
	}
	return nil
}

const (
	// maxTranscript is how much of a transcript is replayed. maxResult is how much of one tool's
	// result is replayed.
	maxTranscript = 100 << 10
	maxResult     = 2 << 10
	// These texts surround a transcript. The lines of the transcript are quoted, so that nothing in
	// it can be taken for its end.
	transcriptStart = "This conversation was interrupted and goes on here. What was said and done so far:\n\n"
	transcriptEnd   = "\n\n[end of what was said and done]\n\n"
)

// transcript tells a new session what happened in the conversation before.
func (c *conversation) transcript() (string, error) {
	var parts []string
	for _, dir := range c.seg.History {
		f, err := os.Open(filepath.Join(dir, record.FileTrajectory))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return "", err
		}
		dec := json.NewDecoder(f)
		for {
			var e record.Event
			if err := dec.Decode(&e); err != nil {
				break // the end, or a torn line
			}
			if text := retell(e); text != "" && slices.Contains(c.record.Sessions, e.SessionID) {
				parts = append(parts, text)
			}
		}
		_ = f.Close() // only read
	}
	text := strings.Join(parts, "\n\n")
	if len(text) > maxTranscript {
		head, tail := text[:maxTranscript/4], text[len(text)-maxTranscript*3/4:]
		text = strings.ToValidUTF8(head, "") + "\n\n[… left out …]\n\n" + strings.ToValidUTF8(tail, "")
	}
	return transcriptStart + "> " + strings.ReplaceAll(text, "\n", "\n> ") + transcriptEnd, nil
}

// retell returns an event as a transcript has it. It is empty for events that are left out.
func retell(e record.Event) string {
	switch e.Type {
	case record.EventPrompt:
		text := e.Text
		if strings.HasPrefix(text, transcriptStart) { // that prompt contained the events before it already
			_, text, _ = strings.Cut(text, transcriptEnd)
		}
		return "User: " + text
	case record.EventMessage:
		return "You: " + e.Text
	case record.EventToolCall:
		result := e.Call.Text()
		if len(result) > maxResult {
			result = strings.ToValidUTF8(result[:maxResult], "") + "…"
		}
		return fmt.Sprintf("You called %s %s (%s): %s", e.Call.Name, e.Call.Input, e.Call.Status, result)
	}
	return ""
}

// maxTold is how much of a result is told. Some agents show their model no more of a tool's result
// either.
const maxTold = 100 << 10

// tellResult returns the part of the next prompt that tells a result, and the text of the result.
func tellResult(w *wait.Work, result json.RawMessage) (prompt, text string, failed bool) {
	text, failed = toolserver.ResultText(result)
	if len(text) > maxTold {
		text = strings.ToValidUTF8(text[:maxTold], "") + "\n[… left out …]"
	}
	what := "The result of"
	if failed {
		what = "It has failed:"
	}
	return fmt.Sprintf("%s %s %s, which you started before and which is done now:\n\n%s", what, w.Tool,
		jsonobj.Canonical(w.Arguments), text), text, failed
}
