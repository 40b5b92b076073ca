package check

import (
	"github.com/evalrun/evalrun/eval/evaluator"
	"github.com/evalrun/evalrun/internal/input"
)

// about says of a check which keys it has besides its own and the common ones.
type about struct {
	key evaluator.Key
	// parameters are further keys that the check reads.
	parameters []string
	// ofRollout says that the check looks at the rollout, or at other checks, and not at a value.
	ofRollout bool
}

const (
	textual = "a text"
	mostInt = 1e15
)

var (
	textParameters = []string{"ignoreCase", "ignoreSpace"}
	like           = []string{"threshold"}
)

// abouts has every check, in the order of the documentation.
var abouts = []about{
	{evaluator.Key{Name: "contains", About: "a text that must be in the output"}, textParameters, false},
	{evaluator.Key{Name: "containsAny", Kind: input.Array, About: "texts of which one must be there"}, textParameters, false},
	{evaluator.Key{Name: "containsAll", Kind: input.Array, About: "texts that must all be there"}, textParameters, false},
	{evaluator.Key{Name: "startsWith", About: "the text with which the output begins"}, textParameters, false},
	{evaluator.Key{Name: "endsWith", About: "the text with which it ends"}, textParameters, false},
	{evaluator.Key{Name: "equals", About: "the value that the output must have. A text is compared with the output " +
		"as a text; other values with the output's JSON, also if that stands in a text"}, textParameters, false},
	{evaluator.Key{Name: "regex", Kind: input.String, About: "a regular expression (RE2) that must match somewhere; " +
		"look-ahead, look-behind and back-references are not supported"}, []string{"ignoreCase"}, false},
	{evaluator.Key{Name: "isJson", About: "`true`, or a JSON schema that the document must fit. Its `$ref` may name " +
		"`#/$defs/…` or `#/definitions/…`, not in a circle"}, nil, false},
	{evaluator.Key{Name: "containsJson", About: "the same of an object or array somewhere in a text"}, nil, false},
	{evaluator.Key{Name: "number", About: "the number that the output must be; of a text it is the last number in it"},
		[]string{"tolerance", "relativeTolerance"}, false},
	{evaluator.Key{Name: "choice", Kind: input.String, About: "the letter that a text must choose: as all of it, after " +
		"the word \"answer\", at its start before `)`, `.` or `:`, or in brackets or bold"}, []string{"choices"}, false},
	{evaluator.Key{Name: "words", Kind: input.Object, About: "how many words there may be: `min`, `max`"}, nil, false},
	{evaluator.Key{Name: "characters", Kind: input.Object, About: "how many characters: `min`, `max`"}, nil, false},
	{evaluator.Key{Name: "levenshtein", About: "a text, or texts of which the nearest counts; scores 1 less the edit " +
		"distance by the length of the longer text, of texts up to 10,000 characters"},
		[]string{"threshold", "maxDistance", "ignoreCase", "ignoreSpace"}, false},
	{evaluator.Key{Name: "bleu", About: "references; scores BLEU with n-grams up to 4 (Papineni and others, 2002), " +
		"not smoothed; fewer than 4 if a text has fewer words"}, like, false},
	{evaluator.Key{Name: "rouge1", About: "references of which the nearest counts; scores the F1 of common words " +
		"(ROUGE, Lin, 2004)"}, like, false},
	{evaluator.Key{Name: "rouge2", About: "the same of pairs of words"}, like, false},
	{evaluator.Key{Name: "rougeL", About: "the same of the longest common subsequence of words"}, like, false},
	{evaluator.Key{Name: "toolF1", Kind: input.Array, About: "names of tools; scores the F1 of these and those that " +
		"were called"}, like, true},
	{evaluator.Key{Name: "toolOrder", Kind: input.Array, About: "names of tools that must be called in this order, " +
		"with others between them or not"}, nil, true},
	{evaluator.Key{Name: "toolCall", Kind: input.Object, About: "calls of a tool: its `name`, `args` (checks of the " +
		"arguments, all of which must pass), and how many such calls there must be, `min` (1) and `max`"}, nil, true},
	{evaluator.Key{Name: "maxLatency", Kind: input.String, About: "the longest working time, such as `\"2s\"`; waiting " +
		"does not count"}, nil, true},
	{evaluator.Key{Name: "maxCost", Kind: input.Number, Most: mostInt, About: "the highest cost of the models, in US " +
		"dollars: it needs `prices`"}, nil, true},
	{evaluator.Key{Name: "maxTokens", Kind: input.Number, Whole: true, Most: mostInt, About: "the most tokens of input and " +
		"output"}, nil, true},
	{evaluator.Key{Name: "maxTurns", Kind: input.Number, Whole: true, Most: mostInt, About: "the most calls of models, as " +
		"the spans of the trace tell them"}, nil, true},
	{evaluator.Key{Name: "anyOf", Kind: input.Array, About: "checks of which one must pass"}, nil, true},
	{evaluator.Key{Name: "allOf", Kind: input.Array, About: "checks that must all pass, or whose mean must reach the " +
		"`threshold`"}, like, true},
	{evaluator.Key{Name: "atLeast", Kind: input.Number, Whole: true, Least: 1, Most: maxChecks,
		About: "how many of the checks in `of` must pass"}, []string{"of"}, true},
}

// pathKey is both the evaluator's and a check's.
const pathAbout = "the part of the output that is checked, such as `messages[-1].content`; it leads into a text that " +
	"is JSON, too. A check of what is not there fails, also with `not`"

// commonKeys are those that every check may have, and the parameters of some.
var commonKeys = []evaluator.Key{
	{Name: "not", Kind: input.Bool, Otherwise: false, About: "turns the check round"},
	{Name: "weight", Kind: input.Number, Otherwise: 1.0, Most: 1e6, About: "how much it counts in the score"},
	{Name: "name", Kind: input.String, About: "what people are shown before its reason"},
	{Name: "path", Kind: input.String, About: pathAbout},
	{Name: "jq", Kind: input.String, About: "the same as a jq expression, whose first value is checked; not in uploads"},
	{Name: "transform", About: "what is done with the value first: one of `trim`, `lower`, `upper`, `collapse` (white " +
		"space to single spaces), `firstLine`, `lastLine`, `unfence` (takes the text out of a Markdown code block), or " +
		"several in an array"},
	{Name: "ignoreCase", Kind: input.Bool, Otherwise: false, About: "of checks of texts: upper and lower case are the same"},
	{Name: "ignoreSpace", Kind: input.Bool, Otherwise: false, About: "of checks of texts: white space is a single space, " +
		"and none at the ends"},
	{Name: "tolerance", Kind: input.Number, Otherwise: 0.0, Most: 1e300, About: "of `number`: how far it may be off"},
	{Name: "relativeTolerance", Kind: input.Number, Otherwise: 0.0, Most: 1e300, About: "of `number`: the same as a share " +
		"of the expected number; one of both suffices"},
	{Name: "choices", Kind: input.String, Otherwise: "ABCD", About: "of `choice`: the letters there are"},
	{Name: "threshold", Kind: input.Number, Most: 1, About: "of checks that score between 0 and 1: from here on they " +
		"pass, with 1, and else score 0. Without it the score is the check's own"},
	{Name: "maxDistance", Kind: input.Number, Whole: true, Most: maxSimilar, About: "of `levenshtein`: how many edits " +
		"there may be; the check then scores 1 or 0"},
	{Name: "of", Kind: input.Array, About: "the checks of `atLeast`"},
}

// checkKeys are all keys of a check.
var checkKeys = func() []evaluator.Key {
	var all []evaluator.Key
	for _, a := range abouts {
		all = append(all, a.key)
	}
	return append(all, commonKeys...)
}()
