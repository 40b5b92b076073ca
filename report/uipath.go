package report

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/evalrun/evalrun/store"
	"github.com/evalrun/evalrun/trigger"
)

// The eval output of `uipath eval --output-file` (facts/uipath.md sections 3.1 to 3.3).
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

// WriteUiPath writes the eval output of UiPath's own `uipath eval`. What the agent did is in it of a suspended rollout and, since there
// is no other place for the fault, of a faulted one; with verbose of all.
func (r *Report) WriteUiPath(w io.Writer, verbose bool) error {
	d := newDocument(w)
	d.value(struct {
		Name string `json:"evaluationSetName"`
	}{r.EvaluationSetName}, "")
	d.unclose("}")
	d.text(",\n  \"evaluationSetResults\": [")
	first := true
	if err := r.each(parts{spans: true}, func(one *Rollout) error {
		d.element(&first, uipathItemOf(one, verbose))
		return d.err
	}); err != nil {
		return err
	}
	d.endElements(first)
	d.text(",\n  \"datasetEvaluatorResults\": ")
	d.value(datasetOrEmpty(r.Dataset), "  ")
	d.text("\n}\n")
	return d.flush()
}

func uipathItemOf(one *Rollout, verbose bool) uipathItem {
	item := uipathItem{EvaluationName: one.EvaluationName, EvaluationRunResults: []uipathResult{}}
	for _, e := range one.EvaluationRunResults {
		if e.Result.Score == nil && e.Result.Error == "" {
			continue // UiPath writes nothing of an evaluator that did not run
		}
		out := uipathResult{EvaluatorName: e.EvaluatorName, EvaluatorID: e.EvaluatorID, IsLineResult: e.IsLineResult}
		if e.Result.Score != nil { // UiPath scores an evaluator that failed 0
			out.Result.Score = *e.Result.Score
		}
		out.Result.Details, out.Result.EvaluationTime = e.Result.Details, e.Result.EvaluationTime
		if out.Result.Details == nil && e.Result.Error != "" {
			out.Result.Details, _ = json.Marshal(e.Result.Error) // a string always marshals
		}
		item.EvaluationRunResults = append(item.EvaluationRunResults, out)
	}
	if x := one.AgentExecutionOutput; x != nil && (verbose || one.Status == store.StateSuspended || one.Status == store.StateFaulted) {
		item.AgentExecutionOutput = uipathExecutionOf(x)
	}
	return item
}

func uipathExecutionOf(x *AgentExecution) *uipathExecution {
	out := &uipathExecution{ExecutionTime: x.ExecutionTime, Result: uipathRuntimeResult{EventType: "runtime_result", Output: x.Result.Output, Status: x.Result.Status}}
	out.Trace.Spans = uipathSpans(x.Trace.Spans)
	if f := x.Result.Error; f != nil {
		out.Result.Error = &uipathError{Code: "Evalrun." + strings.ToUpper(strings.ReplaceAll(f.Category, "-", "_")), Title: "The agent did not finish",
			Detail: f.Message, Category: "Unknown"}
	}
	if x.Result.Status != string(Suspended) {
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

func uipathTriggerOf(t Trigger) uipathTrigger {
	out := uipathTrigger{InterruptID: t.InterruptID, TriggerType: trigger.UiPathType(trigger.Type(t.Type)), ItemKey: nullable(t.ItemKey),
		FolderPath: t.FolderPath, FolderKey: nullable(t.FolderKey)}
	switch trigger.Type(t.Type) {
	case trigger.API:
		out.ItemKey = ""
		out.APIResume = &uipathAPIResume{InboxID: t.TriggerID, Request: t.Payload}
	case trigger.Inbox:
		out.ItemKey = ""
		var p struct {
			Connector, Operation, Parameters json.RawMessage
			ObjectName                       json.RawMessage `json:"object_name"`
			FilterExpression                 json.RawMessage `json:"filter_expression"`
		}
		_ = json.Unmarshal(t.Payload, &p) // what is missing is null
		out.IntegrationResume = &uipathIntegration{Connector: p.Connector, Operation: p.Operation, ObjectName: p.ObjectName,
			FilterExpression: p.FilterExpression, Parameters: p.Parameters, InboxID: t.TriggerID}
	case trigger.Timer:
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

// suspendValues is the output of a suspended agent: its interrupts with their values. Siblings are a list.
func suspendValues(triggers []Trigger) json.RawMessage {
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

// suspendValue gives the name of a process back its field, which the results document calls process_name.
func suspendValue(t Trigger) json.RawMessage {
	const ours = `{"process_name":`
	var compact bytes.Buffer
	if t.Type == string(trigger.Job) && json.Compact(&compact, t.Payload) == nil && bytes.HasPrefix(compact.Bytes(), []byte(ours)) {
		return append([]byte(`{"name":`), compact.Bytes()[len(ours):]...)
	}
	return t.Payload
}
