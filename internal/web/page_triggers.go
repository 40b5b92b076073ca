package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/runner"
)

// pageTriggers is the most triggers that a page has.
const pageTriggers = 100

// triggersPage has the open triggers of all runs.
type triggersPage struct {
	frame
	Q, Type, Source, State, Sort string
	Types                        []string
	States, Sorts                []choice
	part
	// All counts the triggers that are open, and Runs their runs.
	All, Runs int
	// Unreadable names the runs whose triggers are not known.
	Unreadable []string
	Sources    []sourceRow
	Triggers   []triggerGroup
	// Parked are deliveries that came before their triggers.
	Parked     []store.Delivered
	ParkedMore bool
}

// maxParked is the most parked deliveries that the page shows.
const maxParked = 100

// Until is the time until which a parked delivery is kept.
func (*triggersPage) Until(d store.Delivered) time.Time { return d.ReceivedAt.Add(store.ParkedFor) }

// sourceRow is a source with its triggers.
type sourceRow struct {
	Name string
	// Types are the types of its triggers.
	Types []string
	// Open counts its triggers, Failing those whose last check failed, Checks how often
	// it was asked for them.
	Open, Failing, Checks int
	// CheckedAt is when it was asked last, Next when it is asked next; zero if never.
	CheckedAt, Next time.Time
	LastError       string
	// Overdue is how late the next check is, because nobody looks at the store.
	Overdue time.Duration
}

var (
	triggerStates = []choice{
		{"", "all"}, {"failing", "could not be asked"}, {"late", "check is overdue"}, {"deadline", "has a deadline"},
		{"person", "a person can end it"},
	}
	triggerSorts = []choice{
		{"oldest", "oldest first"}, {"newest", "newest first"}, {"next", "next check first"}, {"deadline", "deadline first"},
	}
)

// chooses reports whether the page's filter chooses a trigger.
func (page *triggersPage) chooses(t triggerRow, now time.Time) bool {
	if page.Type != "" && page.Type != t.Type || page.Source != "" && page.Source != t.Source {
		return false
	}
	switch page.State {
	case "failing":
		if t.Failures == 0 {
			return false
		}
	case "late":
		if t.NextCheck == nil || now.Sub(*t.NextCheck) <= late {
			return false
		}
	case "deadline":
		if t.Deadline == nil {
			return false
		}
	case "person":
		if !asksPerson(t.Trigger) {
			return false
		}
	}
	known := append(wait.Names(t.Payload),
		t.Name, t.EvaluationName, t.EvaluationID, t.Agent, t.RunID, t.TriggerID, t.ItemKey)
	text := strings.ToLower(strings.Join(known, "\n"))
	return strings.Contains(text, strings.ToLower(page.Q))
}

// sort sorts triggers that are in the order of their creation.
func (page *triggersPage) sort(all []triggerRow) {
	at := func(t *time.Time) time.Time {
		if t == nil {
			return time.Unix(1<<40, 0) // this sorts after all times
		}
		return *t
	}
	switch page.Sort {
	case "newest":
		slices.Reverse(all)
	case "next":
		slices.SortStableFunc(all, func(a, b triggerRow) int { return at(a.NextCheck).Compare(at(b.NextCheck)) })
	case "deadline":
		slices.SortStableFunc(all, func(a, b triggerRow) int { return at(a.Deadline).Compare(at(b.Deadline)) })
	}
}

// Polled reports whether the source is asked for results.
func (s sourceRow) Polled() bool { return s.Name != wait.SourceExternal }

// late is how late a check may be before the page says so.
const late = 30 * time.Second

type triggerRow struct {
	runner.Trigger
	Name string
}

// maxWaiting is the most rollouts of a group that are listed.
const maxWaiting = 200

// triggerGroup is a group of triggers that wait for the same thing.
type triggerGroup struct {
	// triggerRow is the first of them, with the next check and the nearest deadline of all.
	triggerRow
	Oldest  time.Time
	All     []triggerRow
	Waiting int
}

// More counts the rollouts that are not listed.
func (g triggerGroup) More() int { return g.Waiting - len(g.All) }

// grouped groups triggers that wait for the same, in the order of the first of each.
func grouped(all []triggerRow) (out []triggerGroup) {
	at := map[[4]string]int{}
	for _, t := range all {
		key := [4]string{t.Type, t.Source, t.Name, string(rune('0' + t.Answer))}
		i, ok := at[key]
		if !ok {
			i, at[key] = len(out), len(out)
			out = append(out, triggerGroup{triggerRow: t, Oldest: t.CreatedAt})
		}
		g := &out[i]
		g.Waiting++
		if len(g.All) < maxWaiting {
			g.All = append(g.All, t)
		}
		g.Oldest = earlier(g.Oldest, &t.CreatedAt)
		if t.NextCheck != nil && (g.NextCheck == nil || t.NextCheck.Before(*g.NextCheck)) {
			g.NextCheck = t.NextCheck
		}
		if t.Deadline != nil && (g.Deadline == nil || t.Deadline.Before(*g.Deadline)) {
			g.Deadline = t.Deadline
		}
		if t.Failures > g.Failures {
			g.Failures, g.LastError = t.Failures, t.LastError
		}
	}
	return out
}

// triggers answers with the page of open triggers.
func (p *site) triggers(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	page := &triggersPage{
		frame: frame{Title: "Waiting", Section: "/triggers", Commands: []string{"evalrun triggers"}, Live: "/live"},
		Q:     strings.TrimSpace(q.Get("q")), Type: q.Get("type"), Source: q.Get("source"), State: q.Get("state"),
		Sort: q.Get("sort"), States: triggerStates, Sorts: triggerSorts,
	}
	var found []triggerRow
	runs := map[string]bool{}
	err := p.o.Service.Triggers(r.Context(), "", false, func(t runner.Trigger) error {
		page.All++
		runs[t.RunID] = true
		page.addSource(t, p.o.Now())
		if !slices.Contains(page.Types, t.Type) {
			page.Types = append(page.Types, t.Type)
		}
		row := triggerRow{t, nameOfWait(t.Type, t.InterruptID, t.Payload)}
		if page.chooses(row, p.o.Now()) {
			row.Payload = nil
			found = append(found, row)
		}
		return nil
	})
	page.Runs = len(runs)
	if page.Unreadable, err = unreadable(err); err != nil {
		return err
	}
	if page.Parked, err = p.o.Service.Parked(r.Context(), maxParked+1); err != nil {
		return err
	}
	if len(page.Parked) > maxParked {
		page.Parked, page.ParkedMore = page.Parked[:maxParked], true
	}
	page.sort(found)
	at, _ := strconv.Atoi(q.Get("page")) // without a number it is the first page
	groups := grouped(found)
	page.part = partOfList(len(groups), pageTriggers, at, func(n int) string {
		return "?" + url.Values{
			"q": {page.Q}, "type": {page.Type}, "source": {page.Source}, "state": {page.State}, "sort": {page.Sort},
			"page": {strconv.Itoa(n)},
		}.Encode()
	})
	page.Triggers = groups[page.From-1 : page.To]
	return p.o.present(w, r, http.StatusOK, "triggers.html", page)
}

// addSource counts a trigger for its source.
func (page *triggersPage) addSource(t runner.Trigger, now time.Time) {
	i := slices.IndexFunc(page.Sources, func(s sourceRow) bool { return s.Name == t.Source })
	if i < 0 {
		i, page.Sources = len(page.Sources), append(page.Sources, sourceRow{Name: t.Source})
	}
	s := &page.Sources[i]
	s.Open++
	s.Checks += t.Checks
	if !slices.Contains(s.Types, t.Type) {
		s.Types = append(s.Types, t.Type)
	}
	if t.Failures > 0 {
		s.Failing++
		s.LastError = t.LastError
	}
	if t.CheckedAt != nil && t.CheckedAt.After(s.CheckedAt) {
		s.CheckedAt = *t.CheckedAt
	}
	if t.NextCheck != nil {
		s.Next = earlier(s.Next, t.NextCheck)
		if over := now.Sub(s.Next); over > late {
			s.Overdue = over
		}
	}
}
