package compare

import (
	"strings"
	"testing"

	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/eval/summary"
)

// costs are a side whose evaluations have all passed and cost so much; below 0 the cost is not
// known.
func costs(id string, dollars ...float64) Side {
	s := passing(id, len(dollars), 0)
	for i, cost := range dollars {
		if cost >= 0 {
			s.Evaluations[i].Cost = summary.Figure{Value: &cost, Epochs: []float64{cost}}
		}
	}
	return s
}

// Less is better, what is not known is left out, and there are no bounds.
func TestCostsAreCompared(t *testing.T) {
	a := costs("a", 1, 2, 3, 4, 5, 6, 7, 8, -1)
	b := costs("b", 0.9, 1.5, 2.4, 3.1, 4.2, 6.5, 6, 6.5, 9)
	d := mustCompare(t, a, b, Options{Margin: ptr(0.1)})
	row := d.Comparisons[len(d.Comparisons)-1]
	if row.By != "cost" || !row.LowerIsBetter || row.N != 8 || row.Regressions != 1 || row.Improvements != 7 || row.Bounds != nil || row.Margin != nil || row.Delta >= 0 {
		t.Errorf("got %+v", row)
	}
	for _, one := range d.Comparisons {
		if one.By == "tokens" {
			t.Error("tokens that nobody knows are compared")
		}
	}
	first := mustCompare(t, a, b, Options{By: []string{"cost"}, MissingZero: true})
	if row := first.Comparisons[0]; row.Verdict != Improved || first.Pairs != 8 || len(first.Items) != 8 || first.Items[0].EvaluationID != "e6" || first.Items[1].D != -1.5 {
		t.Errorf("got %s of %d pairs, %+v", row.Verdict, first.Pairs, first.Items)
	}
	if row := mustCompare(t, b, a, Options{By: []string{"cost"}}).Comparisons[0]; row.Verdict != Regressed {
		t.Errorf("the other way round: %s", row.Verdict)
	}
	if _, err := Compare(a, b, Options{By: []string{"cost"}, NoWorseThan: ptr(0), Settings: stats.DefaultSettings}); err == nil || !strings.Contains(err.Error(), "gates judge scores") {
		t.Errorf("a gate on cost: %v", err)
	}
	if _, err := SelfTest(a, "cost", 1); err == nil {
		t.Error("a self-test of cost")
	}
}
