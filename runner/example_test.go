package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// TestMain lets the test binary be the agent of the examples.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "agent" {
		os.Exit(agent(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// agent is a function agent: it adds two numbers, after a person has said that it may if the input
// asks for that. evalrun gives it one JSON object on stdin and reads one from stdout.
func agent(in io.Reader, out io.Writer) int {
	var request struct {
		Input struct {
			A, B int
			Ask  bool
		}
		Resume map[string]json.RawMessage
	}
	if err := json.NewDecoder(in).Decode(&request); err != nil {
		return 1
	}
	answer := map[string]any{"sum": request.Input.A + request.Input.B}
	if request.Input.Ask && request.Resume == nil {
		answer = map[string]any{"__interrupt__": map[string]any{"id": "may-i", "value": map[string]any{"title": "May I add?"}}}
	}
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		return 1
	}
	return 0
}

// The eval set of the examples. With ask the agent asks a person first.
func evalSet(ask bool) string {
	dir, err := os.MkdirTemp("", "runner-example-")
	check(err)
	path := filepath.Join(dir, "evalset.json")
	check(os.WriteFile(path, fmt.Appendf(nil, `{"version": "1.0", "id": "sums", "name": "Sums",
		"evaluators": [{"id": "exact", "evaluatorTypeId": "uipath-exact-match", "evaluatorConfig": {"targetOutputKey": "sum"}}],
		"evaluations": [{"id": "small", "name": "Small numbers", "inputs": {"a": 1, "b": 2, "ask": %t},
			"evaluationCriterias": {"exact": {"expectedOutput": {"sum": 3}}}}]}`, ask), 0o600))
	return path
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// begin opens a store beside the eval set and creates a run.
func begin(path string) (*runner.Store, runner.Created) {
	set, err := runner.Load([]string{path}, runner.LoadOptions{Command: []string{os.Args[0], "agent"}})
	check(err)
	store, err := runner.Open(filepath.Join(filepath.Dir(path), "store"), runner.OpenOptions{})
	check(err)
	run, err := store.Create(context.Background(), set, runner.CreateOptions{})
	check(err)
	return store, run
}

// end closes the store and removes what an example has made.
func end(path string, store *runner.Store) {
	check(store.Close())
	check(os.RemoveAll(filepath.Dir(path)))
}

// waiting is the first trigger that a run waits for.
func waiting(store *runner.Store, runID string) (first runner.Trigger) {
	check(store.Triggers(context.Background(), runID, false, func(t runner.Trigger) error {
		first = t
		return nil
	}))
	return first
}

// Runs an eval set against a program of one's own, from the beginning to the verdict.
func Example() {
	ctx, path := context.Background(), evalSet(false)
	defer os.RemoveAll(filepath.Dir(path))

	store, err := runner.Open(filepath.Join(filepath.Dir(path), "store"), runner.OpenOptions{})
	check(err)
	defer store.Close()

	set, err := runner.Load([]string{path}, runner.LoadOptions{Command: []string{os.Args[0], "agent"}})
	check(err)
	run, err := store.Create(ctx, set, runner.CreateOptions{})
	check(err)
	result, err := store.Run(ctx, run.RunID, runner.RunOptions{})
	check(err)

	fmt.Println(run.Rollouts, "rollout,", result.Verdict)
	// Output: 1 rollout, finished
}

// A store that is not there is an error of the input, unless a run makes it.
func ExampleOpen() {
	_, err := runner.Open("nowhere", runner.OpenOptions{MustExist: true})
	fmt.Println(errors.As(err, new(*runner.InputError)), err)
	// Output: true there is no store in nowhere; give its folder with --store, or start a run there first
}

// What is wrong with an eval set is said with its position in the file.
func ExampleLoad() {
	path := evalSet(false)
	defer os.RemoveAll(filepath.Dir(path))

	set, err := runner.Load([]string{path}, runner.LoadOptions{Command: []string{os.Args[0], "agent"}})
	check(err)
	fmt.Println(set.Name(), set.Len())

	_, err = runner.Load([]string{path}, runner.LoadOptions{})
	fmt.Println(errors.As(err, new(*runner.InputError)))
	// Output:
	// Sums 1
	// true
}

// Watches the events of a run.
func ExampleStore_Run() {
	path := evalSet(false)
	store, run := begin(path)
	defer end(path, store)

	_, err := store.Run(context.Background(), run.RunID, runner.RunOptions{Options: runner.Options{Events: func(e schemas.Event) {
		data, err := e.Decode()
		check(err)
		switch data := data.(type) {
		case *schemas.RolloutStarted:
			fmt.Println("started", data.EvaluationName)
		case *schemas.RolloutFinished:
			fmt.Println(data.State, *data.Score)
		}
	}}})
	check(err)
	// Output:
	// started Small numbers
	// completed 1
}

// Goes on with a run that a person has answered.
func ExampleStore_Resume() {
	ctx, path := context.Background(), evalSet(true)
	store, run := begin(path)
	defer end(path, store)

	result, err := store.Run(ctx, run.RunID, runner.RunOptions{})
	check(err)
	fmt.Println(result.Verdict)

	_, err = store.Deliver(ctx, waiting(store, run.RunID).TriggerID, runner.Delivery{Payload: json.RawMessage(`{"approved": true}`), By: "example"})
	check(err)
	result, err = store.Resume(ctx, run.RunID, runner.RunOptions{})
	check(err)
	fmt.Println(result.Verdict)
	// Output:
	// suspended
	// finished
}

// Looks after all runs of a store until its context ends.
func ExampleStore_Execute() {
	path := evalSet(true)
	store, run := begin(path)
	defer end(path, store)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := store.Execute(ctx, runner.ExecuteOptions{Options: runner.Options{Events: func(e schemas.Event) {
		fmt.Println(e.Type)
		switch e.Type {
		case schemas.EventRolloutSuspended:
			_, err := store.Deliver(ctx, waiting(store, run.RunID).TriggerID, runner.Delivery{Payload: json.RawMessage(`{}`), By: "example"})
			check(err)
		case schemas.EventRunFinished:
			cancel()
		}
	}}})
	check(err)
	// Output:
	// run.created
	// rollout.started
	// rollout.suspended
	// trigger.delivered
	// rollout.resumed
	// rollout.evaluated
	// rollout.finished
	// run.finished
}

// Hands in what a rollout waits for; the first delivery counts.
func ExampleStore_Deliver() {
	ctx, path := context.Background(), evalSet(true)
	store, run := begin(path)
	defer end(path, store)
	_, err := store.Run(ctx, run.RunID, runner.RunOptions{})
	check(err)

	trigger := waiting(store, run.RunID)
	for range 2 {
		receipt, err := store.Deliver(ctx, trigger.TriggerID, runner.Delivery{Payload: json.RawMessage(`{"approved": true}`), By: "example"})
		check(err)
		fmt.Println(receipt.Disposition)
	}
	// Output:
	// accepted
	// duplicate
}

// Cancels what waits.
func ExampleStore_Cancel() {
	ctx, path := context.Background(), evalSet(true)
	store, run := begin(path)
	defer end(path, store)
	_, err := store.Run(ctx, run.RunID, runner.RunOptions{})
	check(err)

	n, err := store.Cancel(ctx, run.RunID, runner.CancelOptions{})
	check(err)
	there, err := store.Find(ctx, run.RunID)
	check(err)
	fmt.Println(n, there.Status, there.Final)
	// Output: 1 cancelled true
}

// Writes the results of a run in another format, and reads a results document.
func ExampleStore_Report() {
	ctx, path := context.Background(), evalSet(false)
	store, run := begin(path)
	defer end(path, store)
	_, err := store.Run(ctx, run.RunID, runner.RunOptions{})
	check(err)

	check(store.Report(ctx, run.RunID, runner.Variables{}, func(r *runner.Report) error {
		fmt.Println(r.Head().Status, *r.Head().Summary.Score)
		return r.Write(io.Discard, "junit")
	}))
	check(runner.OpenReport(store.DocumentPath(run.RunID), func(r *runner.Report) error {
		return r.Rollouts(func(one *schemas.Rollout) error {
			fmt.Println(one.EvaluationName, one.Status)
			return nil
		})
	}))
	// Output:
	// successful 1
	// Small numbers completed
}

// Scores what a run has stored again, with corrected criteria and without its agent.
func ExampleStore_Score() {
	ctx, path := context.Background(), evalSet(false)
	store, run := begin(path)
	defer end(path, store)
	_, err := store.Run(ctx, run.RunID, runner.RunOptions{})
	check(err)

	set, err := os.ReadFile(path)
	check(err)
	wrong := filepath.Join(filepath.Dir(path), "wrong.json")
	check(os.WriteFile(wrong, bytes.Replace(set, []byte(`"sum": 3`), []byte(`"sum": 4`), 1), 0o600))
	for _, evaluators := range []string{wrong, path} {
		scored, err := store.Score(ctx, run.RunID, runner.ScoreOptions{Evaluators: evaluators})
		check(err)
		check(store.Report(ctx, run.RunID, runner.Variables{}, func(r *runner.Report) error {
			fmt.Println(scored.Number, *r.Head().Summary.Score)
			return nil
		}))
	}
	// Output:
	// 1 0
	// 2 1
}
