package judged

import (
	"encoding/json"
	"errors"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/jsonobj"
)

// readReference reads the run with which a judge compares; nil means the expected output.
func readReference(c *evaluator.Config) *eval.ReferenceRun {
	n := c.Get("reference")
	switch {
	case n == nil || n.Kind == input.Null || n.Kind == input.String && n.Text == referenceExpected:
		return nil
	case n.Kind != input.Object:
		c.Errorf(n, `expected "expected", the evaluation's expected output, or {"run": ID}, the outputs of another run`)
		return nil
	}
	f := c.Object(n)
	out := &eval.ReferenceRun{Run: f.RequiredString("run"), Agent: f.String("agent", "")}
	f.Done()
	return out
}

// comparedWith is the output with which another one is compared.
type comparedWith struct {
	output json.RawMessage
	// rolloutID is the rollout whose output it is, empty for an expected output.
	rolloutID string
}

// expectedOf returns the expected output.
func expectedOf(criteria *pyvalue.Object) (out comparedWith, err error) {
	v, ok := criteria.Values["expectedOutput"]
	if !ok {
		return out, errors.New("the output is compared with the expected one, and the evaluation has no expectedOutput")
	}
	out.output, err = jsonobj.Marshal(v)
	return out, err
}

// referenceOf returns the output of another run with which an evaluator compares that of the
// rollout. The error is a NotAsked if there is none.
func referenceOf(s eval.Subject, evaluator string) (comparedWith, error) {
	for _, one := range s.Evaluation.References[evaluator] {
		if one.Agent != "" && one.Agent != s.Agent || one.Epoch != 0 && one.Epoch != s.Epoch {
			continue
		}
		if one.Missing != "" {
			return comparedWith{}, &eval.NotAsked{Reason: one.Missing}
		}
		return comparedWith{one.Output, one.RolloutID}, nil
	}
	return comparedWith{}, &eval.NotAsked{Reason: "no run was looked up with which it could be compared"}
}

// referenceExpected is the default reference of a pairwise judge: the evaluation's expected output.
const referenceExpected = "expected"
