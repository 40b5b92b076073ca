package acpagent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
)

// maxTold is how much of a result is told. Some agents show their model no more of a tool's result
// either.
const maxTold = 100 << 10

// tellResult returns the part of the next prompt that tells a result, and the text of the result.
func tellResult(w *wait.Work, result json.RawMessage) (told, text string, failed bool) {
	text, failed = resultText(result)
	if len(text) > maxTold {
		text = strings.ToValidUTF8(text[:maxTold], "") + "\n[… left out …]"
	}
	what := "The result of"
	if failed {
		what = "It has failed:"
	}
	return fmt.Sprintf("%s %s %s, which you started before and which is done now:\n\n%s", what, w.Tool,
		jsonobj.Canonical(w.Arguments), text), text, failed
}

// resultText returns the result of a tool as a person would read it, and whether it is an error.
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
