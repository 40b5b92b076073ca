package report

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// These types are the eval output of `uipath eval --output-file`, UiPath's model UiPathEvalOutput.
type (
	uipathItem struct {
		EvaluationName       string           `json:"evaluationName"`
		EvaluationRunResults []uipathResult   `json:"evaluationRunResults"`
		AgentExecutionOutput *uipathExecution `json:"agentExecutionOutput"`
	}
	uipathResult struct {
		EvaluatorName string `json:"evaluatorName"`
		EvaluatorID   string `json:"evaluatorId"`
		Result        struct {
			Score          float64         `json:"score"`
			Details        json.RawMessage `json:"details,omitempty"`
			EvaluationTime float64         `json:"evaluationTime"`
		} `json:"result"`
		IsLineResult bool `json:"isLineResult"`
	}
	uipathExecution struct {
		ExecutionTime float64 `json:"execution_time"`
		Trace         struct {
			Spans []uipathSpan `json:"spans"`
		} `json:"trace"`
		Result uipathRuntimeResult `json:"result"`
	}
	uipathRuntimeResult struct {
		EventType   string          `json:"event_type"`
		ExecutionID *string         `json:"execution_id"`
		Metadata    *struct{}       `json:"metadata"`
		Output      json.RawMessage `json:"output"`
		Status      string          `json:"status"`
		Trigger     *uipathTrigger  `json:"trigger"`
		Triggers    []uipathTrigger `json:"triggers"`
		Error       *uipathError    `json:"error"`
	}
	uipathError struct {
		Code     string `json:"code"`
		Title    string `json:"title"`
		Detail   string `json:"detail"`
		Category string `json:"category"`
		Status   *int   `json:"status"`
	}
	uipathTrigger struct {
		InterruptID       string             `json:"interruptId"`
		TriggerType       string             `json:"triggerType"`
		ItemKey           nullable           `json:"itemKey"`
		APIResume         *uipathAPIResume   `json:"apiResume"`
		IntegrationResume *uipathIntegration `json:"integrationResume"`
		ResumeTime        nullable           `json:"resumeTime"`
		FolderPath        nullable           `json:"folderPath"`
		FolderKey         nullable           `json:"folderKey"`
	}
	uipathAPIResume struct {
		InboxID string          `json:"inboxId"`
		Request json.RawMessage `json:"request"`
	}
	uipathIntegration struct {
		Connector        json.RawMessage `json:"connector"`
		ConnectionID     json.RawMessage `json:"connectionId"`
		Operation        json.RawMessage `json:"operation"`
		ObjectName       json.RawMessage `json:"objectName"`
		FilterExpression json.RawMessage `json:"filterExpression"`
		Parameters       json.RawMessage `json:"parameters"`
		InboxID          string          `json:"inboxId"`
	}
)

// WriteUiPath writes the eval output of UiPath's own `uipath eval`. It says what the agent did for
// suspended rollouts, and for faulted ones, since the fault has no other place. With verbose it
// does so for all.
func (r *Report) WriteUiPath(w io.Writer, verbose bool) error {
	d := newDocument(w)
	d.value(struct {
		Name string `json:"evaluationSetName"`
	}{r.EvaluationSetName}, "")
	d.unclose("}")
	d.text(",\n  \"evaluationSetResults\": [")
	first := true
	if err := r.each(parts{spans: true}, func(one *schemas.Rollout) error {
		d.element(&first, uipathItemOf(one, verbose))
		return d.err
	}); err != nil {
		return err
	}
	d.endElements(first)
	d.text(",\n  \"datasetEvaluatorResults\": ")
	dataset := make(map[string]uipathDataset, len(r.Dataset))
	for key, result := range r.Dataset {
		dataset[key] = uipathDatasetOf(result)
	}
	d.value(dataset, "  ")
	d.text("\n}\n")
	return d.flush()
}

func uipathItemOf(one *schemas.Rollout, verbose bool) uipathItem {
	item := uipathItem{EvaluationName: one.EvaluationName, EvaluationRunResults: []uipathResult{}}
	if one.Status == schemas.StateScoring {
		return item // partial results would be taken for its score
	}
	for _, e := range one.EvaluationRunResults {
		item.EvaluationRunResults = append(item.EvaluationRunResults, uipathResultOf(e))
	}
	if x := one.AgentExecutionOutput; x != nil &&
		(verbose || one.Status == schemas.StateSuspended || one.Status == schemas.StateFaulted) {
		item.AgentExecutionOutput = uipathExecutionOf(x)
	}
	return item
}

// uipathResultOf converts the result of one evaluator. The model has a score for everything. An
// evaluator that failed or was not run has 0 and says why, as one of UiPath's that fails does.
func uipathResultOf(e schemas.Evaluated) uipathResult {
	out := uipathResult{EvaluatorName: e.EvaluatorName, EvaluatorID: e.EvaluatorID, IsLineResult: e.IsLineResult}
	out.Result.Details, out.Result.EvaluationTime = e.Result.Details, e.Result.EvaluationTime
	if e.Result.Score != nil {
		out.Result.Score = *e.Result.Score
	}
	switch {
	case e.Result.NotRun != "":
		out.Result.Details, _ = json.Marshal("Not run: " + e.Result.NotRun) // a string always marshals
	case e.Result.Error != "":
		out.Result.Details, _ = json.Marshal(thrown + e.Result.Error)
	case e.Result.Scale == legacyScale:
		uipathLegacy(&out)
	}
	return out
}

// thrown begins the details of an evaluator that failed.
const thrown = "Exception thrown by evaluator: "

// legacyScale is the score that means perfect to UiPath's legacy evaluators.
const legacyScale = 100

// uipathLegacy writes the result of a legacy evaluator as UiPath does: without details, but for
// those of single lines. A line's score that is true or false is 100 or 0 there, and their average
// is nevertheless one of 1 and 0.
func uipathLegacy(out *uipathResult) {
	var details struct {
		Results []struct {
			LineNumber int             `json:"line_number"`
			Actual     string          `json:"actual"`
			Expected   string          `json:"expected"`
			Score      any             `json:"score"`
			Details    json.RawMessage `json:"details"`
		} `json:"line_by_line_results"`
		Actual      int    `json:"total_lines_actual"`
		Expected    int    `json:"total_lines_expected"`
		Aggregation string `json:"aggregation_method"`
	}
	if json.Unmarshal(out.Result.Details, &details) != nil || details.Aggregation == "" {
		out.Result.Details = nil
		return
	}
	var boolean bool
	var right float64
	for i := range details.Results {
		line := &details.Results[i]
		if !bytes.HasPrefix(line.Details, []byte(`"`+thrown)) {
			line.Details = nil
		}
		if match, ok := line.Score.(bool); ok {
			boolean = true
			if match {
				right++
			}
		}
	}
	if boolean {
		out.Result.Score = right / float64(len(details.Results))
	}
	out.Result.Details, _ = json.Marshal(details) // it was JSON before
}

// uipathOutput wraps an output that is not an object, since the model allows only objects.
func uipathOutput(output json.RawMessage) json.RawMessage {
	if trimmed := bytes.TrimSpace(output); len(trimmed) == 0 ||
		trimmed[0] == '{' || trimmed[0] == '"' || string(trimmed) == "null" {
		return output
	}
	wrapped, err := json.Marshal(map[string]json.RawMessage{"output": output})
	if err != nil {
		return output
	}
	return wrapped
}

// uipathDataset is a set-level result. Its details have all members of UiPath's, in the same order,
// except perClass.
type (
	uipathDataset struct {
		Score          float64              `json:"score"`
		Details        uipathDatasetDetails `json:"details"`
		EvaluationTime *float64             `json:"evaluationTime"`
	}
	uipathDatasetDetails struct {
		Metric          string                       `json:"metric"`
		Classes         []string                     `json:"classes"`
		ConfusionMatrix [][]int                      `json:"confusionMatrix"`
		NTotal          int                          `json:"nTotal"`
		NScored         int                          `json:"nScored"`
		NSkipped        int                          `json:"nSkipped"`
		Averaging       string                       `json:"averaging,omitempty"`
		FValue          *float64                     `json:"fValue,omitempty"`
		PerClass        map[string]eval.ClassMetrics `json:"perClass,omitempty"`
		Macro           *eval.Metrics                `json:"macro,omitempty"`
		Micro           *eval.Metrics                `json:"micro,omitempty"`
	}
)

func uipathDatasetOf(r eval.DatasetResult) uipathDataset {
	d := r.Details
	out := uipathDataset{Score: r.Score, Details: uipathDatasetDetails{
		Metric: d.Metric, Classes: d.Classes, ConfusionMatrix: d.ConfusionMatrix, NTotal: d.NTotal,
		NScored: d.NScored, NSkipped: d.NSkipped, Averaging: d.Averaging, FValue: d.FValue,
		PerClass: d.PerClass, Macro: d.Macro, Micro: d.Micro,
	}}
	switch {
	case d.Macro == nil: // UiPath gives a confusion matrix no score
		out.Score = 0
	case d.FValue == nil:
		one := 1.0
		out.Details.FValue = &one
	}
	return out
}

func uipathExecutionOf(x *schemas.AgentExecution) *uipathExecution {
	out := &uipathExecution{ExecutionTime: x.ExecutionTime, Result: uipathRuntimeResult{
		EventType: "runtime_result", Output: uipathOutput(x.Result.Output), Status: string(x.Result.Status),
	}}
	out.Trace.Spans = uipathSpans(x.Trace.Spans)
	if f := x.Result.Error; f != nil {
		out.Result.Error = &uipathError{
			Code:  "Evalrun." + strings.ToUpper(strings.ReplaceAll(f.Category, "-", "_")),
			Title: "The agent did not finish", Detail: f.Message, Category: "Unknown",
		}
	}
	if x.Result.Status != schemas.Suspended {
		return out
	}
	for _, t := range x.Result.Triggers {
		out.Result.Triggers = append(out.Result.Triggers, uipathTriggerOf(t))
	}
	if len(out.Result.Triggers) > 0 {
		out.Result.Trigger = &out.Result.Triggers[0]
	}
	out.Result.Output = suspendValues(x.Result.Triggers)
	return out
}

func uipathTriggerOf(t schemas.Trigger) uipathTrigger {
	out := uipathTrigger{InterruptID: t.InterruptID,
		TriggerType: wait.UiPathType(wait.Type(t.Type)), ItemKey: nullable(t.ItemKey),
		FolderPath: folderPath(t), FolderKey: nullable(t.FolderKey)}
	switch wait.Type(t.Type) {
	case wait.TypeAPI:
		out.ItemKey = ""
		out.APIResume = &uipathAPIResume{InboxID: t.TriggerID, Request: t.Payload}
	case wait.TypeInbox:
		out.ItemKey = ""
		var p struct {
			Connector, Operation, Parameters json.RawMessage
			ObjectName                       json.RawMessage `json:"object_name"`
			FilterExpression                 json.RawMessage `json:"filter_expression"`
		}
		_ = json.Unmarshal(t.Payload, &p) // missing members become null
		out.IntegrationResume = &uipathIntegration{Connector: p.Connector, Operation: p.Operation, ObjectName: p.ObjectName,
			FilterExpression: p.FilterExpression, Parameters: p.Parameters, InboxID: t.TriggerID}
	case wait.TypeTimer:
		out.ItemKey = ""
		if t.ResumeTime != nil {
			out.ResumeTime = nullable(pythonTime(*t.ResumeTime))
		}
	}
	return out
}

// pythonTime writes a time as Python's str() does.
func pythonTime(t time.Time) string {
	layout := "2006-01-02 15:04:05.000000-07:00"
	if t.Nanosecond()/1000 == 0 {
		layout = "2006-01-02 15:04:05-07:00"
	}
	return t.UTC().Format(layout)
}

// suspendValues is the output of a suspended agent: the values of its interrupts by id. Siblings
// form a list.
func suspendValues(triggers []schemas.Trigger) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('{')
	for i := 0; i < len(triggers); {
		from := i
		for i < len(triggers) && triggers[i].InterruptID == triggers[from].InterruptID {
			i++
		}
		if from > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(triggers[from].InterruptID) // a string always marshals
		b.Write(append(key, ':'))
		if i == from+1 {
			b.Write(suspendValue(triggers[from]))
			continue
		}
		for j := from; j < i; j++ {
			b.WriteByte("[,"[min(j-from, 1)])
			b.Write(suspendValue(triggers[j]))
		}
		b.WriteByte(']')
	}
	b.WriteByte('}')
	return b.Bytes()
}

// suspendValue gives the name of a process back its field, which the results document calls
// process_name.
func suspendValue(t schemas.Trigger) json.RawMessage {
	const ours = `{"process_name":`
	var compact bytes.Buffer
	if t.Type == string(wait.TypeJob) && json.Compact(&compact, t.Payload) == nil &&
		bytes.HasPrefix(compact.Bytes(), []byte(ours)) {
		return append([]byte(`{"name":`), compact.Bytes()[len(ours):]...)
	}
	return t.Payload
}

func folderPath(t schemas.Trigger) nullable {
	if t.FolderPath == nil {
		return ""
	}
	return nullable(*t.FolderPath)
}

// nullable is a string that is written as null if it is empty.
type nullable string

// MarshalJSON implements json.Marshaler.
func (n nullable) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}
