package sqlite

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/rules"
)

// statements are the queries that the store's own connection has prepared so far.
func statements(t *testing.T, s opened) (out []string) {
	t.Helper()
	if err := s.Write(t.Context(), "try", func(tx *rules.Tx) error {
		out = tx.Prepared()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// exercise does everything that a dispatcher does over and over.
func exercise(t *testing.T, s opened) {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	p := store.Plan{RunID: store.NewRunID(), Evaluations: []store.Evaluation{{ID: "e"}}}
	for i := range 5 {
		p.Rollouts = append(p.Rollouts, store.PlannedRollout{ID: store.RolloutID(p.RunID, "e", "a", i)})
	}
	_, err := s.CreateRun(ctx, p)
	must(err)
	for _, end := range []store.SegmentEnd{
		{Outcome: store.OutcomeInterrupted}, {Outcome: store.OutcomeFailed, Retry: true},
		{Outcome: store.OutcomeSuspended, SuspendTimeout: time.Hour, Triggers: []store.NewTrigger{{InterruptID: "i", Source: "s", ItemKey: "k", Checked: true, Start: true}, {InterruptID: "i", Source: "s", ItemKey: "k2"}}},
		{Outcome: store.OutcomeCompleted}, {Outcome: store.OutcomeFailed},
	} {
		claims, err := s.Claim(ctx, p.RunID, 1)
		must(err)
		c := claims[0]
		_, err = s.CommitSegment(ctx, c.Token, end)
		must(err)
		if end.Outcome == store.OutcomeCompleted {
			must(s.RecordResult(ctx, c.Token, store.Result{EvaluatorID: "e"}))
			must(s.Finish(ctx, c.Token, nil))
			exerciseRescorings(t, s, p.RunID, c.RolloutID)
		}
		triggers, err := s.ClaimTriggers(ctx, "", 1)
		must(err)
		for _, g := range triggers {
			if g.Action == store.ActionCancel {
				continue
			}
			must(s.TriggerFailed(ctx, g.TriggerToken, 0, store.TriggerFailure{NotStarted: true}))
			again, err := s.ClaimTriggers(ctx, "", 1)
			must(err)
			g = again[0]
			must(s.TriggerStarted(ctx, g.TriggerToken, "job", 0))
			must(s.CheckTrigger(ctx, g.TriggerID))
			_, err = s.Deliver(ctx, store.Delivery{Source: "s", ItemKey: "job", Status: store.StatusSuccessful})
			must(err)
			_, err = s.Deliver(ctx, store.Delivery{TriggerID: g.TriggerID, Status: store.StatusSuccessful})
			must(err)
			_, err = s.Deliver(ctx, store.Delivery{Source: "s", ItemKey: "none", Status: store.StatusSuccessful})
			must(err)
		}
		_, _, err = s.Renew(ctx, store.Tokens{})
		must(err)
	}
	_, err = s.Cancel(ctx, p.RunID)
	must(err)
	exerciseBatches(t, s)
	exerciseJobs(t, s)
	exerciseOutbox(t, s)
	must(s.Remove(ctx, p.RunID))
}

func exerciseBatches(t *testing.T, s opened) {
	t.Helper()
	p := store.Plan{RunID: store.NewRunID(), Evaluations: []store.Evaluation{{ID: "e"}}, Rollouts: []store.PlannedRollout{{ID: uuid.NewString()}}}
	_, err := s.CreateRun(t.Context(), p)
	claims, err1 := s.Claim(t.Context(), p.RunID, 1)
	if err := errors.Join(err, err1); err != nil {
		t.Fatal(err)
	}
	_, err = s.CommitSegment(t.Context(), claims[0].Token, store.SegmentEnd{Outcome: store.OutcomeCompleted})
	_, err1 = s.WaitForScores(t.Context(), claims[0].Token, store.ScoreWait{Triggers: []store.NewTrigger{{InterruptID: "k", EvaluatorID: "e", Source: "openai-batch", ItemKey: "k",
		Request: &store.BatchRequest{Provider: "p", Model: "m", Body: []byte("{}"), Wait: time.Hour}}}})
	started, err2 := s.ClaimBatches(t.Context(), p.RunID, 1)
	if err := errors.Join(err, err1, err2); err != nil || len(started) != 1 {
		t.Fatal(started, err)
	}
	err = s.BatchStarted(t.Context(), started[0].BatchToken, "b", 0)
	checked, err1 := s.ClaimBatches(t.Context(), p.RunID, 1)
	if err := errors.Join(err, err1); err != nil || len(checked) != 1 {
		t.Fatal(checked, err)
	}
	err = s.BatchPending(t.Context(), checked[0].BatchToken, 0, "")
	err1 = s.CheckNow(t.Context(), p.RunID)
	ended, err2 := s.ClaimBatches(t.Context(), p.RunID, 1)
	if err := errors.Join(err, err1, err2); err != nil || len(ended) != 1 {
		t.Fatal(ended, err)
	}
	if err := s.BatchEnded(t.Context(), ended[0].BatchToken); err != nil {
		t.Fatal(err)
	}
}

func exerciseJobs(t *testing.T, s opened) {
	t.Helper()
	p := store.Plan{RunID: store.NewRunID(), Evaluations: []store.Evaluation{{ID: "e"}}, Rollouts: []store.PlannedRollout{{ID: uuid.NewString()}}}
	p.Job = &store.NewJob{Capability: "c", Deadline: time.Now().Add(time.Hour)}
	_, err1 := s.CreateRun(t.Context(), p)
	_, err2 := s.PostJobEvent(t.Context(), store.JobEvent{JobID: p.RunID, Type: "t"}, nil)
	_, err3 := s.CancelJob(t.Context(), p.RunID, "", time.Minute)
	_, err4 := s.EndDueJobs(t.Context())
	_, err5 := s.ForgetJobs(t.Context(), time.Hour, 1)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		t.Fatal(err)
	}
}

func exerciseOutbox(t *testing.T, s opened) {
	t.Helper()
	targets := []store.NotifyTarget{{ID: "t", Types: store.NotifiedEvents}}
	err := s.AddTargets(t.Context(), targets, time.Hour)
	for range 2 {
		_, err1 := s.CreateRun(t.Context(), store.Plan{RunID: store.NewRunID(), Notify: targets})
		err = errors.Join(err, err1)
	}
	_, err1 := s.NextNotification(t.Context(), nil)
	claimed, err2 := s.ClaimNotifications(t.Context(), []string{"t"}, nil, 10, time.Minute)
	if err := errors.Join(err, err1, err2); err != nil || len(claimed) < 2 {
		t.Fatal(claimed, err)
	}
	if err := errors.Join(s.NotificationSent(t.Context(), claimed[0]), s.NotificationFailed(t.Context(), claimed[1], store.NotificationFailure{})); err != nil {
		t.Fatal(err)
	}
}

func exerciseRescorings(t *testing.T, s opened, runID, completed string) {
	t.Helper()
	n, err := s.BeginRescoring(t.Context(), store.NewRescoring{RunID: runID, Evaluations: []store.Evaluation{{ID: "e"}}})
	if err == nil {
		n, err = s.BeginRescoring(t.Context(), store.NewRescoring{RunID: runID, After: n, Rollouts: []string{completed}})
	}
	if err := errors.Join(err, s.Rescore(t.Context(), runID, n, store.Rescored{RolloutID: completed, Results: []store.Result{{EvaluatorID: "e"}}})); err != nil {
		t.Fatal(err)
	}
}

// No statement of the store looks at every row of a table that grows: only at those that are
// runnable, due, held or open, which have indexes of their own.
func TestStatementsScanNoTable(t *testing.T) {
	s := openInternal(t, t.TempDir())
	exercise(t, s)
	queries := statements(t, s)
	if len(queries) < 40 {
		t.Fatalf("only %d statements", len(queries))
	}
	queries = append(queries, rules.Statements()...) // R6
	// These may be scanned, for these tell only of what is going on at the moment.
	small := []string{"INDEX rollouts_runnable", "INDEX rollouts_owner", "INDEX triggers_due", "INDEX judge_batches_due", "INDEX judge_batches_owner", "INDEX judge_batches_open", "INDEX triggers_owner", "INDEX triggers_open", "INDEX triggers_listed", "INDEX runs_open", "INDEX deliveries_old", "INDEX jobs_due",
		"SCAN h", "SCAN holders", "SCAN json_each", "VIRTUAL TABLE", "CONSTANT ROW", "SCAN (subquery", "SCAN going_on", "INDEX rollouts_lanes",
		// One row for each lane.
		"SCAN one", "SCAN l", "SCAN lanes", "SCAN all_lanes", "SCAN limits", "SCAN workers"}
	for _, q := range queries {
		if !slices.ContainsFunc([]string{"SELECT", "UPDATE", "DELETE"}, func(verb string) bool { return strings.HasPrefix(q, verb) }) {
			continue
		}
		for _, step := range explain(t, s, q) {
			if strings.HasPrefix(step, "SCAN") && !slices.ContainsFunc(small, func(text string) bool { return strings.Contains(step, text) }) {
				t.Errorf("%s\n\tin %s", step, q)
			}
		}
	}
}

// The next lane is found by its place in the index. A lane of 10,000 rollouts would be read else.
func TestLanesAreNotRead(t *testing.T) {
	s := openInternal(t, t.TempDir())
	exercise(t, s) // claims of one run
	if _, err := s.Claim(t.Context(), "", 1); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, q := range statements(t, s) {
		if !strings.Contains(q, "RECURSIVE lanes") {
			continue
		}
		found++
		if !slices.ContainsFunc(explain(t, s, q), func(step string) bool { return strings.Contains(step, "tags,state,runnable_at)>(") }) {
			t.Errorf("it reads each lane: %s", q)
		}
	}
	if found != 2 {
		t.Errorf("%d queries look for lanes", found)
	}
}

// R8. A later version may add columns, and an earlier one must still be able to write.
func TestInsertsNameTheirColumns(t *testing.T) {
	s := openInternal(t, t.TempDir())
	exercise(t, s)
	found := 0
	for _, q := range statements(t, s) {
		if strings.HasPrefix(q, "INSERT") {
			found++
			if !regexp.MustCompile(`^INSERT (OR \w+ )?INTO \w+ \(`).MatchString(q) {
				t.Errorf("the columns are not named: %s", q)
			}
		}
	}
	if found < 9 {
		t.Errorf("only %d statements insert", found)
	}
}

func TestClaimsAreInTheOrderOfTheirIndex(t *testing.T) {
	s := openInternal(t, t.TempDir())
	exercise(t, s)
	found := 0
	for _, q := range statements(t, s) {
		if strings.Contains(q, "WHERE runnable_at <=") || strings.Contains(q, "WHERE t.due_at <=") {
			found++
			for _, step := range explain(t, s, q) {
				if strings.Contains(step, "TEMP B-TREE") {
					t.Errorf("everything that is runnable or due is sorted: %s", q)
				}
			}
		}
	}
	if found != 3 {
		t.Errorf("%d statements claim", found)
	}
}

// A view of a large run is read row by row.
func TestAViewSortsNoRollouts(t *testing.T) {
	s := openInternal(t, t.TempDir())
	for _, q := range rules.ViewStatements() {
		if slices.Contains(explain(t, s, q), "USE TEMP B-TREE FOR ORDER BY") {
			t.Errorf("everything is sorted: %s", q)
		}
	}
}

// The lanes are found without reading all that is in them.
func TestLanesAreSearched(t *testing.T) {
	s := openInternal(t, t.TempDir())
	found := 0
	for _, q := range rules.Statements() {
		for _, step := range explain(t, s, q) {
			if strings.Contains(step, "rollouts_lanes") && strings.Contains(step, "(?,?,?") {
				found++
			}
		}
	}
	if found != 2 {
		t.Errorf("%d statements search by all columns", found)
	}
}

func explain(t *testing.T, s opened, query string) (steps []string) {
	t.Helper()
	args := make([]any, 16) // the plan does not depend on them; those too many are ignored
	rows, err := s.read.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return steps
}
