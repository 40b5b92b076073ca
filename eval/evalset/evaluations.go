package evalset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
)

func (l *loader) evaluations(n *input.Node, set *eval.Set, legacy bool) {
	first := map[string]*input.Node{}
	for _, f := range l.Objects(n) {
		e := l.evaluation(f, set, legacy)
		f.RefuseLike("thresholds of the set", namesThreshold)
		f.Done()
		if earlier := first[e.ID]; earlier != nil && e.ID != "" {
			l.Errorf(f.Get("id"), "duplicate id %q, first in line %d", e.ID, earlier.Line)
			continue
		}
		first[e.ID] = f.Node
		set.Evaluations = append(set.Evaluations, e)
	}
}

func (l *loader) evaluation(f *input.Fields, set *eval.Set, legacy bool) eval.Evaluation {
	e := eval.Evaluation{
		ID:                    f.RequiredString("id"),
		Name:                  f.RequiredString("name"),
		Inputs:                f.Required("inputs", input.Object).JSON(),
		ExpectedAgentBehavior: f.String("expectedAgentBehavior", ""),
		Criteria:              map[string]json.RawMessage{},
		Cluster:               f.String("cluster", ""),
		Tags:                  l.tags(f),
		WorkerTags:            f.Labels("workerTags"),
		Metadata:              f.Optional("metadata", input.Object).JSON(),
	}
	e.ID = eval.CanonicalID(e.ID)
	f.Ignore("description", "evalSetId", "createdAt", "updatedAt", "toolsToSimulate")
	if n := f.Get("answers"); n != nil {
		if set.AnswersOf == nil {
			set.AnswersOf = map[string]*input.Node{}
		}
		set.AnswersOf[e.ID] = n
	}
	if n := f.Get("mocks"); n != nil {
		if set.MocksOf == nil {
			set.MocksOf = map[string]*input.Node{}
		}
		set.MocksOf[e.ID] = n
	}
	e.NotRunnable = l.notRunnable(f)
	if n := f.Get("mockingStrategy"); kindOf(n) == mockito && e.NotRunnable == "" {
		if set.MockedFunctions == nil {
			set.MockedFunctions = map[string]*input.Node{}
		}
		set.MockedFunctions[e.ID] = n
	}
	if legacy {
		l.legacyCriteria(f, set, &e)
		return e
	}
	expected := f.Get("expectedOutput")
	if expected != nil && expected.Kind == input.Null {
		expected = nil
	}
	if n := expected; n != nil {
		if n.Kind != input.Object && n.Kind != input.String {
			l.Errorf(n, "expected an object or a string, got %s", n.Kind)
		}
		e.ExpectedOutput = n.JSON()
	}
	criteria := f.Optional("evaluationCriterias", input.Object)
	checks := f.Optional("checks", input.Array)
	if len(set.DefaultCriteria) == 0 && checks == nil {
		criteria = f.Required("evaluationCriterias", input.Object)
	}
	if criteria != nil {
		e.Criteria = l.criteria(criteria, set, expected)
	}
	if checks != nil {
		l.checks(checks, set, &e)
	}
	set.AddDefaults(&e)
	if len(e.Criteria) == 0 && len(set.Evaluators) > 0 && criteria != nil {
		l.Warnf(criteria, "no evaluator has criteria here, so that nothing scores this evaluation; the set has %s",
			input.List(set.EvaluatorIDs()))
	}
	return e
}

// tags reads labels, each once.
func (l *loader) tags(f *input.Fields) (tags []string) {
	for i, tag := range f.Strings("tags") {
		if strings.TrimSpace(tag) == "" {
			l.Errorf(f.Get("tags").Items[i], "expected a tag, got an empty string")
			continue
		}
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags
}

// criteria reads an object of criteria by the evaluator's id. expected is the expected output
// beside it, as for CheckCriteria.
func (l *loader) criteria(n *input.Node, set *eval.Set, expected *input.Node) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, m := range n.Members {
		out[m.Key] = m.Value.JSON()
		if m.Value.Kind != input.Object && m.Value.Kind != input.Null {
			l.Errorf(m.Value, "expected the criteria of an evaluator, an object or null, got %s", m.Value.Kind)
		}
		CheckCriteria(&l.Reader, set, m.Key, m.Value, expected)
	}
	return out
}

// defaultCriteria reads the criteria of the whole set.
func (l *loader) defaultCriteria(f *input.Fields, set *eval.Set, legacy bool) map[string]json.RawMessage {
	n := f.Optional("defaultCriterias", input.Object)
	if n == nil {
		return nil
	}
	if legacy {
		l.Errorf(n, `expected a set of version "1.0"; in the legacy format every evaluator scores every evaluation`)
	}
	return l.criteria(n, set, &input.Node{}) // evaluations may have expected outputs of their own
}

// legacyCriteria makes criteria for every evaluator from the expectations of a legacy evaluation,
// as UiPath does when it migrates.
func (l *loader) legacyCriteria(f *input.Fields, set *eval.Set, e *eval.Evaluation) {
	expected := f.Required("expectedOutput", input.Object)
	if expected == nil {
		return
	}
	behaviour, err := json.Marshal(e.ExpectedAgentBehavior)
	if err != nil {
		return // a string always marshals
	}
	criteria := json.RawMessage(`{"expectedOutput":` + string(expected.JSON()) + `,"expectedAgentBehavior":` +
		string(behaviour) + `}`)
	for _, def := range set.Evaluators {
		e.Criteria[def.ID] = criteria
	}
}

// mockito is the type of a mockingStrategy whose answers stand in the eval set.
const mockito = "mockito"

// kindOf returns the type of a mockingStrategy; empty if it has none.
func kindOf(n *input.Node) string {
	if t := n.Member("type"); t != nil && t.Kind == input.String {
		return t.Text
	}
	return ""
}

// The reasons why what has no answers in the eval set is not played.
const (
	modelPlays  = "a model in UiPath's cloud plays it, which evalrun does not call; a mockingStrategy of type mockito holds its answers"
	modelWrites = "a model in UiPath's cloud writes it, which evalrun does not call"
)

// notRunnable says why an evaluation cannot be run here. It never silently drops a key that would
// change what the tools do, or make up the input.
func (l *loader) notRunnable(f *input.Fields) string {
	var reasons []string
	add := func(reason string) { reasons = append(reasons, reason) }
	if n := f.Optional("mockingStrategy", input.Object); n != nil {
		switch kind := kindOf(n); kind {
		case mockito:
		case "llm":
			add("mockingStrategy (llm): " + modelPlays)
		default:
			add(fmt.Sprintf("mockingStrategy: expected the type mockito, got %q", kind))
		}
	}
	if f.Optional("inputMockingStrategy", input.Object) != nil {
		add("inputMockingStrategy: " + modelWrites)
	}
	f.String("simulationInstructions", "")
	if f.Bool("simulateTools", false) {
		add("simulateTools: " + modelPlays)
	}
	instructions := f.String("inputGenerationInstructions", "")
	if f.Bool("simulateInput", false) && instructions != "" {
		add("simulateInput: " + modelWrites)
	}
	for _, key := range []string{"conversationalInputs", "conversationalExpectedOutput"} {
		if f.Has(key) {
			add(key + ": evalrun cannot run conversational evaluations")
		}
	}
	return strings.Join(reasons, "; ")
}
