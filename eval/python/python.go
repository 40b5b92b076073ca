// Package python has the evaluators that are written in Python: a function of the user's, which
// evalrun calls in a worker that is kept. It knows what is asked of the worker and what its answers
// mean; what runs it comes with the subject.
package python

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// Type is the type of the evaluator that is a function in Python.
const Type = "python"

// Kinds has the one kind of evaluator that is a function in Python.
var Kinds = evaluator.Kinds{Type: functionType}

var functionType = evaluator.Kind{
	KeysBeside: true,
	Read:       function,
	About: "Calls your own function, which returns a score: [python-evaluators.md](python-evaluators.md). " +
		"Parameters that are not a part of the rollout are keys of the criteria.",
	Keys: []evaluator.Key{
		{Name: "function", Kind: input.String, Required: true,
			About: "`FILE.py:NAME`, relative to the folder in which the evaluator is defined, or `module:NAME`"},
		{Name: "python", Kind: input.String,
			About: "the interpreter: a path relative to that folder, or a name in `PATH`; that of the project if it is missing"},
	},
}

// place matches FILE.py:NAME and module:NAME.
var place = regexp.MustCompile(`^([^:]+\.py|[A-Za-z_][\w.]*):[A-Za-z_][\w.]*$`)

// config is the configuration of a function.
type config struct {
	Function string `json:"function"`
	Python   string `json:"python"`
}

func function(e *evaluator.Evaluator, c *evaluator.Config) {
	name := c.String("function")
	c.String("python")
	if n := c.Get("function"); n != nil && name != "" && !place.MatchString(name) {
		c.Errorf(n, "expected a function as FILE.py:NAME or module:NAME, got %q", name)
	}
	e.CriteriaOptional = true
	call := func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object,
		deliveries map[string]eval.Delivery) evaluator.Outcome {
		document, err := evaluator.Document(s, criteria, deliveries)
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		code := Of(e.Def, s.Dir)
		answer, err := do(ctx, s.Python, code, "evaluate", map[string]any{
			"evaluator": code.definition, "document": json.RawMessage(document)})
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		return evaluator.Answered(answer)
	}
	e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		return call(ctx, s, criteria, nil)
	}
	e.Continue = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object,
		deliveries map[string]eval.Delivery) evaluator.Outcome {
		if err := evaluator.Undelivered(deliveries); err != nil {
			return evaluator.Outcome{Failure: err}
		}
		return call(ctx, s, criteria, deliveries)
	}
}

// Is reports whether an evaluator is code in Python.
func Is(def eval.Definition) bool { return def.Type == Type }

// Code is the code of an evaluator.
type Code struct {
	eval.Code
	// File is the file with the code, absolute; empty if it is a module that Python looks for.
	File string
	// definition tells the worker what is to be called.
	definition any
}

// Of returns the code of an evaluator that is in Python. dir is the folder of the eval set.
func Of(def eval.Definition, dir string) Code {
	var c config
	_ = json.Unmarshal(def.Config, &c) // it has been checked
	if dir = filepath.FromSlash(dir); filepath.IsAbs(def.Dir) {
		dir = def.Dir
	} else {
		dir = filepath.Join(dir, filepath.FromSlash(def.Dir))
	}
	code := Code{Code: eval.Code{Kind: "evaluators", Dir: dir, Interpreter: c.Python}}
	file, name, _ := strings.Cut(c.Function, ":")
	if strings.HasSuffix(file, ".py") {
		if code.File = filepath.FromSlash(file); !filepath.IsAbs(file) {
			code.File = filepath.Join(dir, code.File)
		}
		file = code.File
	}
	code.definition = map[string]string{"place": file + ":" + name}
	return code
}

// Check asks a worker about the code of an evaluator: that it can be loaded, and that it can do with
// each of these criteria. It returns a problem for each of the criteria, empty if there is none.
func Check(ctx context.Context, p eval.Python, code Code, criteria []json.RawMessage) ([]string, error) {
	answer, err := do(ctx, p, code, "check", map[string]any{"evaluator": code.definition, "criteria": criteria})
	if err != nil {
		return nil, err
	}
	var problems []string
	if err := json.Unmarshal(answer, &problems); err != nil || len(problems) != len(criteria) {
		return nil, fmt.Errorf("the evaluator's worker answered what cannot be used: %s", strings.TrimSpace(string(answer)))
	}
	return problems, nil
}

func do(ctx context.Context, p eval.Python, code Code, op string, request any) (json.RawMessage, error) {
	if p == nil {
		return nil, &eval.NotAsked{Reason: "an evaluator in Python needs a worker, and there is none here"}
	}
	return p.Do(ctx, code.Code, op, request)
}
