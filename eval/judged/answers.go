package judged

import (
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/internal/input"
)

// These are the answers of a judge, or of a person.
const (
	answerScore   = "score"
	answerBoolean = "boolean"
	answerLabels  = "labels"
)

// These are the ways in which several verdicts become one.
const (
	reduceMean     = "mean"
	reduceMedian   = "median"
	reduceMajority = "majority"
)

// Keys of judges and of people.
var (
	answerKey = evaluator.Key{Name: "answer", Kind: input.String, Otherwise: answerScore,
		Values: []string{answerScore, answerBoolean, answerLabels},
		About:  "what is asked for: a number, pass or fail, or one of `labels`"}
	labelsKey = evaluator.Key{Name: "labels", Kind: input.Array,
		About: "the labels, at least two, if `answer` is `labels`"}
	passingKey = evaluator.Key{Name: "passingLabels", Kind: input.Array,
		About: "the labels that score 1; the others score 0"}
	reduceKey = evaluator.Key{Name: "reduce", Kind: input.String,
		Values: []string{reduceMean, reduceMedian, reduceMajority},
		About: "how several scores become one: `mean` (the default of scores) or `median`; of labels, and by " +
			"default of pass or fail, the `majority`"}
)
