package exports

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/schemas"
)

// inspectLog is what read_inspect.py prints.
type inspectLog struct {
	Status, Task, Model string
	SampleIDs           []string                      `json:"sample_ids"`
	Metrics             map[string]map[string]float64 `json:"metrics"`
	Completed           int
	Usage               map[string]int64
	Summaries           [][]any
	Samples             []inspectSample
}

type inspectSample struct {
	ID          string
	Epoch       int
	UUID        string
	Input       string
	Completion  string
	Scores      map[string]float64
	Error       string
	Limit       string
	TotalTime   float64 `json:"total_time"`
	WorkingTime float64 `json:"working_time"`
	Usage       map[string][]*float64
	Messages    []struct {
		Role, Text, Reasoning string
		Calls                 []struct {
			ID, Function string
			Arguments    json.RawMessage
		}
		ToolCallID string `json:"tool_call_id"`
		Error      bool
	}
	Missing string
}

// open writes a run, or a results document, as a log of Inspect and opens it.
func (w world) open(interpreter, run string) (log inspectLog) {
	w.t.Helper()
	path := filepath.Join(w.t.TempDir(), "log.eval")
	w.evalrun(0, "report", "--format", "inspect", "-o", path, run)
	if err := json.Unmarshal(python(w.t, interpreter, "read_inspect.py", "", path), &log); err != nil {
		w.t.Fatal(err)
	}
	return log
}

// Given a run with rollouts that are good, bad, faulted and suspended: then Inspect reads each as
// what it is, with the figures of the results document, and never a score for one that has none.
func TestInspectReadsOurLogs(t *testing.T) {
	t.Parallel()
	interpreter := other(t, "inspect")
	w := newWorld(t)
	w.evalrun(75, "run", "-q", "--run-id", "r", "-o", "results.json", "sums.json", "--", "sh", filepath.Join(w.dir, "agent.sh"))
	log, doc := w.open(interpreter, "r"), w.document("r")
	if log.Status != "started" || log.Task != "Sums" || log.Model != "m" || log.Completed != 4 {
		t.Errorf("the log is %s, %s, %s, %d", log.Status, log.Task, log.Model, log.Completed)
	}
	same(t, "the data set", log.SampleIDs, []string{"good", "bad", "broken", "waits/1"})
	w.compare(log, doc)
	// Both programs leave out what has no score: the two good and the two bad ones are left.
	if m := log.Metrics["exact"]; m["mean"] != 0.5 || math.Abs(m["stderr"]-0.5) > 1e-12 {
		t.Errorf("the metrics are %v", m)
	}

	// The document alone says the same, and a copy of it beside no store lacks nothing either: a
	// function agent leaves no more than is in it.
	alone := filepath.Join(t.TempDir(), "copy.json")
	data, err := os.ReadFile(filepath.Join(w.dir, "results.json"))
	if err == nil {
		err = os.WriteFile(alone, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the log of the document", w.open(interpreter, alone), log)

	w.approve("r")
	w.evalrun(3, "resume", "-q", "r")
	log = w.open(interpreter, "r")
	if log.Status != "success" || log.Completed != 6 || log.Usage["m"] != 4*6+2*18 {
		t.Errorf("in the end the log is %s, %d, %v", log.Status, log.Completed, log.Usage)
	}
	w.compare(log, w.document("r"))
}

// compare compares the samples with the rollouts.
func (w world) compare(log inspectLog, doc schemas.Results) {
	w.t.Helper()
	rollouts := index(doc)
	if len(log.Samples) != len(rollouts) || len(log.Summaries) != len(rollouts) {
		w.t.Errorf("%d samples and %d summaries of %d rollouts", len(log.Samples), len(log.Summaries), len(rollouts))
	}
	for _, s := range log.Samples {
		one := rollouts[s.UUID]
		name := fmt.Sprintf("sample %s, %d: ", s.ID, s.Epoch)
		same(w.t, name+"id and epoch", []any{s.ID, s.Epoch}, []any{one.EvaluationID, one.Epoch})
		same(w.t, name+"times", []float64{s.TotalTime, s.WorkingTime}, []float64{float64(one.Clocks.WallMs) / 1000, float64(one.Clocks.WorkingMs) / 1000})
		scores := map[string]float64{}
		for _, e := range one.EvaluationRunResults {
			scores[e.EvaluatorName] = *e.Result.Score
		}
		same(w.t, name+"scores", s.Scores, scores)
		wantError := map[schemas.State]string{schemas.StateFaulted: "exit: the agent ended with exit status 3", schemas.StateSuspended: "suspended: it waits for API api-"}[one.Status]
		if !strings.HasPrefix(s.Error, wantError) || (s.Error == "") != (one.Status == schemas.StateCompleted) {
			w.t.Errorf("%sa rollout that is %s has the error %q", name, one.Status, s.Error)
		}
		usage := map[string][]*float64{}
		if one.Usage != nil {
			for _, u := range one.Usage.Models {
				in, out, total := float64(u.InputTokens), float64(u.OutputTokens), float64(u.Tokens())
				usage[u.Model] = []*float64{&in, &out, &total, u.Cost}
			}
		}
		same(w.t, name+"usage", s.Usage, usage)
		if one.Status != schemas.StateCompleted {
			continue
		}
		last := s.Messages[len(s.Messages)-1]
		if s.Completion != `{"sum":3}` || last.Text != s.Completion {
			w.t.Errorf("%sthe answer is %q, the last message %q", name, s.Completion, last.Text)
		}
		call, result := s.Messages[1].Calls[0], s.Messages[2]
		if string(call.Arguments) != `{"key": 1}` || result.ToolCallID != call.ID || result.Text != "found" {
			w.t.Errorf("%sthe call is %+v, its result %+v", name, call, result)
		}
	}
}

// What a coding agent says, thinks and does is a conversation, over a suspension, too. Without the
// store it is said what is missing.
func TestInspectReadsConversations(t *testing.T) {
	t.Parallel()
	interpreter := other(t, "inspect")
	w := newWorld(t)
	w.evalrun(75, "run", "-q", "--isolation", "process", "--run-id", "c", "-o", "results.json", "code.json")
	w.approve("c")
	w.evalrun(0, "resume", "-q", "-o", "results.json", "c")
	log := w.open(interpreter, "c")
	if len(log.Samples) != 1 || log.Samples[0].Missing != "" || log.Samples[0].Scores["says"] != 1 {
		t.Fatalf("the log has %+v", log.Samples)
	}
	var parts []string
	for _, m := range log.Samples[0].Messages {
		if m.Reasoning != "" {
			parts = append(parts, "thought:"+m.Reasoning)
		}
		switch m.Role {
		case "tool":
			parts = append(parts, "result:"+m.Text)
		case "assistant":
			parts = append(parts, "agent:"+m.Text)
		default:
			parts = append(parts, m.Role+":"+m.Text)
		}
		for _, c := range m.Calls {
			parts = append(parts, "call:"+c.Function)
		}
	}
	isSpoken(t, parts)

	alone := filepath.Join(t.TempDir(), "copy.json")
	if err := os.Rename(filepath.Join(w.dir, "results.json"), alone); err != nil {
		t.Fatal(err)
	}
	s := w.open(interpreter, alone).Samples[0]
	if !strings.HasPrefix(s.Missing, "what the agent said and thought") || s.Scores["says"] != 1 || len(s.Messages) < 3 {
		t.Errorf("without its store the sample is %+v", s)
	}
}
