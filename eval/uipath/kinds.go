// Package uipath has the evaluators of UiPath's formats, current and legacy. Scores and messages are
// those of UiPath's own package, down to how Python compares and prints values.
package uipath

import (
	"github.com/evalrun/evalrun/eval/evaluator"
)

// Kinds are the kinds of UiPath's formats.
var Kinds = evaluator.Kinds{
	"uipath-exact-match":               exactMatchType,
	"uipath-contains":                  containsType,
	"uipath-json-similarity":           jsonSimilarityType,
	"uipath-binary-classification":     binaryType,
	"uipath-multiclass-classification": multiclassType,
	"uipath-tool-call-order":           toolCallOrderType,
	"uipath-tool-call-count":           toolCallCountType,
	"uipath-tool-call-args":            toolCallArgsType,
	"uipath-tool-call-output":          toolCallOutputType,
	"uipath-llm-judge-output-semantic-similarity": outputJudge(semanticSimilarity,
		"Asks a model how like the output is to the expected one, by meaning."),
	"uipath-llm-judge-output-strict-json-similarity": outputJudge(strictJSONSimilarity,
		"Asks a model how like the output is to the expected JSON document, key by key."),
	"uipath-llm-judge-trajectory-similarity": trajectoryJudge(trajectorySimilarity,
		"Asks a model whether the agent's tool calls are the behaviour that was expected."),
	"uipath-llm-judge-trajectory-simulation": trajectoryJudge(trajectorySimulation,
		"The same, of an agent whose tools were simulated."),
	"legacy-equals":                 legacyEqualsType,
	"legacy-json-similarity":        legacyJSONSimilarityType,
	"legacy-csv-column-exact-match": legacyCSVType,
	"legacy-llm-judge":              legacyJudgeType,
	"legacy-trajectory":             legacyTrajectoryType,
}
