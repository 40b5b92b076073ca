package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/runner"
)

// maxAnswer is the most bytes of an answer's form.
const maxAnswer = 8 << 20

// answerPage asks whether to send an answer, or says what is wrong with it.
type answerPage struct {
	frame
	entered
	Asked *question
	// Payload is exactly what would be sent, empty if something is wrong.
	Payload string
	Error   string
	CSRF    string
}

// entered is the input of a person.
type entered struct {
	Verb, Reason, Data string
	All                bool
	Seen, Fence        string
	// Run is the run whose questions were shown; empty for those of all runs.
	Run string
}

func (e *entered) read(v url.Values) {
	*e = entered{
		Verb: v.Get("verb"), Reason: strings.TrimSpace(v.Get("reason")), Data: strings.TrimSpace(v.Get("data")),
		All: v.Get("all") != "", Seen: v.Get("seen"), Fence: v.Get("fence"), Run: v.Get("run"),
	}
}

// answered describes the outcome of an answer. It is a page, and a document for the script.
type answered struct {
	frame `json:"-"`
	// Outcome is sent, late (somebody was faster, or nobody waits any more), wrong or stale.
	Outcome string `json:"outcome"`
	Text    string `json:"text"`
	// Payload is the answer that counts, if somebody else has answered.
	Payload string `json:"payload,omitempty"`
	RunID   string `json:"runId,omitempty"`
	Rollout string `json:"rolloutId,omitempty"`
	// CSRF is a token for another try.
	CSRF string `json:"csrf,omitempty"`
	// Mine is set if the answer that counts came from the person who reads this.
	Mine bool `json:"-"`
}

// answers takes the answers of people and describes their outcome.
type answers struct{ o Options }

// answer takes an answer. Without JavaScript it first asks whether to send it.
func (a answers) answer(w http.ResponseWriter, r *http.Request) error {
	if !sameOrigin(r) {
		return &pageError{http.StatusForbidden,
			"This answer was not sent by a page of this server: it came from another site. Nothing was done."}
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxAnswer)
	if err := r.ParseForm(); err != nil {
		return &pageError{http.StatusRequestEntityTooLarge,
			fmt.Sprintf("The answer could not be read, or is larger than %d MiB. Hand it in with evalrun deliver.",
				maxAnswer>>20)}
	}
	t, err := a.o.Service.Trigger(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	a.about(r, t.TriggerID)
	if !asksPerson(t) {
		return &pageError{http.StatusUnprocessableEntity,
			"This trigger waits for no person: evalrun deliver hands in a result in place of its job."}
	}
	me, may, csrf := answerer(r)
	if !may {
		return &pageError{http.StatusForbidden, "Your token may look and not answer: it lacks the scope deliver."}
	}
	page := &answerPage{frame: frame{Title: "Send this answer?", Section: "/inbox"},
		Asked: newQuestion(t, a.o.Now()), CSRF: csrf}
	page.read(r.PostForm)
	if !t.Open {
		return a.tooLate(w, r, http.StatusConflict, t)
	}
	what, problem := page.delivery(r.PostForm)
	switch {
	case page.Fence != page.Asked.Digest:
		page.Error = "The question has changed since the page was made. This is what is asked now."
	case problem != "":
		page.Error = problem
	case !validCSRF(r.PostForm.Get("csrf"), csrf):
		page.Error = "The page was older than the server. Nothing is lost: send it again."
	case r.PostForm.Get("confirm") != "":
		return a.send(w, r, page, what, me)
	}
	if page.Error == "" {
		page.Payload = textOf(what.Payload)
		return a.o.present(w, r, http.StatusOK, "answer.html", page)
	}
	if wantsJSON(r) {
		outcome := answered{Outcome: "wrong", Text: page.Error, CSRF: csrf}
		for _, f := range page.Asked.Fields {
			if f.Error != "" {
				outcome.Text += " " + f.Title + ": " + f.Error + "."
			}
		}
		return a.tell(w, r, http.StatusUnprocessableEntity, outcome)
	}
	page.Title = "The answer was not sent"
	return a.o.present(w, r, http.StatusUnprocessableEntity, "answer.html", page)
}

// delivery returns the content of the form, or what is wrong with it. The errors of its fields are
// in the fields.
func (page *answerPage) delivery(v url.Values) (d runner.Delivery, problem string) {
	var data json.RawMessage
	if len(page.Asked.Fields) > 0 && page.Verb != "deny" {
		var err error
		if data, err = fill(page.Asked.Fields, v); err != nil {
			return d, "The answer does not fit what is asked for."
		}
	} else if page.Data != "" {
		if data = json.RawMessage(page.Data); !json.Valid(data) {
			return d, "Data: expected one JSON document; a text stands in quotes."
		}
	}
	switch page.Verb {
	case "rate":
		if page.Asked.Answer != runner.AnswerRating {
			return d, "This question asks for no rating."
		}
		d.Payload = data
		return d, ""
	case "approve", "deny":
		if page.Asked.Answer == runner.AnswerRating {
			return d, "The evaluator that asks wants a rating."
		}
	default:
		return d, "Choose one of the buttons."
	}
	if page.Verb == "approve" && len(page.Asked.Fields) > 0 {
		if err := fits(formOf(page.Asked.Payload), data); err != nil {
			return d, "The answer does not fit the schema of the question: " + plain(err.Error()) + "."
		}
	}
	o := jsonobj.Object{
		{Key: "action", Value: jsonobj.Quote(page.Verb)},
		{Key: "approved", Value: json.RawMessage(fmt.Sprint(page.Verb == "approve"))},
	}
	if page.Reason != "" {
		reason, err := jsonobj.Marshal(page.Reason) // this spells it as the script shows it: < and > stay as they are
		if err != nil {
			return d, "Reason: expected text."
		}
		o = append(o, jsonobj.Member{Key: "reason", Value: reason})
	}
	if data != nil {
		o = append(o, jsonobj.Member{Key: "data", Value: data})
	}
	d.Payload = o.JSON()
	return d, ""
}

// send delivers an answer, to all that ask the same if the person wants that, and writes the
// outcome.
func (a answers) send(w http.ResponseWriter, r *http.Request, page *answerPage, what runner.Delivery, me string) error {
	ctx := context.WithoutCancel(r.Context()) // an answer that was read whole counts, also without a listener
	ids := []string{page.Asked.TriggerID}
	if page.All {
		others, err := a.sameQuestion(ctx, page)
		if err != nil {
			return err
		}
		ids = append(ids, others...)
	}
	sent, late := 0, 0
	for i, id := range ids {
		receipt, err := a.deliver(ctx, page, id, what, me)
		switch wrong := new(runner.InputError); {
		case errors.As(err, &wrong) && i == 0:
			return a.tell(w, r, http.StatusUnprocessableEntity, answered{Outcome: "wrong", Text: wrong.Error(), CSRF: page.CSRF})
		case errors.As(err, &wrong), errors.Is(err, service.ErrNotFound):
			late++ // the run was removed a moment ago
		case err != nil && receipt.Disposition == "":
			return err
		case receipt.Disposition == runner.Accepted:
			sent++
		default:
			late++
		}
	}
	if sent == 0 {
		t, err := a.o.Service.Trigger(ctx, page.Asked.TriggerID)
		if err != nil {
			return err
		}
		return a.tooLate(w, r, http.StatusConflict, t)
	}
	text := map[string]string{"approve": "Approved", "deny": "Denied", "rate": "Rated"}[page.Verb]
	if len(ids) > 1 {
		text += fmt.Sprintf(" for %s", counted(sent, "rollout"))
	}
	if late > 0 {
		text += fmt.Sprintf("; %s answered by others a moment before", counted(late, "rollout"))
	}
	out := answered{Outcome: "sent", Text: text + ".", RunID: page.Asked.RunID, Rollout: page.Asked.RolloutID}
	if page.Asked.Blind {
		out.RunID, out.Rollout = "", "" // the next rater must not know the agent either
	}
	return a.tell(w, r, http.StatusOK, out)
}

func (a answers) deliver(ctx context.Context, page *answerPage, id string,
	what runner.Delivery, me string) (runner.Receipt, error) {
	if page.Verb == "rate" {
		if err := a.ratedBefore(ctx, id, me); err != nil {
			return runner.Receipt{}, err
		}
		value := page.Asked.Fields[0].text()
		return a.o.Service.Runner().Rate(ctx, id, runner.Rating{Value: value, Reason: page.Reason, Rater: me})
	}
	what.By, what.Person = "page", me
	return a.o.Service.Deliver(ctx, id, what)
}

// ratedBefore refuses a second rating by one person: an evaluator with several raters asks several
// people.
func (a answers) ratedBefore(ctx context.Context, id, me string) error {
	t, err := a.o.Service.Trigger(ctx, id)
	if err != nil {
		return err
	}
	var asked struct{ Data struct{ Raters int } }
	if json.Unmarshal(t.Payload, &asked) != nil || asked.Data.Raters < 2 {
		return nil // the evaluator asks one person
	}
	rated := false
	err = a.o.Service.Triggers(ctx, t.RunID, true, func(other runner.Trigger) error {
		if other.TriggerID != id && other.RolloutID == t.RolloutID && other.EvaluatorID == t.EvaluatorID {
			rated = rated || slices.ContainsFunc(other.Deliveries, func(d runner.Delivered) bool {
				return d.Disposition == runner.Accepted && d.Person == me
			})
		}
		return nil
	})
	if err == nil && rated {
		return &runner.InputError{Err: fmt.Errorf(
			"you have rated this rollout already, and %s asks several people: somebody else is to rate it",
			plain(t.EvaluatorID))}
	}
	return err
}

// sameQuestion returns the other triggers that asked the same when the page was made, in the runs
// that it showed.
func (a answers) sameQuestion(ctx context.Context, page *answerPage) (ids []string, err error) {
	seen, err := microseconds(page.Seen)
	if err != nil {
		return nil, &pageError{http.StatusUnprocessableEntity, "The form does not say when it was made. Load the page again."}
	}
	err = a.o.Service.Triggers(ctx, page.Run, false, func(t runner.Trigger) error {
		if t.TriggerID != page.Asked.TriggerID && asksPerson(t) &&
			digestOf(t) == page.Asked.Digest && !t.CreatedAt.After(seen) {
			ids = append(ids, t.TriggerID)
		}
		return nil
	})
	_, err = unreadable(err)
	return ids, err
}

// tooLate says that an answer was not sent, and who was faster, when, and with what.
func (a answers) tooLate(w http.ResponseWriter, r *http.Request, status int, t runner.Trigger) error {
	return a.tell(w, r, status, a.ended(r, t, "%s was faster, at %s. Your answer was not sent."))
}

// ended describes the end of a trigger. It puts who answered, and when, into the text, and adds the
// answer.
func (a answers) ended(r *http.Request, t runner.Trigger, text string) answered {
	out := answered{Outcome: "late", Text: "Nobody waits for this answer any more: the trigger is " + t.State + ".",
		RunID: t.RunID, Rollout: t.RolloutID}
	for _, d := range t.Deliveries {
		if d.Disposition != runner.Accepted {
			continue
		}
		at := d.ReceivedAt.UTC().Format("2006-01-02 15:04:05 UTC")
		out.Text = fmt.Sprintf(text, deliverer(d.By, d.Person), at)
		if me, _, _ := answerer(r); d.Person != "" && d.Person == me {
			out.Mine, out.Text = true, fmt.Sprintf("You have answered this already (%s), at %s. That is what counts.", d.By, at)
		}
		out.Payload = textOf(d.Payload)
	}
	if isBlind(t) { // the next rater must know neither the agent nor the ratings of others
		if out.RunID, out.Rollout = "", ""; !out.Mine {
			out.Payload = ""
		}
	}
	return out
}

// tell answers the script with a document, and a form with a page.
func (a answers) tell(w http.ResponseWriter, r *http.Request, status int, out answered) error {
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(out) // a client that is gone misses the answer
		return nil
	}
	out.frame = frame{Title: map[string]string{"sent": "Sent", "late": "Somebody was faster"}[out.Outcome],
		Section: "/inbox"}
	switch {
	case out.Mine:
		out.Title = "Answered already"
	case out.Title == "":
		out.Title = "The answer was not sent"
	}
	return a.o.present(w, r, status, "answered.html", &out)
}

func wantsJSON(r *http.Request) bool { return r.Header.Get("Accept") == "application/json" }

// about notes the object of a request for the audit log.
func (a answers) about(r *http.Request, object string) {
	if a.o.About != nil {
		a.o.About(r, object)
	}
}

// outcome tells the script the end of a trigger.
func (a answers) outcome(w http.ResponseWriter, r *http.Request) error {
	t, err := a.o.Service.Trigger(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if t.Open && !wantsJSON(r) {
		http.Redirect(w, r, "/inbox#q-"+t.TriggerID, http.StatusSeeOther)
		return nil
	}
	if t.Open {
		return a.tell(w, r, http.StatusOK, answered{Outcome: "open"})
	}
	return a.tell(w, r, http.StatusOK, a.ended(r, t, "Answered by %s, at %s.")) // the reader entered nothing here
}
