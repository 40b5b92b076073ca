package summary

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/evaltest"
	"github.com/evalrun/evalrun/eval/kinds"
	"github.com/evalrun/evalrun/eval/pyvalue"
)

// labelled is a result as the classification evaluators and exact match give it.
func labelled(expected, actual string) eval.Result {
	r := score("e", pyvalue.Truth(strings.EqualFold(expected, actual)))
	r.EvaluatorName = "intent"
	r.Details = json.RawMessage(fmt.Sprintf(`{"expected":%q,"actual":%q}`, expected, actual))
	return r
}

// predictions makes one evaluation of each "expected/actual".
func predictions(pairs ...string) []Rollout {
	var rollouts []Rollout
	for i, pair := range pairs {
		expected, actual, _ := strings.Cut(pair, "/")
		rollouts = append(rollouts, completed(fmt.Sprint(i), labelled(expected, actual)))
	}
	return rollouts
}

// Of eight predictions six are none of the classes. UiPath drops them, and finds nothing wrong
// with the rest.
func TestPredictionsOutsideTheClasses(t *testing.T) {
	def := evaltest.Definition("uipath-multiclass-classification", `{"classes":["a","b"],"targetOutputKey":"label"}`)
	e, err := kinds.All.New(def)
	if err != nil {
		t.Fatal(err)
	}
	var rollouts []Rollout
	for i, pair := range []string{"aa", "az", "az", "az", "bb", "bz", "bz", "bz"} {
		evaluation := eval.Evaluation{ID: fmt.Sprint(i), Criteria: map[string]json.RawMessage{"e": json.RawMessage(fmt.Sprintf(`{"expectedClass":%q}`, pair[:1]))}}
		results := e.Evaluate(t.Context(), eval.Subject{Evaluation: evaluation, Output: json.RawMessage(fmt.Sprintf(`{"label":%q}`, pair[1:]))}).Results
		rollouts = append(rollouts, Rollout{EvaluationID: evaluation.ID, State: eval.StateCompleted, Evaluation: &evaluation, Results: results})
	}
	set := &eval.Set{Evaluators: []eval.Definition{def}, Thresholds: eval.Thresholds{Pass: 1, Evaluators: map[string]eval.Threshold{"e": {Min: 0.9}}}}
	s := summarize(set, rollouts...)
	evaltest.Near(t, "UiPath's score", s.Evaluators[0].Score, 1)
	evaltest.Near(t, "strict score", s.Evaluators[0].ScoreStrict, 0.4) // scikit-learn, labels=["a","b"]
	if s.Evaluators[0].Skipped != 6 || s.Gates[0].Verdict != GateFail {
		t.Errorf("got %+v, %+v", s.Evaluators[0], s.Gates)
	}
	// A crash is a wrong prediction as well, and what is still open can change everything.
	crash := rollouts[0]
	crash.State, crash.AgentsFault, crash.Results = eval.StateFaulted, true, nil
	evaltest.Near(t, "strict score with a crash", summarize(set, append([]Rollout{crash}, rollouts[4:]...)...).Evaluators[0].ScoreStrict, 0.2)
	crash.State = eval.StateSuspended
	if g := summarize(set, append([]Rollout{crash}, rollouts[1:]...)...).Gates[0]; g.Verdict != GateUndecided {
		t.Errorf("got %+v", g)
	}
}

// The score of a classification evaluator over the set replaces its mean.
func TestSetLevelScores(t *testing.T) {
	threeClasses := predictions("a/a", "a/a", "a/b", "b/b", "b/b", "b/b", "b/a", "c/c", "c/c", "c/a")
	twoThirds := predictions("spam/spam", "spam/spam", "ham/spam", "spam/ham", "ham/ham")
	beta := predictions("p/p", "p/p", "p/p", "n/p", "p/n", "p/n") // precision 3/4, recall 3/5
	for _, v := range []struct {
		name, kind, config string
		rollouts           []Rollout
		want               float64
	}{
		{"binary precision", "uipath-binary-classification", `{"positiveClass":"Spam"}`, twoThirds, 2.0 / 3},
		{"binary recall", "uipath-binary-classification", `{"positiveClass":"spam","metricType":"recall"}`, twoThirds, 2.0 / 3},
		{"binary F2", "uipath-binary-classification", `{"positiveClass":"p","metricType":"f-score","fValue":2}`, beta, 0.625},
		{"binary without positives", "uipath-binary-classification", `{"positiveClass":"spam"}`, predictions("ham/ham"), 0},
		{"multiclass micro", "uipath-multiclass-classification", `{"classes":["a","b","c"],"averaging":"micro"}`, threeClasses, 0.7},
		{"multiclass macro precision", "uipath-multiclass-classification", `{"classes":["a","b","c"],"metricType":"precision"}`, threeClasses, (0.5 + 0.75 + 1) / 3},
		{"multiclass macro recall", "uipath-multiclass-classification", `{"classes":["a","b","c"],"metricType":"recall"}`, threeClasses, (2.0/3 + 0.75 + 2.0/3) / 3},
	} {
		t.Run(v.name, func(t *testing.T) {
			def := evaltest.Definition(v.kind, v.config)
			e := summarize(&eval.Set{Evaluators: []eval.Definition{def}}, v.rollouts...).Evaluators[0]
			evaltest.Near(t, "score", e.Score, v.want)
			if e.N != len(v.rollouts) {
				t.Errorf("n %d", e.N)
			}
		})
	}
	t.Run("nothing at all", func(t *testing.T) {
		s := summarize(&eval.Set{Evaluators: []eval.Definition{evaltest.Definition("uipath-binary-classification", `{"positiveClass":"a"}`)}})
		evaltest.Absent(t, "score", s.Evaluators[0].Score)
	})
}

// Three classes with 2 of 3, 3 of 4 and 2 of 3 right, where the wrong ones go round:
// macro F 0.6944, micro 0.7.
func TestMulticlassFScoreVector(t *testing.T) {
	rollouts := predictions("a/a", "a/a", "a/b", "b/b", "b/b", "b/b", "b/c", "c/c", "c/c", "c/a")
	for averaging, want := range map[string]float64{"macro": (2.0/3 + 0.75 + 2.0/3) / 3, "micro": 0.7} {
		def := evaltest.Definition("uipath-multiclass-classification", `{"classes":["a","b","c"],"averaging":"`+averaging+`"}`)
		evaltest.Near(t, averaging, summarize(&eval.Set{Evaluators: []eval.Definition{def}}, rollouts...).Evaluators[0].Score, want)
	}
}

func dataset(t *testing.T, config string, rollouts ...Rollout) map[string]eval.DatasetResult {
	t.Helper()
	def := evaltest.Definition("uipath-exact-match", config)
	def.Name = "intent"
	return summarize(&eval.Set{Evaluators: []eval.Definition{def}}, rollouts...).Dataset
}

func TestAggregatorVectors(t *testing.T) {
	yesNo := predictions("yes/yes", "yes/yes", "yes/no", "no/yes")
	three := predictions("cat/cat", "cat/cat", "cat/dog", "dog/dog", "dog/dog", "dog/bird", "bird/bird", "bird/bird", "bird/cat")
	for _, v := range []struct {
		name, classes, aggregator string
		rollouts                  []Rollout
		want                      float64
	}{
		{"precision macro", `["yes","no"]`, `{"type":"precision","averaging":"macro"}`, yesNo, 1.0 / 3},
		{"precision micro", `["yes","no"]`, `{"type":"precision","averaging":"micro"}`, yesNo, 0.5},
		{"recall macro", `["yes","no"]`, `{"type":"recall","averaging":"macro"}`, yesNo, 1.0 / 3},
		{"F1 macro", `["Yes","NO"]`, `{"type":"fscore","averaging":"macro"}`, yesNo, 1.0 / 3},
		{"three classes", `["cat","dog","bird"]`, `{"type":"precision","averaging":"macro"}`, three, 2.0 / 3},
		{"three classes, F1 micro", `["cat","dog","bird"]`, `{"type":"fscore","averaging":"micro","fValue":1}`, three, 6.0 / 9},
		{"nothing", `["yes","no"]`, `{"type":"recall","averaging":"macro"}`, nil, 0},
	} {
		t.Run(v.name, func(t *testing.T) {
			results := dataset(t, `{"classes":`+v.classes+`,"aggregators":[`+v.aggregator+`]}`, v.rollouts...)
			if len(results) != 1 {
				t.Fatalf("got %d results", len(results))
			}
			for _, r := range results {
				evaltest.Near(t, "score", &r.Score, v.want)
			}
		})
	}
}

func TestDatasetDetails(t *testing.T) {
	results := dataset(t, `{"classes":["cat","Dog"],"aggregators":[{"type":"precision","averaging":"micro"},{"type":"confusion_matrix"}]}`,
		append(predictions("cat/cat", "CAT/dog", "dog/dog", "cat/platypus", "zebra/dog"), completed("x", eval.Result{EvaluatorID: "e", Score: new(float64), Error: "INVALID_PREDICTED_CLASS"}))...)
	got, err := json.Marshal(results)
	if err != nil {
		t.Fatal(err)
	}
	const counts = `"nTotal":6,"nScored":4,"nSkipped":2`
	want := `{"intent::confusion_matrix":{"score":0.5,"details":{"metric":"confusion_matrix","classes":["cat","Dog"],"confusionMatrix":[[1,0],[1,1]],` + counts + `}},` +
		`"intent::precision":{"score":0.6666666666666666,"details":{"metric":"precision","averaging":"micro","classes":["cat","Dog"],"confusionMatrix":[[1,0],[1,1]],` +
		`"perClass":{"Dog":{"tp":1,"tn":2,"fp":1,"fn":0,"support":1,"precision":0.5,"recall":1,"fScore":0.6666666666666666},` +
		`"cat":{"tp":1,"tn":1,"fp":0,"fn":2,"support":3,"precision":1,"recall":0.3333333333333333,"fScore":0.5}},` +
		`"macro":{"precision":0.75,"recall":0.6666666666666666,"fScore":0.5833333333333333},"micro":{"precision":0.6666666666666666,"recall":0.5,"fScore":0.5714285714285715},` + counts + `}}}`
	if string(got) != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

func TestAggregatorKeys(t *testing.T) {
	results := dataset(t, `{"classes":["a"],"aggregators":[
		{"type":"precision","averaging":"macro"},{"type":"precision","averaging":"micro"},{"type":"precision"},
		{"type":"fscore","fValue":0.5},{"type":"fscore","fValue":2},{"type":"recall"},{"type":"recall"},{"type":"confusion_matrix"},{"type":"confusion_matrix"}]}`)
	want := []string{"intent::precision.macro", "intent::precision.micro", "intent::fscore.macro.fb0.5", "intent::fscore.macro.fb2.0", "intent::recall", "intent::confusion_matrix"}
	if len(results) != len(want) {
		t.Errorf("got %d results, want %d", len(results), len(want))
	}
	for _, key := range want {
		if _, ok := results[key]; !ok {
			t.Errorf("no %s in %v", key, results)
		}
	}
}

func TestAggregatorConfigurations(t *testing.T) {
	const aggregators = `"aggregators":[{"type":"precision","averaging":"macro"}]`
	for _, v := range []struct{ config, want string }{
		{`{` + aggregators + `}`, "aggregators need `classes`"},
		{`{"classes":["yes","no"],"lineByLineEvaluator":true,` + aggregators + `}`, "lineByLineEvaluator"},
		{`{"classes":["yes","no"],"caseSensitive":true,` + aggregators + `}`, "caseSensitive"},
		{`{"classes":["yes","no"],"negated":true,` + aggregators + `}`, "negated"},
		{`{"classes":["Yes","yes"],` + aggregators + `}`, "different without regard to case"},
		{`{"classes":["yes","  "],` + aggregators + `}`, "not blank"},
		{`{"classes":["yes","no "],` + aggregators + `}`, "not padded"},
		{`{"classes":["a"],"aggregators":[{"type":"fscore","fValue":0}]}`, "expected a number from"},
		{`{"classes":["a"],"aggregators":[{"type":"fscore","fValue":1e200}]}`, "expected a number from"},
		{`{"classes":["a"],"aggregators":[{"type":"accuracy"}]}`, "expected one of precision, recall, fscore, confusion_matrix"},
		{`{"classes":["a"],"aggregators":[{}]}`, "missing; expected a string"},
		{`{"classes":["a"],"aggregators":[{"type":"precision","averaging":"weighted"}]}`, "expected one of macro, micro"},
	} {
		if _, err := kinds.All.New(evaltest.Definition("uipath-exact-match", v.config)); err == nil || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%s: error %v, want %q", v.config, err, v.want)
		}
	}
	if _, err := kinds.All.New(evaltest.Definition("uipath-exact-match", `{"classes":["a"]}`)); err != nil {
		t.Errorf("classes alone: %v", err)
	}
}
