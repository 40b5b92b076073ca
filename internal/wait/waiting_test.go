package wait

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestExternalOnlyWaits(t *testing.T) {
	src, err := NewSources(Options{}).For("external", Spec{})
	if err != nil {
		t.Fatal(err)
	}
	for spec, want := range map[Type]string{TypeJob: "job-t", TypeTask: "task-t", TypeIxpVsEscalation: "ixp-vs-escalation-t"} {
		if key, err := src.Start(t.Context(), Job{TriggerID: "t", Spec: Spec{Type: spec}}); key != want || err != nil {
			t.Error(key, err)
		}
	}
	if st, err := src.Check(t.Context(), Job{}); st.Done || st.After != 0 || err != nil {
		t.Error(st, err)
	}
}

func TestVector37TimerGivesItsTime(t *testing.T) {
	now := noon.Add(-90 * time.Second)
	at := noon.In(time.FixedZone("", 7200))
	spec := Spec{Type: TypeTimer, ResumeAt: &at}
	src, err := NewSources(Options{Now: func() time.Time { return now }}).For("timer", spec)
	if err != nil {
		t.Fatal(err)
	}
	st, err := src.Check(t.Context(), Job{Spec: spec})
	if diff := cmp.Diff(Status{After: 90 * time.Second}, st); diff != "" || err != nil {
		t.Error(err, diff)
	}
	now = noon
	st, err = src.Check(t.Context(), Job{Spec: spec})
	if !st.Done || string(st.Payload) != `{"resumeTime":"2026-07-06T12:00:00Z"}` || err != nil {
		t.Error(string(st.Payload), err)
	}
}
