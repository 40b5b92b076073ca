package sqlite_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/store/sqlite"
	"github.com/evalrun/evalrun/internal/testenv"
)

func init() {
	children["create"] = func(dir string) error {
		fmt.Println("ready")
		if _, err := os.Stdin.Read(make([]byte, 1)); err == nil { // until it is closed
			return fmt.Errorf("unexpected input")
		}
		id, created := "", false
		for range 6 { // closing and opening make and remove SQLite's own files
			s, err := sqlite.Open(dir, store.Options{})
			if err != nil {
				return err
			}
			made, err := s.CreateRun(context.Background(), fixedPlan(3))
			id, created = s.ID(), created || made
			if err := errors.Join(err, s.Close()); err != nil {
				return err
			}
		}
		fmt.Println(id, created)
		return nil
	}
	children["work"] = work
}

// fixedPlan is the plan of a run that every process knows.
func fixedPlan(n int) store.Plan {
	p := benchPlan(n)
	p.RunID = "019a0000-0000-7000-8000-000000000000"
	for i := range p.Rollouts {
		p.Rollouts[i].ID = store.RolloutID(p.RunID, p.Evaluations[i].ID, "agent", 1)
	}
	return p
}

func TestProcessesThatMakeOneStoreAtOnce(t *testing.T) {
	for range 2 {
		dir := t.TempDir()
		const n = 4
		outputs := make([]*bufio.Reader, n)
		starts := make([]func(), n)
		waits := make([]func() error, n)
		for i := range n {
			cmd := child(t, "create", dir)
			cmd.Stderr = os.Stderr
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			outputs[i], starts[i], waits[i] = bufio.NewReader(out), func() { _ = in.Close() }, cmd.Wait
			if line, err := outputs[i].ReadString('\n'); err != nil || line != "ready\n" {
				t.Fatal(line, err)
			}
		}
		for _, start := range starts {
			start()
		}
		ids, created := map[string]int{}, 0
		for i := range n {
			line, _ := outputs[i].ReadString('\n') // Wait has the error
			if err := waits[i](); err != nil {
				t.Fatal(err)
			}
			id, made, _ := strings.Cut(strings.TrimSpace(line), " ")
			ids[id]++
			if made == "true" {
				created++
			}
		}
		if len(ids) != 1 || created != 1 {
			t.Fatalf("%d stores, the run was made %d times", len(ids), created)
		}
		run, err := open(t, dir).Run(t.Context(), fixedPlan(3).RunID)
		if err != nil || run.Counts.Total != 3 {
			t.Fatal(run, err)
		}
	}
}

const workRollouts = 15

// work takes the rollouts of the run through a suspension to their end, and says what it has done
// once that is durable.
func work(dir string) (err error) {
	ctx := context.Background()
	s, err := sqlite.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	plan := fixedPlan(workRollouts)
	if _, err := s.CreateRun(ctx, plan); err != nil {
		return err
	}
	fmt.Println("created")
	for {
		run, err := s.Run(ctx, plan.RunID)
		if err != nil {
			return err
		}
		if run.Final() {
			fmt.Println("final")
			return nil
		}
		claims, err := s.Claim(ctx, plan.RunID, 2)
		if err != nil {
			return err
		}
		if len(claims) == 0 {
			err = deliverAll(ctx, s, plan.RunID)
		}
		for _, c := range claims {
			err = errors.Join(err, workOn(ctx, s, c))
		}
		if err != nil {
			return err
		}
	}
}

func workOn(ctx context.Context, s *sqlite.Store, c store.Claim) error {
	fmt.Println("claimed", c.RolloutID)
	trigger := store.TriggerID(c.RolloutID, "i", 0, 0)
	if c.State == eval.StateRunning && c.Segment == 1 {
		if _, err := s.CommitSegment(ctx, c.Token, store.SegmentEnd{Outcome: store.OutcomeSuspended, Triggers: []store.NewTrigger{
			{InterruptID: "i", Source: "inbox", ItemKey: "key-" + c.RolloutID}}}); err != nil {
			return err
		}
		fmt.Println("suspended", c.RolloutID)
		return deliverAll(ctx, s, c.RunID)
	}
	if c.State == eval.StateRunning {
		if len(c.Deliveries) != 1 || c.Deliveries[0].ID != trigger {
			return fmt.Errorf("resumed with %+v", c.Deliveries)
		}
		if _, err := s.CommitSegment(ctx, c.Token, store.SegmentEnd{Outcome: store.OutcomeCompleted, Output: json.RawMessage(`1`)}); err != nil {
			return err
		}
		fmt.Println("ended", c.RolloutID)
	}
	if len(c.Results) == 0 {
		if err := s.RecordResult(ctx, c.Token, store.Result{EvaluatorID: "e", Data: json.RawMessage(`[]`)}); err != nil {
			return err
		}
		fmt.Println("result", c.RolloutID)
	}
	if err := s.Finish(ctx, c.Token, nil); err != nil {
		return err
	}
	fmt.Println("finished", c.RolloutID)
	return nil
}

// deliverAll delivers for everything that waits; also what a killed process suspended and did not
// come to deliver for.
func deliverAll(ctx context.Context, s *sqlite.Store, runID string) error {
	var keys []string
	if err := s.Triggers(ctx, runID, false, func(g store.Trigger) error { keys = append(keys, g.ItemKey); return nil }); err != nil {
		return err
	}
	for _, key := range keys {
		if _, err := s.Deliver(ctx, store.Delivery{Source: "inbox", ItemKey: key, Status: store.StatusSuccessful}); err != nil {
			return err
		}
		fmt.Println("delivered", key)
	}
	return nil
}

// A process is killed at any moment, again and again. The next one goes on, and nothing that was
// said to be durable is lost or done twice.
func TestKilledProcesses(t *testing.T) {
	testenv.NeedSlow(t)
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(uint64(os.Getpid()), 5))
	said := map[string]int{}
	kills := 0
	for final := false; !final; {
		cmd := child(t, "work", dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 1 + r.IntN(14); lines.Scan(); n-- {
			said[lines.Text()]++
			final = final || lines.Text() == "final"
			if n == 0 {
				_ = cmd.Process.Kill() // it may have ended
				kills++
			}
		}
		if err := cmd.Wait(); err != nil && err.Error() != "signal: killed" {
			t.Fatal(err)
		}
		if final && kills < 5 {
			t.Fatalf("it was killed only %d times", kills)
		}
	}
	s := open(t, dir)
	var total int
	err := s.Snapshot(t.Context(), fixedPlan(1).RunID, func(v store.View) error {
		return v.Rollouts(func(o store.RolloutView) error {
			total++
			if o.State != eval.StateCompleted || len(o.Results) != 1 || o.Segment != 2 || len(o.Triggers) != 1 || o.Triggers[0].State != store.TriggerConsumed {
				t.Errorf("%+v", o)
			}
			for _, what := range []string{"suspended ", "delivered key-", "ended ", "result ", "finished "} {
				if n := said[what+o.ID]; n > 1 {
					t.Errorf("%s%s: %d times", what, o.ID, n)
				}
			}
			return nil
		})
	})
	if err != nil || total != workRollouts {
		t.Fatal(total, err)
	}
	checkEvents(t, s, fixedPlan(1).RunID)
	var ok string
	if err := database(t, dir).QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&ok); err != nil || ok != "ok" {
		t.Fatal(ok, err)
	}
}

func checkEvents(t *testing.T, s *sqlite.Store, runID string) {
	t.Helper()
	events, err := s.Events(t.Context(), runID, 0, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	finished := map[string]int{}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Fatalf("event %d has the number %d", i+1, e.Seq)
		}
		if e.Type == store.RolloutFinished || e.Type == store.RunFinished {
			finished[e.RolloutID]++
		}
	}
	for id, n := range finished {
		if n != 1 {
			t.Errorf("%q finished %d times", id, n)
		}
	}
	if len(finished) != workRollouts+1 {
		t.Errorf("%d ends", len(finished))
	}
}
