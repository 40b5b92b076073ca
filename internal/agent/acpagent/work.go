package acpagent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/gateway/suspend"
	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// WorkSpec is what a rollout waits for that has started work: the job, or the MCP task. A task's id may be all that it takes to read its result: it
// is shown as a hash.
func WorkSpec(w suspend.Work) (wait.Spec, error) {
	payload := map[string]any{"server": w.Server, "tool": w.Tool, "arguments": w.Arguments}
	spec := wait.Spec{Type: wait.Job, Name: "JOB_RAW", Process: w.Tool}
	switch {
	case w.Input != nil:
		return questionSpec(w, payload)
	case w.Task != nil:
		sum := sha256.Sum256([]byte(w.Task.ID))
		spec.Type, spec.Name, spec.ItemKey = wait.MCPTask, string(wait.MCPTask), "task-"+hex.EncodeToString(sum[:8])
		if at := w.Task.ExpiresAt(); !at.IsZero() {
			spec.ExpiresAt = &at
		}
	default:
		spec.ItemKey, spec.FolderKey = w.Job.Key, w.Job.FolderKey
	}
	var err error
	if spec.Payload, err = json.Marshal(payload); err != nil {
		return spec, err
	}
	spec.Watch, err = json.Marshal(w)
	return spec, err
}

// questionSpec is a task for a person: to answer what a server wants to know.
func questionSpec(w suspend.Work, payload map[string]any) (wait.Spec, error) {
	questions := w.Input.Questions()
	var titles []string
	for _, q := range questions {
		asked, _ := jsonobj.ParseObject(q.Value)
		titles = append(titles, asked.Text("message"))
	}
	if titles == nil {
		titles = []string{cmp.Or(w.Input.Message, w.Tool+" wants to know something before it goes on")}
	}
	payload["what"], payload["title"] = requestQuestion, strings.Join(titles, "\n")
	if questions != nil {
		payload["questions"] = questions.JSON()
	}
	if w.Task != nil && !w.Task.ExpiresAt().IsZero() {
		payload["expiresAt"] = w.Task.ExpiresAt() // the server forgets what it has asked
	}
	spec := wait.Spec{Type: wait.Task, Name: string(wait.Task)}
	var err error
	spec.Payload, err = json.Marshal(payload)
	return spec, err
}

// maxTold is how much of a result is told: some agents show their model no more of what a tool gives either.
const maxTold = 100 << 10

// tellResult is the part of the next prompt that gives a result, and the text of the result.
func tellResult(w *suspend.Work, result json.RawMessage) (told, text string, failed bool) {
	text, failed = resultText(result)
	if len(text) > maxTold {
		text = strings.ToValidUTF8(text[:maxTold], "") + "\n[… left out …]"
	}
	what := "The result of"
	if failed {
		what = "It has failed:"
	}
	return fmt.Sprintf("%s %s %s, which you started before and which is done now:\n\n%s", what, w.Tool, jsonobj.Canonical(w.Arguments), text), text, failed
}

// resultText is the result of a tool as a person would read it, and whether it is an error.
func resultText(result json.RawMessage) (text string, failed bool) {
	var r struct {
		Content    []json.RawMessage `json:"content"`
		Structured json.RawMessage   `json:"structuredContent"`
		IsError    bool              `json:"isError"`
	}
	if json.Unmarshal(result, &r) != nil {
		return string(result), false
	}
	var parts []string
	for _, raw := range r.Content {
		var block struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if json.Unmarshal(raw, &block) == nil && block.Type == "text" {
			parts = append(parts, block.Text)
		} else {
			parts = append(parts, string(raw))
		}
	}
	return cmp.Or(strings.Join(parts, "\n"), string(r.Structured)), r.IsError
}
