package eval_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/summary"
)

// Load an eval set, score what an agent answered, and sum up.
func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "greeter.yaml")
	err = os.WriteFile(path, []byte(`
version: "1.0"
id: greeter
name: Greeter
evaluators:
  - id: polite
    version: "1.0"
    evaluatorTypeId: uipath-contains
    evaluatorConfig: {targetOutputKey: message}
  - id: similar
    version: "1.0"
    evaluatorTypeId: uipath-json-similarity
evaluations:
  - id: formal
    name: A formal greeting
    inputs: {name: Alice}
    expectedOutput: {message: "Good day, Alice."}
    evaluationCriterias:
      polite: {searchText: good day}
      similar: null
`), 0o600)
	if err != nil {
		log.Fatal(err)
	}

	set, problems, err := evalset.Load(path)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range problems {
		fmt.Println(p)
	}

	statistics := summary.New(set, kinds.All)
	for _, evaluation := range set.Evaluations {
		rollout := summary.Rollout{EvaluationID: evaluation.ID, Agent: "greeter", Epoch: 1, State: eval.StateCompleted}
		subject := eval.Subject{Evaluation: evaluation, Agent: "greeter", Epoch: 1, Output: json.RawMessage(`{"message":"Good day, Alicia"}`)}
		for _, def := range set.Evaluators {
			evaluator, err := kinds.All.New(def)
			if err != nil {
				log.Fatal(err)
			}
			rollout.Results = append(rollout.Results, evaluator.Evaluate(context.Background(), subject).Results...)
		}
		for _, r := range rollout.Results {
			fmt.Printf("%s %s: %.4f %s\n", evaluation.ID, r.EvaluatorID, *r.Score, r.Details)
		}
		statistics.Add(rollout)
	}
	fmt.Printf("score %.4f\n", *statistics.Summary().Score.Mean)
	// Output:
	// formal polite: 1.0000 {"expected":"good day","actual":"good day, alicia"}
	// formal similar: 0.8750 {"expected":"{'message': 'Good day, Alice.'}","actual":"{'message': 'Good day, Alicia'}","matched_leaves":0.875,"total_leaves":1}
	// score 0.9375
}
