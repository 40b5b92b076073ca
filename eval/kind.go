package eval

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// New makes the evaluator of a definition. An evaluator that cannot be run here (Definition.NotRun)
// gives results with Result.NotRun. The error says what is wrong with the configuration.
func New(def Definition) (Evaluator, error) {
	e, err := build(def)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func build(def Definition) (*evaluator, error) {
	config := def.Config
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	node, err := input.Parse("evaluatorConfig", config)
	if err != nil {
		return nil, fmt.Errorf("evaluator %q: %w", def.ID, err)
	}
	var r input.Reader
	e := configure(&r, def, node)
	if err := r.Problems.Err(false); err != nil {
		return nil, fmt.Errorf("evaluator %q: %w", def.ID, err)
	}
	return e, nil
}

// types are the types of evaluators that evalrun knows.
var types = map[string]evaluatorType{
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
	typeLLMJudge:                    llmJudgeType,
	typePairwise:                    pairwiseType,
	typeCommand:                     commandType,
	TypeHuman:                       humanType,
}

// configure reads a configuration into an evaluator and validates it.
func configure(r *input.Reader, def Definition, node *input.Node) *evaluator {
	e := &evaluator{def: def, scale: 1}
	if strings.HasPrefix(def.Type, customPrefix) {
		return e // a custom evaluator's configuration is its own
	}
	kind, ok := types[def.Type]
	if !ok {
		r.Errorf(node, "unknown evaluator type %q%s", def.Type, input.Suggest(def.Type, Types()))
		return e
	}
	c := &config{r.Object(node), r, kind.keys}
	c.Ignore("name", "description")
	if n := c.Optional("defaultEvaluationCriteria", input.Object); n != nil {
		v, err := parseValue(n.JSON())
		if err != nil {
			r.Errorf(n, "%v", err)
		} else if o := v.(*object); len(o.Keys) > 0 {
			e.defaults, e.defaultsNode = o, n
			kind.checkKeys(r, n)
		}
	}
	kind.read(e, c)
	c.Done()
	return e
}

// Types lists the evaluator types that evalrun knows, sorted; those of legacy evaluator files begin
// with "legacy-".
func Types() []string { return slices.Sorted(maps.Keys(types)) }

// evaluatorType is how evaluators of one type are read, and what may be written in them. Reading
// takes the defaults and limits from here, and docs/evaluators.md and schemas/evaluator.schema.json
// are made of it, so that none of them can say something else.
type evaluatorType struct {
	read  func(e *evaluator, c *config)
	about string
	// keys are those of the configuration.
	keys []key
	// tells reports whether criteria with this value tell outputs apart; nil if all do.
	tells func(value *input.Node) bool
	// criteria are what an evaluation says for the evaluator. Those of types without any may have
	// any keys.
	criteria []key
}

// checkKeys warns of keys that no evaluator of the type reads, and of a value of the wrong kind. A
// text that begins with a place of a data set may become any value.
func (t evaluatorType) checkKeys(r *input.Reader, criteria *input.Node) {
	if len(t.criteria) == 0 {
		return
	}
	k := t.criteria[0] // no type has more
	for _, m := range criteria.Members {
		if !slices.Contains(k.names(), m.Key) {
			r.Warnf(m.Value, "unknown key; this evaluator reads only %s", k.name)
		}
	}
	v := k.in(criteria)
	if v == nil || k.kind == input.Null || v.Kind == k.kind || v.Kind == input.String && strings.HasPrefix(v.Text, "{row.") {
		return
	}
	r.Warnf(v, "expected %s, got %s; every output will score 0", k.kind, v.Kind)
}
