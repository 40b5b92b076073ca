package sources

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/internal/wait/waittest"
)

var noon = time.Date(2026, 7, 6, 12, 0, 0, 0, time.UTC)

func TestExternalKeepsToItsInterface(t *testing.T) {
	waittest.Run(t, waittest.Case{Source: external{}, Job: wait.Job{TriggerID: "t1", Spec: wait.Spec{Type: wait.TypeJob}}})
}

func TestTimerKeepsToItsInterface(t *testing.T) {
	now, at := noon, noon.Add(time.Hour)
	waittest.Run(t, waittest.Case{
		Source: timer{now: func() time.Time { return now }}, Job: wait.Job{TriggerID: "t1", Spec: wait.Spec{Type: wait.TypeTimer, ResumeAt: &at}},
		End: func() { now = at },
	})
}

func TestExternalOnlyWaits(t *testing.T) {
	src, err := New(nil, wait.Env{}).For("external", wait.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[wait.Type]string{wait.TypeJob: "job-t", wait.TypeTask: "task-t", wait.TypeIxpVsEscalation: "ixp-vs-escalation-t"} {
		if key, err := src.Start(t.Context(), wait.Job{TriggerID: "t", Spec: wait.Spec{Type: spec}}); key != want || err != nil {
			t.Error(key, err)
		}
	}
	if st, err := src.Check(t.Context(), wait.Job{}); st.Done || st.After != 0 || err != nil {
		t.Error(st, err)
	}
}

func TestVector37TimerGivesItsTime(t *testing.T) {
	now := noon.Add(-90 * time.Second)
	at := noon.In(time.FixedZone("", 7200))
	spec := wait.Spec{Type: wait.TypeTimer, ResumeAt: &at}
	src, err := New(nil, wait.Env{Now: func() time.Time { return now }}).For("timer", spec)
	if err != nil {
		t.Fatal(err)
	}
	st, err := src.Check(t.Context(), wait.Job{Spec: spec})
	if diff := cmp.Diff(wait.Status{After: 90 * time.Second}, st); diff != "" || err != nil {
		t.Error(err, diff)
	}
	now = noon
	st, err = src.Check(t.Context(), wait.Job{Spec: spec})
	if !st.Done || string(st.Payload) != `{"resumeTime":"2026-07-06T12:00:00Z"}` || err != nil {
		t.Error(string(st.Payload), err)
	}
}
