package evaluator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/pyvalue"
	"github.com/evalrun/evalrun/internal/input"
)

// Kind says how evaluators of one type are read, and which keys they may have. Reading takes the
// defaults and limits from here, and docs/evaluators.md and schemas/evaluator.schema.json are made
// of it, so that none of them can say something else.
type Kind struct {
	// Read reads a configuration into an evaluator, and gives it at least its Score.
	Read func(e *Evaluator, c *Config)
	// About describes the kind in Markdown.
	About string
	// Keys are the keys of the configuration.
	Keys []Key
	// KeysBeside says that the keys may stand beside the evaluator's id, without evaluatorConfig.
	KeysBeside bool
	// AsksModels says that evaluators of the type ask Subject.Judge.
	AsksModels bool
	// OutputAlone says that evaluators of the type see nothing of a rollout but its output.
	OutputAlone bool
	// Tells reports whether criteria with this value tell outputs apart; nil if all do.
	Tells func(value *input.Node) bool
	// Criteria are the keys of an evaluation's criteria for the evaluator. Criteria of types without
	// any may have any keys.
	Criteria []Key
	// CheckCriteria records further problems of criteria, which are an object; nil if there are none.
	CheckCriteria func(r *input.Reader, criteria *input.Node)
}

// CheckKeys warns of keys that no evaluator of the type reads, and of a value of the wrong kind. A
// text that begins with a place of a data set may become any value.
func (t Kind) CheckKeys(r *input.Reader, criteria *input.Node) {
	if len(t.Criteria) == 0 {
		return
	}
	k := t.Criteria[0] // no type has more
	for _, m := range criteria.Members {
		if !slices.Contains(k.names(), m.Key) {
			r.Warnf(m.Value, "unknown key; this evaluator reads only %s", k.Name)
		}
	}
	if t.CheckCriteria != nil {
		t.CheckCriteria(r, criteria)
	}
	v := k.In(criteria)
	if v == nil || k.Kind == input.Null || v.Kind == k.Kind || v.Kind == input.String &&
		strings.HasPrefix(v.Text, "{row.") {
		return
	}
	r.Warnf(v, "expected %s, got %s; every output will score 0", k.Kind, v.Kind)
}

// Kinds are kinds by the name of their type.
type Kinds map[string]Kind

// Types lists the names of the types, sorted; those of legacy evaluator files begin with "legacy-".
// CustomPrefix, which stands for many, is not among them.
func (k Kinds) Types() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(k)), func(t string) bool { return t == CustomPrefix })
}

// New makes the evaluator of a definition. An evaluator that cannot be run here (Definition.NotRun)
// gives results with Result.NotRun. The error is about the configuration.
func (k Kinds) New(def eval.Definition) (*Evaluator, error) {
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
func (k Kinds) Read(r *input.Reader, def eval.Definition, node *input.Node) *Evaluator {
	e := &Evaluator{Def: def, Scale: 1}
	if strings.HasPrefix(def.Type, CustomPrefix) {
		if kind, ok := k[CustomPrefix]; ok {
			kind.Read(e, nil) // its configuration is its own
		}
		return e
	}
	kind, ok := k[def.Type]
	if !ok {
		r.Errorf(node, "unknown evaluator type %q%s", def.Type, input.Suggest(def.Type, k.Types()))
		return e
	}
	e.asksModels, e.outputAlone = kind.AsksModels, kind.OutputAlone
	c := &Config{r.Object(node), r, kind.Keys}
	c.Ignore("name", "description")
	if n := c.Optional("defaultEvaluationCriteria", input.Object); n != nil {
		v, err := pyvalue.Parse(n.JSON())
		if err != nil {
			r.Errorf(n, "%v", err)
		} else if o := v.(*pyvalue.Object); len(o.Keys) > 0 {
			e.Defaults, e.DefaultsNode = o, n
			kind.CheckKeys(r, n)
		}
	}
	kind.Read(e, c)
	c.Done()
	return e
}

// AsksModels reports whether an evaluator asks models.
func (k Kinds) AsksModels(def eval.Definition) bool { return k[def.Type].AsksModels }

// SeesOutputAlone reports whether an evaluator sees nothing of a rollout but its output, so that it can
// be asked where there is nothing else.
func (k Kinds) SeesOutputAlone(def eval.Definition) bool {
	return def.NotRun != "" || k[def.Type].OutputAlone
}

// JudgeModels returns the models that an evaluator asks, as its configuration names them;
// SameAsAgent may be among them. Nil if it asks none.
func (k Kinds) JudgeModels(def eval.Definition) []string {
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
		models[i] = cmp.Or(models[i], eval.SameAsAgent)
	}
	return models
}

// CustomPrefix begins the type of a custom evaluator of UiPath's, a Python class in a file.
const CustomPrefix = "file://"
