package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/input"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// rolloutPages are the pages of rollouts.
type rolloutPages struct {
	*site
	// ended caches the pages of rollouts that have ended, without the parts for one reader, by the
	// revisions of their runs.
	ended remembered[*rolloutPage]
}

func newRolloutPages(s *site) *rolloutPages {
	p := &rolloutPages{site: s}
	p.ended.most = maxRemembered
	return p
}

// page answers with the page of a rollout.
func (p *rolloutPages) page(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.site.named(w, r)
	if !found {
		return err
	}
	o, err := p.overviewOf(r.Context(), run)
	if err != nil {
		return err
	}
	page, err := p.base(r.Context(), run, r.PathValue("rollout"), o)
	if err != nil {
		return err
	}
	d := page.Detail
	if !o.head.Final {
		page.Live = "/runs/" + run.ID + "/live"
	}
	now := p.o.Now()
	if !d.Status.IsTerminal() {
		page.SoFar = now.Sub(d.StateSince)
	}
	page.From = r.URL.Query().Get("from")
	page.place(o, r.URL.Query())
	page.addNotScored(o)
	all := stretches(d, now)
	page.Timeline = draw(all)
	page.addTable(all, r.URL.Query())
	page.addWaitCards()
	if err := page.addForms(p.o, r); err != nil {
		return err
	}
	page.addFiles()
	page.addTrajectory(r.URL.Query())
	page.Commands = []string{"evalrun show " + run.ID + " " + d.RolloutID, "evalrun logs " + run.ID + " " + d.RolloutID}
	page.addDownloads()
	if page.Repeat, err = p.again(r.Context(), o, d.Again); err != nil {
		return err
	}
	return p.o.present(w, r, http.StatusOK, "rollout.html", page)
}

// base makes the part of a rollout's page that is the same for everybody and at any time: the part
// that needs its values, which may be large. It is cached for a rollout that has ended.
func (p *rolloutPages) base(ctx context.Context, run store.Run, rolloutID string, o *overview) (*rolloutPage, error) {
	make := func() (*rolloutPage, error) {
		d, err := p.o.Service.Rollout(ctx, run.ID, rolloutID)
		if err != nil {
			return nil, err
		}
		page := &rolloutPage{frame: frame{Title: d.Row.EvaluationName, Section: "/"},
			Detail: d, RunID: run.ID, RunName: setName(o.head)}
		page.addFault()
		page.addScores()
		page.addScoring(o)
		page.Usage = report.UsageOf(d.Usage)
		page.addValues(o)
		return page, nil
	}
	at := o.rowOf(rolloutID)
	if at < 0 || !eval.State(o.rows[at].Status).IsTerminal() &&
		!slices.Contains([]string{"passed", "failed", "unscored"}, o.rows[at].Status) {
		return make()
	}
	page, err := p.ended.of(fmt.Sprintf("%s %s %d %d", run.ID, rolloutID, run.Revision, o.head.Revision), make)
	if err != nil {
		return nil, err
	}
	own := *page
	return &own, nil
}

// named redirects to a rollout that is named by evaluation, agent and epoch.
func (p *rolloutPages) named(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.site.named(w, r)
	if !found {
		return err
	}
	o, err := p.overviewOf(r.Context(), run)
	if err != nil {
		return err
	}
	for at := range o.rows {
		one := &o.rows[at]
		if one.EvaluationID == r.PathValue("evaluation") && one.Agent == r.PathValue("agent") &&
			strconv.Itoa(one.Epoch) == r.PathValue("epoch") {
			http.Redirect(w, r, o.url(at, ""), http.StatusFound)
			return nil
		}
	}
	return notFound("the run has no rollout of this evaluation, agent and epoch: %s%s, %s%s, %s",
		plain(r.PathValue("evaluation")),
		o.nearest(r.PathValue("evaluation"), func(one *row) string { return one.EvaluationID }),
		plain(r.PathValue("agent")), o.nearest(r.PathValue("agent"), func(one *row) string { return one.Agent }),
		plain(r.PathValue("epoch")))
}

// nearest suggests one of the names of rollouts, unless a rollout has this name.
func (o *overview) nearest(name string, of func(*row) string) string {
	var known []string
	for i := range o.rows {
		if one := of(&o.rows[i]); one == name {
			return ""
		} else if !slices.Contains(known, one) {
			known = append(known, one)
		}
	}
	return plain(input.Suggest(name, known))
}

// place says where the rollout is among those of its evaluation, and among the failures of the list
// that led here.
func (page *rolloutPage) place(o *overview, q url.Values) {
	at := o.rowOf(page.RolloutID)
	from, err := url.ParseQuery(q.Get("from"))
	if at < 0 || err != nil {
		return
	}
	f := readFilter(from)
	page.List = "/runs/" + page.RunID
	if query := f.query().Encode(); query != "" {
		page.List += "?" + query
	}
	page.Siblings = o.cells(&o.evaluations[o.rows[at].evaluation], f.from(), func(int) bool { return true }, at)
	var bad []int
	if f.View == "rollouts" {
		bad = f.rollouts(o)
	} else {
		for _, g := range f.groups(o) {
			for _, i := range g.rows {
				if g.chosen[i] {
					bad = append(bad, i)
				}
			}
		}
	}
	here := slices.Index(bad, at)
	before, after := -1, -1
	n, number := 0, 0
	for i, row := range bad {
		if !o.rows[row].bad() {
			continue
		}
		n++
		switch {
		case i < here:
			before = row
		case i == here:
			number = n
		case after < 0:
			after = row
		}
	}
	if before >= 0 {
		page.Previous = o.url(before, f.from())
	}
	if after >= 0 {
		page.Next = o.url(after, f.from())
	}
	if number > 0 {
		page.Place = fmt.Sprintf("%d of %d", number, n)
	}
	page.Suspensions, page.Repeated = 0, 0
	for _, a := range page.Attempts {
		if a.Outcome == "suspended" {
			page.Suspensions++
		}
		if a.Attempt > 1 {
			page.Repeated++
		}
	}
}

func (page *rolloutPage) addFault() {
	if page.Error != nil {
		message := page.Error.Message
		page.Fault = &faultText{
			Category: page.Error.Category, Owner: page.FaultOwner, Reason: page.Row.Reason,
			End: ending(message, maxValue),
		}
		if page.Fault.End != message {
			page.Fault.Whole = message
		}
	}
}

func (page *rolloutPage) addWaitCards() {
	for _, w := range page.Detail.Waits {
		card := waitCard{
			Wait: w, Name: nameOfWait(w.Type, w.InterruptID, w.Asked), Status: "suspended",
			Asked: shownValue(w.Asked, nil, ""), Answered: shownValue(w.Answered, nil, ""),
		}
		switch {
		case w.Status == "successful":
			card.Status = "passed"
		case w.Status != "":
			card.Status = "faulted"
		case !w.Open:
			card.Status = "cancelled"
		}
		if !w.DeliveredAt.IsZero() {
			card.After = w.DeliveredAt.Sub(w.CreatedAt)
			card.By = deliverer(w.DeliveredBy, w.Person)
		}
		if w.Open {
			card.Commands = commandsFor(w)
		}
		page.Waits = append(page.Waits, card)
	}
}

// addTable adds the part of the timeline's table that the query asks for.
func (page *rolloutPage) addTable(all []stretch, q url.Values) {
	at, _ := strconv.Atoi(q.Get("row")) // without a number it is the first page
	page.TablePart = partOfList(len(all), maxTable, at, func(n int) string {
		q.Set("row", strconv.Itoa(n))
		return "?" + q.Encode() + "#timeline-table"
	})
	page.Table = all[page.TablePart.From-1 : page.TablePart.To]
}

// addForms adds the forms for the questions to people, if the reader may answer.
func (page *rolloutPage) addForms(o Options, r *http.Request) error {
	_, may, csrf := answerer(r)
	if !may {
		return nil
	}
	now := o.Now()
	for i := range page.Waits {
		w := &page.Waits[i]
		if !w.Open || w.Type != string(wait.TypeTask) {
			continue
		}
		t, err := o.Service.Trigger(r.Context(), w.TriggerID)
		if errors.Is(err, service.ErrNotFound) || err == nil && (!t.Open || !asksPerson(t)) {
			continue // the trigger ended a moment ago
		}
		if err != nil {
			return err
		}
		w.Form = &asking{question: newQuestion(t, now), CSRF: csrf, Seen: strconv.FormatInt(now.UnixMicro(), 10), Alone: true}
		page.CSRF, page.Script = csrf, "inbox.js"
	}
	return nil
}

// commandsFor returns the commands that end a wait.
func commandsFor(w report.Wait) []string {
	switch {
	case w.Type == "TASK" && w.EvaluatorID != "":
		return []string{"evalrun rate " + w.TriggerID + " 1 --reason …"}
	case w.Type == "TASK":
		return []string{"evalrun approve " + w.TriggerID, "evalrun deny " + w.TriggerID}
	case w.Source == "external":
		return []string{"evalrun deliver " + w.TriggerID + " --payload -"}
	}
	return nil
}

// addValues adds the agent's input, the expected output, and its output.
func (page *rolloutPage) addValues(o *overview) {
	d := page.Detail
	base := "/runs/" + page.RunID + "/rollouts/" + d.RolloutID + "/download/"
	var output json.RawMessage
	if x := d.AgentExecutionOutput; x != nil && d.Status != schemas.StateSuspended && x.Result.Error == nil {
		output = x.Result.Output
	}
	differs := differing(d.ExpectedOutput, output)
	page.Input = shownValue(d.Inputs, nil, base+valueInput)
	page.Expected = shownValue(d.ExpectedOutput, differs, base+valueExpected)
	page.Output = shownValue(output, differs, base+valueOutput)
	for _, id := range slices.Sorted(maps.Keys(d.Criteria)) {
		raw := d.Criteria[id]
		if text := strings.TrimSpace(string(raw)); text == "null" || text == "{}" {
			continue
		}
		one := criterion{id, shownValue(raw, nil, base+"rollout")}
		for _, e := range o.evaluators {
			if e.ID == id {
				one.Name = e.Name
			}
		}
		page.CriteriaBy = append(page.CriteriaBy, one)
	}
}
