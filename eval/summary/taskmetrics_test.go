package summary

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalrun/evalrun/eval"
)

// metricsOf are the metrics of rollouts with these rewards, of which nil is a fault.
func metricsOf(t *testing.T, rewards []map[string]float64, kinds []string, others ...Rollout) []TaskMetric {
	t.Helper()
	set := &eval.Set{TaskDataset: &eval.TaskDataset{Name: "a", Version: "1", Metrics: kinds}, Evaluators: []eval.Definition{eval.Verifier}}
	s := New(set, nil)
	task := &eval.Task{OfDataset: true}
	for i, one := range rewards {
		id := string(rune('a' + i))
		r := Rollout{EvaluationID: id, Epoch: 1, State: eval.StateFaulted, Evaluation: &eval.Evaluation{ID: id, Task: task}}
		if one != nil {
			r.State = eval.StateCompleted
			r.Results = []eval.Result{{EvaluatorID: eval.Verifier.ID, Scale: 1}}
			details := eval.VerifierDetails{Metrics: map[string]float64{}}
			for name, x := range one {
				value := x
				if _, ok := one["reward"]; !ok && r.Results[0].Score == nil {
					details.RewardName, r.Results[0].Score = name, &value
				}
				if name == "reward" {
					r.Results[0].Score = &value
				} else {
					details.Metrics[name] = x
				}
			}
			if len(details.Metrics) > 0 {
				var err error
				if r.Results[0].Details, err = json.Marshal(details); err != nil {
					t.Fatal(err)
				}
			}
		}
		s.Add(r)
	}
	for _, r := range others {
		s.Add(r)
	}
	return s.Summary().TaskMetrics
}

// The golden values are those of Harbor's own classes (testdata/harbor_metrics.py).
func TestTaskMetricsAreHarbors(t *testing.T) {
	data, err := os.ReadFile("testdata/harbor_metrics.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Rewards []map[string]float64
		Want    map[string]map[string]float64
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		t.Fatal(err)
	}
	kinds := []string{MetricMean, MetricSum, MetricMin, MetricMax}
	for i, c := range cases {
		for _, got := range metricsOf(t, c.Rewards, kinds) {
			if diff := cmp.Diff(c.Want[got.Type], got.Values); diff != "" {
				t.Errorf("case %d, %s of %v (-Harbor +evalrun):\n%s", i, got.Type, c.Rewards, diff)
			}
		}
	}
	if len(cases) < 40 {
		t.Errorf("only %d cases", len(cases))
	}
}

// What is open is left out, what has no reward is a 0 that is counted, a task that is not the data
// set's is not its metric's, and no script is run.
func TestTaskMetricsSayWhatTheyLeaveOut(t *testing.T) {
	elsewhere := Rollout{EvaluationID: "x", State: eval.StateCompleted, Evaluation: &eval.Evaluation{ID: "x", Task: &eval.Task{}}, Results: []eval.Result{{EvaluatorID: eval.Verifier.ID, Scale: 1, Score: new(float64)}}}
	open := Rollout{EvaluationID: "y", State: eval.StateSuspended, Evaluation: &eval.Evaluation{ID: "y", Task: &eval.Task{OfDataset: true}}}
	rewards := []map[string]float64{{"reward": 1}, nil}
	want := []TaskMetric{{Type: MetricMean, Values: map[string]float64{"mean": 0.5}, Rollouts: 2, Missing: 1, Open: 1}}
	if diff := cmp.Diff(want, metricsOf(t, rewards, nil, elsewhere, open)); diff != "" {
		t.Errorf("a data set that names none has the mean (-want +got):\n%s", diff)
	}
	want = []TaskMetric{{Type: MetricScript, Rollouts: 2, Missing: 1, NotComputed: "evalrun runs no scripts of a registry"}}
	if diff := cmp.Diff(want, metricsOf(t, rewards, []string{MetricScript})); diff != "" {
		t.Errorf("a script (-want +got):\n%s", diff)
	}
	if got := metricsOf(t, nil, nil, elsewhere); got != nil {
		t.Errorf("without a task of the data set: %v", got)
	}
	if got := metricsOf(t, nil, nil, open); len(got) != 1 || got[0].Values != nil || got[0].NotComputed == "" {
		t.Errorf("with nothing that has ended: %+v", got)
	}
}
