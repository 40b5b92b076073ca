// Package judged has evalrun's own evaluators by judgement: models that are asked (llm-judge,
// pairwise) and people (human). The [eval.Judge], and the party that delivers the answers, decide
// whom a question reaches.
package judged

import (
	"github.com/evalrun/evalrun/eval/evaluator"
)

// Kinds are evalrun's own evaluators that ask models or people.
var Kinds = evaluator.Kinds{
	TypeLLMJudge: llmJudgeType,
	TypePairwise: pairwiseType,
	TypeHuman:    humanType,
}
