package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

// maxShown is how many characters of a value of a question are shown.
const maxShown = 2400

// question is something that a person is asked, once for all triggers that ask it word for word.
type question struct {
	// Trigger is the one that has waited longest.
	runner.Trigger
	// Digest is the same for the same question.
	Digest   string
	Title    string
	App      string
	Assignee string
	// Facts are the members of the question's data, or the whole of it.
	Facts []fact
	// Fields are those of the form that the question's JSON schema, or the evaluator that asks,
	// describes.
	Fields []field
	// Same counts the triggers that ask it, this one included.
	Same    int
	Overdue bool
}

// fact is a named value. More is how many bytes of it are not shown.
type fact struct {
	Name, Value string
	More        int
}

// asksPerson reports whether a trigger is ended by an answer of a person.
func asksPerson(t runner.Trigger) bool {
	return t.Type == string(wait.TypeTask) && (t.Answer == runner.AnswerDecision || t.Answer == runner.AnswerRating)
}

// digestOf tells questions apart, by everything that a person sees of them.
func digestOf(t runner.Trigger) string {
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(t.EvaluatorID), []byte(t.AskedBy), t.Payload}, []byte{0}))
	return hex.EncodeToString(sum[:8])
}

func newQuestion(t runner.Trigger, now time.Time) *question {
	q := &question{Trigger: t, Digest: digestOf(t), Same: 1, Overdue: t.Deadline != nil && now.After(*t.Deadline)}
	o, _ := jsonobj.ParseObject(t.Payload) // another value has no members
	for _, key := range []string{"title", "question", "prompt", "message"} {
		for _, m := range o {
			if text, isText := jsonobj.Unquote(m.Value); isText && strings.TrimSpace(text) != "" && q.Title == "" && strings.EqualFold(m.Key, key) {
				q.Title = text
			}
		}
	}
	q.Title = cmp.Or(q.Title, t.InterruptID)
	q.App, q.Assignee = o.Text("app_name"), o.Text("assignee")
	if t.Answer == runner.AnswerRating {
		q.Fields = ratingFields(o.Object("data"))
	} else {
		q.Fields = readForm(formOf(t.Payload))
	}
	q.addFacts(o)
	return q
}

// addFacts shows what was asked: the members of data, if it has any, else all but the title.
func (q *question) addFacts(o jsonobj.Object) {
	data := o.Object("data")
	if len(data) == 0 {
		data = o
	}
	for _, m := range data {
		value := textOf(m.Value)
		if value == q.Title || len(q.Fields) > 0 && (m.Key == "input" || m.Key == "requestedSchema" || m.Key == "schema") {
			continue
		}
		if jsonobj.IsNull(m.Value) {
			continue
		}
		shown, more := cut(value, maxShown)
		q.Facts = append(q.Facts, fact{m.Key, shown, more})
	}
	if o == nil && len(q.Payload) > 0 {
		shown, more := cut(textOf(q.Payload), maxShown)
		q.Facts = append(q.Facts, fact{"question", shown, more})
	}
}

// textOf is a JSON value as a person reads it: a text without quotes, everything else indented.
func textOf(raw json.RawMessage) string {
	if text, isText := jsonobj.Unquote(raw); isText {
		return text
	}
	var out bytes.Buffer
	if json.Indent(&out, raw, "", "  ") != nil {
		return string(raw)
	}
	return readable(out.String())
}
