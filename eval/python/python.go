// Package python has the evaluators that are written in Python: functions of the user's, and classes
// as UiPath's package has them. They run in a worker that is kept. The package knows what is asked of
// the worker and what its answers mean; what runs it comes with the subject.
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
	"github.com/evalrun/evalrun/eval/usercode"
	"github.com/evalrun/evalrun/internal/input"
)

// Type is the type of the evaluator that is a function in Python.
const Type = "python"

// Kinds has the evaluators that are code in Python.
var Kinds = evaluator.Kinds{Type: functionType, evaluator.CustomPrefix: classType}

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
	usercode.Bind(e, func(ctx context.Context, s eval.Subject, document []byte) ([]byte, error) {
		return evaluate(ctx, e.Def, s, document)
	})
}

// evaluate asks a worker for the verdict of an evaluator.
func evaluate(ctx context.Context, def eval.Definition, s eval.Subject, document []byte) (json.RawMessage, error) {
	code := Of(def, s.Dir)
	return do(ctx, s.Python, code, "evaluate", map[string]any{
		"evaluator": code.definition, "document": json.RawMessage(document)})
}

// Is reports whether an evaluator is code in Python.
func Is(def eval.Definition) bool { return def.Type == Type || isClass(def) }

// Code is the code of an evaluator.
type Code struct {
	eval.Code
	// Files are where the file with the code may be; none if it is a module that Python looks for. A
	// relative one is in the folder of the project.
	Files []string
	// definition tells the worker what is to be called.
	definition any
}

// Of returns the code of an evaluator that is in Python. dir is the folder of the eval set.
func Of(def eval.Definition, dir string) Code {
	if isClass(def) {
		return classOf(def, dir)
	}
	var c config
	_ = json.Unmarshal(def.Config, &c) // it has been checked
	dir = within(dir, def.Dir)
	code := Code{Code: eval.Code{Kind: "evaluators", Dir: dir, Interpreter: c.Python}}
	file, name, _ := strings.Cut(c.Function, ":")
	if strings.HasSuffix(file, ".py") {
		file = within(dir, file)
		code.Files = []string{file}
	}
	code.definition = map[string]string{"place": file + ":" + name}
	return code
}

// within resolves a path that is relative to a folder.
func within(dir, path string) string {
	if path = filepath.FromSlash(path); filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
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
