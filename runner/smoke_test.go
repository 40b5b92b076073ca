package runner_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/agent"
	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/input"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/store"
	"github.com/evalrun/evalrun/trigger"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "job-supervisor" {
		os.Exit(trigger.SuperviseMain(os.Args[2]))
	}
	os.Exit(m.Run())
}

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	set := &eval.Set{ID: "s", Name: "Set", Epochs: 1, Limits: eval.Limits{Suspensions: 100}}
	set.Evaluators = []eval.Definition{{ID: "contains", Name: "contains", Type: "uipath-contains", Weight: 1, Config: []byte(`{"name":"c"}`)}}
	set.Evaluations = []eval.Evaluation{
		{ID: "a", Name: "A", Inputs: []byte(`{"x":1}`), Criteria: map[string]json.RawMessage{"contains": []byte(`{"searchText":"hello"}`)}},
		{ID: "b", Name: "B", Inputs: []byte(`{"x":2}`), Criteria: map[string]json.RawMessage{"contains": []byte(`{"searchText":"done"}`)}},
	}
	script := `in=$(cat); case "$in" in *'"resume":null'*'"x":2'*|*'"x":2'*'"resume":null'*) echo '{"__interrupt__":[{"id":"i1","value":{"name":"P","input_arguments":{}}}]}';; *'"x":2'*) echo '{"r":"done"}';; *) echo '{"r":"hello"}';; esac`
	entry := agent.FromCommand([]string{"sh", "-c", script})
	var r input.Reader
	n, _ := input.Parse("jobs.json", []byte(`{"P":{"source":"exec","command":["sh","-c","sleep 1; echo '{\"ok\":true}'"]}}`))
	jobs := trigger.ParseJobs(&r, n)
	if err := r.Problems.Err(true); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(filepath.Join(dir, ".evalrun"), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	plan, err := runner.NewPlan(runner.PlanRequest{Set: set, Agents: []agent.Entry{entry}, Jobs: jobs, BaseDir: dir, WorkDir: dir}, s.Dir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.CreateRun(context.Background(), plan); err != nil {
		t.Fatal(err)
	}
	exe, _ := os.Executable()
	run := runner.New(runner.Options{Store: s, RunID: plan.RunID, Concurrency: 2, WorkDir: dir, Executable: exe, Resolve: os.LookupEnv,
		Events: func(e store.Event) { t.Logf("%s %s %s", e.Type, e.RolloutID, e.Data) }})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := run.Run(ctx, runner.UntilFinal); err != nil {
		t.Fatal(err)
	}
	got, err := s.Run(ctx, plan.RunID)
	t.Logf("%+v %v", got, err)
}
