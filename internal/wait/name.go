package wait

import (
	"encoding/json"
	"strings"
)

// Names returns what people know a wait by, the best first: the process, the title of the question,
// the application that asks. It returns none if the payload says nothing of the kind.
func Names(payload json.RawMessage) (out []string) {
	var asked struct {
		Process string `json:"process_name"`
		Title   string `json:"title"`
		App     string `json:"app_name"`
		Name    string `json:"name"`
	}
	_ = json.Unmarshal(payload, &asked) // it may be anything
	for _, name := range []string{asked.Process, asked.Title, asked.App, asked.Name} {
		if name = strings.TrimSpace(name); name != "" {
			out = append(out, name)
		}
	}
	return out
}
