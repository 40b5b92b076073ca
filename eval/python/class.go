package python

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/eval/usercode"
)

// classType is the kind of UiPath's custom evaluators. The project's own package uipath runs them.
var classType = evaluator.Kind{Read: class, About: "A class as UiPath's package has them."}

func isClass(def eval.Definition) bool { return strings.HasPrefix(def.Type, evaluator.CustomPrefix) }

// percent is the scale of a score that is true or false, as UiPath writes it.
const percent = 100

func class(e *evaluator.Evaluator, _ *evaluator.Config) {
	e.CriteriaOptional = true
	e.Score = func(ctx context.Context, s eval.Subject, criteria *pyvalue.Object) evaluator.Outcome {
		document, err := usercode.Document(s, criteria, nil)
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		answer, err := evaluate(ctx, e.Def, s, document)
		if err != nil {
			return evaluator.Outcome{Failure: err}
		}
		return classAnswer(answer)
	}
}

// classAnswer reads what a class has answered. An error is one of the evaluator here, where UiPath
// counts the score 0.
func classAnswer(data json.RawMessage) evaluator.Outcome {
	var answer struct {
		ScoreType string
		Details   json.RawMessage
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return evaluator.Broken("the evaluator's answer cannot be read: %w", err)
	}
	switch answer.ScoreType {
	case "error":
		var text string
		if json.Unmarshal(answer.Details, &text) != nil {
			text = string(answer.Details)
		}
		return evaluator.Outcome{Failure: errors.New(text)}
	case "boolean":
		var score struct{ Score float64 }
		if err := json.Unmarshal(data, &score); err != nil {
			return evaluator.Broken("the evaluator's answer cannot be read: %w", err)
		}
		details, err := pyvalue.Parse(answer.Details)
		if err != nil {
			return evaluator.Broken("the evaluator's answer: details: %w", err)
		}
		return evaluator.Outcome{Score: score.Score / percent, Details: details, Scale: percent}
	}
	return usercode.Answered(data)
}

// classOf returns the code of a class. Its file is looked for as UiPath does: in the folder of the
// project, in that of the evaluators, and in custom below it.
func classOf(def eval.Definition, dir string) Code {
	folder := def.Dir
	if folder == "" {
		folder = "../evaluators"
	}
	folder = within(dir, folder)
	place := strings.TrimPrefix(def.Type, evaluator.CustomPrefix)
	file := filepath.FromSlash(place[:max(0, strings.LastIndexByte(place, ':'))])
	code := Code{Code: eval.Code{Kind: "uipath-evaluators", Dir: folder},
		Files: []string{file, within(folder, file), within(filepath.Join(folder, "custom"), file)}}
	config := def.Config
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	code.definition = map[string]any{"folder": folder, "file": map[string]any{"version": "1.0", "id": def.ID,
		"name": def.Name, "evaluatorSchema": def.Type, "evaluatorConfig": config}}
	return code
}
