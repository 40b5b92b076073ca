package service

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
)

// ProgressMessage is the question while one is asked, otherwise the progress of a job of several
// rollouts. It is not redacted.
func ProgressMessage(j store.Job) string {
	switch {
	case j.Status == store.JobInputRequired:
		return question(j.Question)
	case j.Total > 1 && (j.Ended > 0 || j.Suspended > 0):
		message := fmt.Sprintf("rollouts that have ended: %d of %d", j.Ended, j.Total)
		if j.Suspended > 0 {
			message += fmt.Sprintf(", %d wait", j.Suspended)
		}
		return message
	}
	return ""
}

// maxQuestion is how much is shown of a question without a title.
const maxQuestion = 500

// question extracts the question to a person from the spec of its trigger.
func question(spec json.RawMessage) string {
	var s wait.Spec
	if json.Unmarshal(spec, &s) != nil {
		return ""
	}
	var asked struct {
		Title, Message, Question, Prompt string
	}
	_ = json.Unmarshal(s.Visible(), &asked) // other values than objects have none of these
	for _, one := range []string{asked.Title, asked.Question, asked.Prompt, asked.Message} {
		if one != "" {
			return one
		}
	}
	all := strings.ToValidUTF8(string(s.Visible()), "")
	if len(all) > maxQuestion {
		all = strings.ToValidUTF8(all[:maxQuestion], "") + "…"
	}
	return all
}
