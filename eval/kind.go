package eval

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/input"
)

// evaluatorType is how evaluators of one type are read, and what may be written in them. Reading
// takes the defaults and limits from here, and docs/evaluators.md and schemas/evaluator.schema.json
// are made of it, so that none of them can say something else.
type evaluatorType struct {
	read  func(e *evaluator, c *config)
	about string
	// keys are those of the configuration.
	keys []key
	// keysBeside says that the keys may stand beside the evaluator's id, without evaluatorConfig.
	keysBeside bool
	// asksModels says that evaluators of the type ask Subject.Judge.
	asksModels bool
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

// Kinds are types of evaluators by their names.
type Kinds map[string]evaluatorType

// Types lists the names of the types, sorted; those of legacy evaluator files begin with "legacy-".
func (k Kinds) Types() []string { return slices.Sorted(maps.Keys(k)) }

// New makes the evaluator of a definition. An evaluator that cannot be run here (Definition.NotRun)
// gives results with Result.NotRun. The error says what is wrong with the configuration.
func (k Kinds) New(def Definition) (*evaluator, error) {
	config := def.Config
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	node, err := input.Parse("evaluatorConfig", config)
	if err != nil {
		return nil, fmt.Errorf("evaluator %q: %w", def.ID, err)
	}
	var r input.Reader
	e := k.Read(&r, def, node)
	if err := r.Problems.Err(false); err != nil {
		return nil, fmt.Errorf("evaluator %q: %w", def.ID, err)
	}
	return e, nil
}

// Read reads a configuration into an evaluator and validates it.
func (k Kinds) Read(r *input.Reader, def Definition, node *input.Node) *evaluator {
	e := &evaluator{def: def, scale: 1}
	if strings.HasPrefix(def.Type, customPrefix) {
		return e // a custom evaluator's configuration is its own
	}
	kind, ok := k[def.Type]
	if !ok {
		r.Errorf(node, "unknown evaluator type %q%s", def.Type, input.Suggest(def.Type, k.Types()))
		return e
	}
	e.asksModels = kind.asksModels
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

// AsksModels reports whether an evaluator asks models.
func (k Kinds) AsksModels(def Definition) bool { return k[def.Type].asksModels }

// JudgeModels are the models that an evaluator asks, as its configuration names them; SameAsAgent
// may be among them. Nil if it asks none.
func (k Kinds) JudgeModels(def Definition) []string {
	if !k.AsksModels(def) {
		return nil
	}
	var config struct {
		Model  string `json:"model"`
		Judges []struct {
			Model string `json:"model"`
		} `json:"judges"`
	}
	_ = json.Unmarshal(def.Config, &config) // it has been checked
	models := []string{config.Model}
	if len(config.Judges) > 0 {
		models = nil
	}
	for _, one := range config.Judges {
		models = append(models, one.Model)
	}
	for i := range models {
		models[i] = cmp.Or(models[i], SameAsAgent)
	}
	return models
}

// customPrefix begins the type of a custom evaluator of UiPath's, a Python class in a file.
const customPrefix = "file://"
