package evalset_test

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evalset"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/summary"
)

// seeds adds UiPath's own files to a corpus, if they are there.
func seeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(filepath.Join("../../../shared/data/uipath", pattern))
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
}

// Whatever the bytes are, Parse does not panic, says why it gives no set, and gives one that can be
// stored and whose evaluators can be made.
func FuzzLoadSet(f *testing.F) {
	seeds(f, "*/evaluations/eval-sets/*.json")
	f.Add([]byte(ownSet))
	f.Add([]byte(`{"version":"1.0","id":"s","name":"S","evaluations":[{"id":"1","name":"n","inputs":{},"evaluationCriterias":{"has":null}}],"evaluatorRefs":["has"]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, name := range []string{"s.json", "s.yaml"} {
			set, problems, err := evalset.Parse(name, data, folder())
			if (set == nil) != (err != nil) || (err != nil) != (problems.Err(false) != nil) {
				t.Fatalf("set %v, error %v, problems %v", set != nil, err, problems)
			}
			if set == nil {
				continue
			}
			roundTrips(t, set)
			for _, def := range set.Evaluators {
				if _, err := kinds.All.New(def); err != nil {
					t.Errorf("loaded, but: %v", err)
				}
			}
		}
	})
}

// Whatever an evaluator file, its criteria, the agent's output and trace are: no panic, and a score
// from 0 to the scale.
func FuzzEvaluatorFile(f *testing.F) {
	seeds(f, "*/evaluations/evaluators/*.json")
	f.Add([]byte(`{"id":"l","category":0,"type":10,"targetSubOutputKey":"a","lineByLineEvaluation":true}`))
	f.Add([]byte(`{"id":"x","version":"1.0","evaluatorTypeId":"uipath-exact-match","evaluatorConfig":{"lineByLineEvaluator":true,"classes":["a"]},"output":"a\nb","criteria":{"expectedOutput":"a"}}`))
	f.Add([]byte(`{"id":"x","version":"1.0","evaluatorTypeId":"uipath-tool-call-order","criteria":{"toolCallsOrder":["a"]},"trace":[{"attributes":{"tool.name":"a","input.value":"{'a': 1}"}}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		def, _, err := evalset.ParseEvaluator("e.json", data)
		if err != nil || def.Type == "command" {
			return
		}
		e, err := kinds.All.New(def)
		if err != nil {
			t.Fatalf("parsed, but: %v", err)
		}
		var more struct {
			Criteria, Output json.RawMessage
			Trace            []json.RawMessage
		}
		_ = json.Unmarshal(data, &more) // the rest of the document is the rollout, where it is one
		results := e.Evaluate(context.Background(), eval.Subject{
			Evaluation: eval.Evaluation{Criteria: map[string]json.RawMessage{def.ID: more.Criteria}}, Output: more.Output, Trace: [][]json.RawMessage{more.Trace},
		}).Results
		for _, r := range results {
			if r.NotRun == "" && (r.Score == nil || math.IsNaN(*r.Score) || *r.Score < 0 || *r.Score > r.Scale) {
				t.Errorf("%+v", r)
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		}
		statistics := summary.New(&eval.Set{Evaluators: []eval.Definition{def}}, kinds.All)
		statistics.Add(summary.Rollout{State: eval.StateCompleted, Results: results})
		if _, err := json.Marshal(statistics.Summary()); err != nil {
			t.Error(err)
		}
	})
}

// The whole folder of evaluators is as hostile as a single file.
func FuzzEvaluatorFolder(f *testing.F) {
	f.Add([]byte(`{"id":"has"}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		_, _, _ = evalset.Parse("s.json", []byte(`{"version":"1.0","id":"s","name":"S","evaluatorRefs":["has"],"evaluations":[]}`),
			fstest.MapFS{"has.json": {Data: data}, "dir.json/x": {Data: data}})
	})
}
