package report

import (
	"encoding/json"
	"testing"

	"github.com/evalrun/evalrun/schemas"
)

// Legacy evaluators line by line. What is right or wrong is averaged as 1 or 0, what is a
// number as it is; of the details only those of failures are left.
func TestUiPathsLegacyLines(t *testing.T) {
	const lines = `"total_lines_actual":2,"total_lines_expected":3,"aggregation_method":"average"}`
	for _, v := range []struct {
		name, details, want string
		score, wantScore    float64
	}{
		{"equal", `{"line_by_line_results":[{"line_number":1,"actual":"a","expected":"a","score":true,"details":{"expected":"a","actual":"a"}},` +
			`{"line_number":2,"actual":"b","expected":"b","score":true,"details":null},{"line_number":3,"actual":"","expected":"c","score":0,"details":"Exception thrown by evaluator: x"}],` + lines,
			`{"line_by_line_results":[{"line_number":1,"actual":"a","expected":"a","score":true,"details":null},` +
				`{"line_number":2,"actual":"b","expected":"b","score":true,"details":null},{"line_number":3,"actual":"","expected":"c","score":0,"details":"Exception thrown by evaluator: x"}],` + lines,
			66.66666666666666, 2.0 / 3},
		{"similar", `{"line_by_line_results":[{"line_number":1,"actual":"a","expected":"a","score":50,"details":"Matched leaves: 0.5, Total leaves: 1.0"}],` + lines,
			`{"line_by_line_results":[{"line_number":1,"actual":"a","expected":"a","score":50,"details":null}],` + lines, 50, 50},
		{"not line by line", `{"expected":"a","actual":"b"}`, ``, 100, 100},
	} {
		t.Run(v.name, func(t *testing.T) {
			got := uipathResultOf(schemas.Evaluated{Result: schemas.EvaluationResult{Score: &v.score, Scale: 100, Details: json.RawMessage(v.details)}})
			if got.Result.Score != v.wantScore || string(got.Result.Details) != v.want {
				t.Errorf("score %v, details\n got %s\nwant %s", got.Result.Score, got.Result.Details, v.want)
			}
		})
	}
}
