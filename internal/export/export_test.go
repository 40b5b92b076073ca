package export

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

const document = "../report/testdata/results.json"

func open(t *testing.T) *report.Report {
	t.Helper()
	r, err := report.Open(document)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// members are those of a log of Inspect.
func members(t *testing.T, r *report.Report, agent string) map[string]map[string]any {
	t.Helper()
	var b bytes.Buffer
	if err := WriteInspect(&b, r, agent); err != nil {
		t.Fatal(err)
	}
	z, err := zip.NewReader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]any{}
	for _, f := range z.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.NewDecoder(in).Decode(&v); err != nil {
			t.Fatal(f.Name, err)
		}
		out[f.Name], _ = v.(map[string]any)
	}
	return out
}

// Only a rollout that has completed has scores in a log; every other one has an error that says why.
func TestOnlyWhatHasCompletedIsScored(t *testing.T) {
	r := open(t)
	rollouts, states := 0, map[schemas.State]int{}
	all := members(t, r, "")
	if err := r.Rollouts(func(one *schemas.Rollout) error {
		if one.Segments == 0 && !one.Status.IsTerminal() {
			return nil
		}
		rollouts++
		states[one.Status]++
		for name, s := range all {
			if s["uuid"] != one.RolloutID {
				continue
			}
			completed := one.Status == schemas.StateCompleted
			if (s["error"] == nil) != completed || s["scores"] != nil && !completed {
				t.Errorf("%s is %s: error %v, scores %v", name, one.Status, s["error"], s["scores"])
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(all) != rollouts+2 || all["header.json"] == nil {
		t.Errorf("%d members of %d rollouts", len(all), rollouts)
	}
	if states[schemas.StateCompleted] == 0 || states[schemas.StateFaulted] == 0 {
		t.Errorf("the document has %v", states)
	}
}

// Calls that ran beside each other belong to one turn, one after the other to two.
func TestCallsOfATurn(t *testing.T) {
	var tr transcript
	at := time.Unix(100, 0).UTC()
	line := func(kind, text string, call string) []byte {
		return []byte(`{"time":"` + at.Format(time.RFC3339) + `","type":"` + kind + `","text":"` + text + `"` + call + "}\n")
	}
	call := func(id string, began, took int) string {
		begun := at.Add(time.Duration(began) * time.Second).Format(time.RFC3339)
		ms, _ := json.Marshal(took * 1000) // a number
		return `,"toolCall":{"toolCallId":"` + id + `","name":"` + id + `","status":"completed","startedAt":"` + begun + `","durationMs":` + string(ms) + `}`
	}
	data := bytes.Join([][]byte{line("prompt", "do", ""), line("thought", "hm", ""), line("message", "yes", ""), line("tool_call", "", call("a", 0, 5)), line("tool_call", "", call("b", 2, 5)),
		line("tool_call", "", call("c", 9, 1)), line("message", "done", ""), []byte(`{"torn`)}, nil)
	tr.addTrajectory(data)
	var got []string
	for _, turn := range tr.turns {
		text := string(turn.role) + ":" + turn.thought + turn.text
		for _, c := range turn.calls {
			text += " " + c.name
		}
		got = append(got, text)
	}
	if want := "user:do|agent:hmyes a b|agent: c|agent:done"; strings.Join(got, "|") != want {
		t.Errorf("the turns are %q, expected %q", strings.Join(got, "|"), want)
	}
}

// Of each segment the last attempt counts.
func TestCountedLogs(t *testing.T) {
	got := counted([]string{"runs/r/rollouts/o/segments/1.1/trajectory.jsonl", "runs/r/rollouts/o/segments/1.2/trajectory.jsonl", "runs/r/rollouts/o/segments/2.1/steps/a/trajectory.jsonl"})
	if strings.Join(got, " ") != "runs/r/rollouts/o/segments/1.2/trajectory.jsonl runs/r/rollouts/o/segments/2.1/steps/a/trajectory.jsonl" {
		t.Errorf("got %q", got)
	}
}

func TestObjects(t *testing.T) {
	for in, want := range map[string]string{"": "{}", "null": "{}", `{"a":1}`: `{"a":1}`, `"x"`: `{"input":"x"}`, `[1]`: `{"input":[1]}`} {
		if got := string(object(json.RawMessage(in))); got != want {
			t.Errorf("%s is %s, expected %s", in, got, want)
		}
	}
	if got := cut(strings.Repeat("é", summaryText)); len(got) > summaryText+3 || !strings.HasSuffix(got, "é…") {
		t.Errorf("the text is cut to %d bytes", len(got))
	}
}
