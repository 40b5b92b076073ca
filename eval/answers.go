package eval

import (
	"github.com/evalrun/evalrun/internal/input"
)

// What a judge, or a person, answers with.
const (
	answerScore   = "score"
	answerBoolean = "boolean"
	answerLabels  = "labels"
)

// How several verdicts become one.
const (
	reduceMean     = "mean"
	reduceMedian   = "median"
	reduceMajority = "majority"
)

// Keys of judges and of people.
var (
	answerKey = key{name: "answer", kind: input.String, otherwise: answerScore, values: []string{answerScore, answerBoolean, answerLabels},
		about: "what is asked for: a number, pass or fail, or one of `labels`"}
	labelsKey  = key{name: "labels", kind: input.Array, about: "the labels, at least two, if `answer` is `labels`"}
	passingKey = key{name: "passingLabels", kind: input.Array, about: "the labels that score 1; the others score 0"}
	reduceKey  = key{name: "reduce", kind: input.String, values: []string{reduceMean, reduceMedian, reduceMajority},
		about: "how several scores become one: `mean` (the default of scores) or `median`; of labels, and by default of pass or fail, the `majority`"}
)
