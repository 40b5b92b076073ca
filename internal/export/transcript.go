package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval/spans"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// transcript has the words and actions of a rollout, over all its segments.
type transcript struct {
	turns []turn
	// missing says what the transcript lacks; empty if it is whole.
	missing string
}

// turn is one thing that somebody said, and the calls of tools that came with it.
type turn struct {
	at   time.Time
	role role
	// text is what was said, thought what the agent thought before it.
	text, thought string
	calls         []call
}

// role says who speaks.
type role string

const (
	user   role = "user"
	model  role = "agent"
	system role = "system"
)

// call is the call of a tool. ended is zero if it has not ended.
type call struct {
	id, name, server string
	arguments        json.RawMessage
	result           string
	failed           bool
	began, ended     time.Time
}

// maxTrajectory is the most bytes of a segment's trajectory that are read.
const maxTrajectory = 256 << 20

// newTranscript reads what a rollout's agent said and did. For an agent that leaves no trajectory
// it has an input, calls of tools and an output.
func newTranscript(r *report.Report, one *schemas.Rollout) (t transcript, err error) {
	named, read := 0, 0
	for _, log := range counted(one.Logs) {
		if path.Base(log) != record.FileTrajectory {
			continue
		}
		named++
		file := r.LogFile(log)
		if file == "" {
			continue
		}
		data, err := record.ReadRegular(file, maxTrajectory)
		if err != nil {
			return t, fmt.Errorf("rollout %s: %w", one.RolloutID, err)
		}
		if data != nil {
			read++
		}
		t.addTrajectory(data)
	}
	if named > read {
		t.missing = "what the agent said and thought: the files of the store are not there; calls of tools are those of the results document"
		t.turns = nil
	}
	if len(t.turns) == 0 {
		t.addSpans(one)
	}
	t.number()
	return t, nil
}

// counted returns the logs of the attempts that counted: for each segment the last.
func counted(logs []string) (out []string) {
	last := map[string]string{}
	attempt := func(log string) (segment, dir string) {
		_, rest, ok := strings.Cut(log, "/segments/")
		if !ok {
			return "", ""
		}
		dir, _, _ = strings.Cut(rest, "/")
		segment, _, _ = strings.Cut(dir, ".")
		return segment, dir
	}
	for _, log := range logs {
		segment, dir := attempt(log)
		last[segment] = dir
	}
	for _, log := range logs {
		if segment, dir := attempt(log); last[segment] == dir {
			out = append(out, log)
		}
	}
	return out
}

// addTrajectory adds the trajectory of a segment. It leaves out a torn last line.
func (t *transcript) addTrajectory(data []byte) {
	for line := range bytes.Lines(data) {
		var e record.Event
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch e.Type {
		case record.EventPrompt:
			t.turns = append(t.turns, turn{at: e.Time, role: user, text: e.Text})
		case record.EventMessage:
			last := t.open()
			if last == nil || last.text != "" {
				last = t.begin(e.Time)
			}
			last.text = e.Text
		case record.EventThought:
			t.begin(e.Time).thought = e.Text
		case record.EventToolCall:
			if e.Call != nil {
				t.addCall(callOf(*e.Call))
			}
		case record.EventSuspended:
			t.turns = append(t.turns, turn{at: e.Time, role: system, text: "suspended"})
		case record.EventResumed:
			t.turns = append(t.turns, turn{at: e.Time, role: system, text: "resumed"})
		case record.EventLimit:
			t.turns = append(t.turns, turn{at: e.Time, role: system, text: "ended by a limit: " + string(e.Data)})
		}
	}
}

// open returns the agent's current turn if it has called no tool yet, nil if there is none.
func (t *transcript) open() *turn {
	if n := len(t.turns); n > 0 && t.turns[n-1].role == model && t.turns[n-1].calls == nil {
		return &t.turns[n-1]
	}
	return nil
}

func (t *transcript) begin(at time.Time) *turn {
	t.turns = append(t.turns, turn{at: at, role: model})
	return &t.turns[len(t.turns)-1]
}

// addCall adds a call to the current turn, or beside calls that had not ended when it
// began.
func (t *transcript) addCall(c call) {
	last := t.open()
	if n := len(t.turns); last == nil && n > 0 && t.turns[n-1].role == model {
		before := t.turns[n-1].calls
		if end := before[len(before)-1].ended; end.After(c.began) {
			last = &t.turns[n-1]
		}
	}
	if last == nil {
		last = t.begin(c.began)
	}
	last.calls = append(last.calls, c)
}

func callOf(c record.Call) call {
	out := call{
		id: c.ID, name: c.Name, server: c.Server, arguments: object(c.Input), result: c.Text(),
		failed: c.Status == "failed", began: c.StartedAt,
	}
	if c.DurationMs != nil {
		out.ended = c.StartedAt.Add(time.Duration(*c.DurationMs) * time.Millisecond)
	}
	return out
}

// addSpans adds the content of the results document: the input, the calls of tools, the output.
func (t *transcript) addSpans(one *schemas.Rollout) {
	began := time.Time{}
	if one.StartedAt != nil {
		began = *one.StartedAt
	}
	t.turns = append(t.turns, turn{at: began, role: user, text: text(one.Inputs)})
	if one.AgentExecutionOutput == nil {
		return
	}
	for _, c := range spans.ToolCalls([][]json.RawMessage{one.AgentExecutionOutput.Trace.Spans}) {
		t.begin(began).calls = []call{{name: c.Name, arguments: object(c.Args), result: c.Output, began: began}}
	}
	if result := one.AgentExecutionOutput.Result; result.Status == schemas.Successful {
		t.turns = append(t.turns, turn{role: model, text: text(result.Output)})
	}
}

// number gives each call a unique id.
func (t *transcript) number() {
	seen := map[string]bool{}
	n := 0
	for i := range t.turns {
		for j := range t.turns[i].calls {
			c := &t.turns[i].calls[j]
			n++
			if c.id == "" || seen[c.id] {
				c.id = fmt.Sprintf("call-%d", n)
			}
			seen[c.id] = true
		}
	}
}

// answer returns the last text of the agent.
func (t transcript) answer() string {
	for i := len(t.turns) - 1; i >= 0; i-- {
		if t.turns[i].role == model && t.turns[i].text != "" {
			return t.turns[i].text
		}
	}
	return ""
}
