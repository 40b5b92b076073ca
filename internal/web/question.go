package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

const (
	// maxShown is the most characters of a value that are shown, and maxFacts the most values of a
	// question.
	maxShown = 2400
	maxFacts = 100
	// maxKey is the most characters of a value's name that are shown.
	maxKey = 80
	// maxUnfolded is the most bytes of a question that is not folded.
	maxUnfolded = 64 << 10
)

// question is a question to a person. It stands for all triggers that ask it word for word.
type question struct {
	// Trigger is the trigger that has waited longest.
	runner.Trigger
	// Digest is the same for the same question.
	Digest   string
	Title    string
	App      string
	Assignee string
	// Facts are the members of the question's data, or the whole of it.
	Facts []fact
	// Fields are the fields of the form that the question's JSON schema, or the evaluator that asks,
	// describes.
	Fields []field
	// FactsMore counts the members that are not among the facts.
	FactsMore int
	// Bytes is the size of the question. Folded is set if it is too large to be shown at once, and
	// Whole if a reader can see more of it elsewhere.
	Bytes         int
	Folded, Whole bool
	// Same counts the triggers that ask it, this one included, and Runs their runs.
	Same, Runs int
	// Askers are the agents that ask it.
	Askers  []asker
	Overdue bool
	// Blind is set if the person must not know which agent it is: no link leads to the rollout.
	Blind bool

	last   string          // the last run that asked it
	asking map[string]bool // the rollouts that ask it, each perhaps several times
}

// fact is a named value. More counts its bytes that are not shown. Rest is the folded part.
type fact struct {
	Name, Value string
	More        int
	Rest        string
}

// Rollouts counts the rollouts that ask it.
func (q *question) Rollouts() int { return len(q.asking) }

// add counts one more trigger that asks the same. The triggers of a run come one after another.
func (q *question) add(t runner.Trigger) {
	q.Same++
	if q.last != t.RunID {
		q.Runs++
		q.last = t.RunID
	}
	if q.asking[t.RolloutID] {
		return
	}
	if q.asking == nil {
		q.asking = map[string]bool{}
	}
	q.asking[t.RolloutID] = true
	for i := range q.Askers {
		if q.Askers[i].Agent == t.Agent {
			q.Askers[i].N++
			return
		}
	}
	q.Askers = append(q.Askers, asker{t.Agent, 1})
}

// asksPerson reports whether a person can answer a trigger.
func asksPerson(t runner.Trigger) bool {
	return t.Type == string(wait.TypeTask) && (t.Answer == runner.AnswerDecision || t.Answer == runner.AnswerRating)
}

// digestOf returns a digest of everything that a person sees of a question, which tells questions
// apart.
func digestOf(t runner.Trigger) string {
	sum := sha256.Sum256(bytes.Join([][]byte{[]byte(t.EvaluatorID), []byte(t.AskedBy), t.Payload}, []byte{0}))
	return hex.EncodeToString(sum[:8])
}

// isBlind reports whether a trigger asks for a rating without saying which agent it is.
func isBlind(t runner.Trigger) bool {
	o, _ := jsonobj.ParseObject(t.Payload) // another value has no members
	return t.Answer == runner.AnswerRating && o.Object("data").Text("agent") == ""
}

func newQuestion(t runner.Trigger, now time.Time) *question {
	q := &question{
		Trigger: t, Digest: digestOf(t), Bytes: len(t.Payload), Folded: len(t.Payload) > maxUnfolded,
		Overdue: t.Deadline != nil && now.After(*t.Deadline),
	}
	q.add(t)
	o, _ := jsonobj.ParseObject(t.Payload) // another value has no members
	for _, key := range []string{"title", "question", "prompt", "message"} {
		for _, m := range o {
			if text, isText := jsonobj.Unquote(m.Value); isText && strings.TrimSpace(text) != "" &&
				q.Title == "" && strings.EqualFold(m.Key, key) {
				q.Title = text
			}
		}
	}
	whole := q.Title
	title, more := cut(cmp.Or(q.Title, t.InterruptID), maxShown)
	if q.Title = title; more > 0 {
		q.Title, q.Whole = title+" …", true
	}
	q.App, q.Assignee = o.Text("app_name"), o.Text("assignee")
	if t.Answer == runner.AnswerRating {
		q.Fields = ratingFields(o.Object("data"))
		q.Blind = isBlind(t)
	} else {
		q.Fields = readForm(formOf(t.Payload))
	}
	q.addFacts(o, whole)
	return q
}

// addFacts shows the content of a question: the members of data, if it has any, else all but the
// title.
func (q *question) addFacts(o jsonobj.Object, title string) {
	data := o.Object("data")
	if len(data) == 0 {
		data = o
	}
	for _, m := range data {
		value := textOf(m.Value)
		if value == title && title != "" ||
			len(q.Fields) > 0 && (m.Key == "input" || m.Key == "requestedSchema" || m.Key == "schema") {
			continue
		}
		if jsonobj.IsNull(m.Value) {
			continue
		}
		q.addFact(m.Key, value)
	}
	if o == nil && len(q.Payload) > 0 {
		q.addFact("question", textOf(q.Payload))
	}
}

// addFact shows a value. It shows the beginning of a long one and folds the rest, unless the whole
// question is too large for that.
func (q *question) addFact(name, value string) {
	if len(q.Facts) == maxFacts {
		q.FactsMore++
		q.Whole = true
		return
	}
	shown, more := cut(value, maxShown)
	f := fact{Name: name, Value: shown, More: more}
	if name, more := cut(name, maxKey); more > 0 {
		f.Name, q.Whole = name+" …", true
	}
	switch {
	case more > 0 && q.Folded:
		q.Whole = true
	case more > 0:
		f.Rest = value[len(shown):]
	}
	q.Facts = append(q.Facts, f)
}

// whole answers with a whole question, as a file.
func (p *site) whole(w http.ResponseWriter, r *http.Request) error {
	t, err := p.o.Service.Trigger(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	attachment(w, "question.json", "text/plain; charset=utf-8", t.Payload)
	return nil
}

// asking is a question with the data of its form.
type asking struct {
	*question
	CSRF, Seen string
	// Alone is set if there is no next question to go to.
	Alone bool
	// OfRun is the run whose questions alone are shown, empty for those of all runs.
	OfRun string
}
