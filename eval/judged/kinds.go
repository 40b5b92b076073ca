// Package judged has evalrun's own evaluators by judgement: models that are asked (llm-judge,
// pairwise) and people (human). Whom a question reaches is up to [eval.Judge] and to whoever
// delivers the answers.
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
