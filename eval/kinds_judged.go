package eval

// judgedKinds are evalrun's own evaluators that ask models or people.
var judgedKinds = Kinds{
	typeLLMJudge: llmJudgeType,
	typePairwise: pairwiseType,
	TypeHuman:    humanType,
}
