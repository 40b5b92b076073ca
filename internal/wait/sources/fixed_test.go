package sources

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/fault"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

func TestFixedKeepsToItsInterface(t *testing.T) {
	now := noon
	waittest.Run(t, waittest.Case{
		Source: fixed{now: func() time.Time { return now }, played: wait.Played{FixedResult: wait.FixedResult{Result: json.RawMessage(`1`), After: wait.Duration(time.Hour)}}},
		Job:    wait.Job{TriggerID: "t1", Since: noon, Spec: wait.Spec{Type: wait.TypeJob}},
		End:    func() { now = noon.Add(time.Hour) },
	})
}

func TestFixedSaysWhatIsPlayed(t *testing.T) {
	now := noon.Add(30 * time.Second)
	jobs := waittest.ParseJobs(t, `{
		"Ship": {"source": "fixed", "result": {"n": 1}, "after": "1m"}, "Fly": {"source": "fixed", "fail": "fog"},
		"*": {"source": "fixed", "sequence": [{"result": 1}, {"fail": "enough", "after": "1s"}]}}`)
	set := New(jobs, wait.Env{Now: func() time.Time { return now }})
	for _, c := range []struct {
		process string
		number  int
		place   string
		want    wait.Status
	}{
		{"Ship", 1, "jobs.Ship", wait.Status{After: 30 * time.Second}},
		{"Fly", 7, "jobs.Fly", wait.Status{Done: true, Fault: fault.New(fault.Job, "fog")}},
		{"Other", 1, "jobs.*.sequence[0]", wait.Status{Done: true, Payload: json.RawMessage(`1`)}},
		{"Other", 2, "jobs.*.sequence[1]", wait.Status{Done: true, Fault: fault.New(fault.Job, "enough")}},
		{"Other", 3, "jobs.*.sequence[2]", wait.Status{Done: true, Fault: fault.New(fault.Job, "job 3 of Other: the sequence that is played has 2")}},
	} {
		spec := wait.Spec{Type: wait.TypeJob, Process: c.process}
		if name := set.Name(spec); name != wait.SourceFixed {
			t.Fatalf("%s: got the source %s", c.process, name)
		}
		spec.Played = jobs.Job(c.process, c.number)
		source, err := set.For(wait.SourceFixed, spec)
		if err != nil || spec.Played.Place != c.place {
			t.Fatalf("%s: %v, %+v", c.process, err, spec.Played)
		}
		got, err := source.Check(t.Context(), wait.Job{Since: noon, Spec: spec})
		if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
			t.Errorf("%s %d: %v %s", c.process, c.number, err, diff)
		}
	}
}
