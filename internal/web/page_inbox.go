package web

import (
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runner"
)

// pageQuestions is the most questions that a page has.
const pageQuestions = 30

// inboxPage has the questions of all runs to people.
type inboxPage struct {
	frame
	Q, Run, Sort string
	Runs         []choice
	Sorts        []choice
	part
	Questions []*question
	// Unreadable names the runs whose questions are not known.
	Unreadable []string
	// Rollouts counts the rollouts that wait for an answer, Distinct the questions.
	Rollouts, Distinct int
	// Me is the person who answers. MayAnswer says whether they may.
	Me        string
	MayAnswer bool
	CSRF      string
	// Seen is the time at which the page was made. One answer for all excludes questions that were
	// asked later.
	Seen string
}

var inboxSorts = []choice{{"oldest", "oldest first"}, {"deadline", "deadline first"}, {"most", "most rollouts first"}}

// inbox answers with the page of questions.
func (p *site) inbox(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	page := &inboxPage{
		frame: frame{
			Title: "Inbox", Section: "/inbox", Script: "inbox.js",
			Commands: []string{"evalrun triggers", "evalrun approve TRIGGER", "evalrun deny TRIGGER --reason REASON"},
		},
		Q: strings.TrimSpace(q.Get("q")), Run: q.Get("run"), Sort: "oldest", Sorts: inboxSorts,
	}
	if slices.ContainsFunc(inboxSorts, func(c choice) bool { return c.Value == q.Get("sort") }) {
		page.Sort = q.Get("sort")
	}
	page.Me, page.MayAnswer, page.CSRF = answerer(r)
	now := p.o.Now()
	page.Seen = strconv.FormatInt(now.UnixMicro(), 10)
	all, err := p.questions(r.Context(), now, page.Run)
	if page.Unreadable, err = unreadable(err); err != nil {
		return err
	}
	runs, rollouts := map[string]bool{}, map[string]bool{}
	for _, one := range all {
		maps.Copy(rollouts, one.asking)
		if !runs[one.RunID] {
			runs[one.RunID] = true
			page.Runs = append(page.Runs, choice{one.RunID, one.RunID})
		}
	}
	page.Distinct, page.Rollouts = len(all), len(rollouts)
	all = slices.DeleteFunc(all, func(one *question) bool { return !one.matches(page.Q) })
	sortQuestions(all, page.Sort)
	at, _ := strconv.Atoi(q.Get("page")) // without a number it is the first page
	page.part = partOfList(len(all), pageQuestions, at, func(n int) string {
		q := url.Values{"sort": {page.Sort}, "page": {strconv.Itoa(n)}}
		for key, value := range map[string]string{"q": page.Q, "run": page.Run} {
			if value != "" {
				q.Set(key, value)
			}
		}
		return "?" + q.Encode()
	})
	if len(all) > 0 {
		page.Questions = all[page.From-1 : page.To]
	}
	return p.o.present(w, r, http.StatusOK, "inbox.html", page)
}

// Asking returns a question of the page with the data of its form.
func (p *inboxPage) Asking(q *question) asking {
	return asking{question: q, CSRF: p.CSRF, Seen: p.Seen, OfRun: p.Run}
}

// questions returns the questions to people, the oldest first, each once.
func (p *site) questions(ctx context.Context, now time.Time, runID string) (out []*question, err error) {
	known := map[string]*question{}
	err = p.o.Service.Triggers(ctx, runID, false, func(t runner.Trigger) error {
		if !asksPerson(t) {
			return nil
		}
		digest := digestOf(t)
		if q, ok := known[digest]; ok {
			q.add(t)
			if t.Deadline != nil && (q.Deadline == nil || t.Deadline.Before(*q.Deadline)) {
				q.Deadline = t.Deadline
			}
			return nil
		}
		q := newQuestion(t, now)
		known[digest] = q
		out = append(out, q)
		return nil
	})
	return out, err
}

// matches reports whether a question contains a text.
func (q *question) matches(text string) bool {
	return text == "" || strings.Contains(strings.ToLower(strings.Join([]string{
		q.Title, q.App, q.Assignee, q.RunID, q.EvaluationID, q.EvaluationName,
	}, "\n")), strings.ToLower(text))
}

func sortQuestions(all []*question, by string) {
	slices.SortStableFunc(all, func(a, b *question) int {
		switch {
		case by == "most":
			return cmp.Compare(b.Same, a.Same)
		case by == "deadline" && a.Deadline != nil && b.Deadline != nil:
			return a.Deadline.Compare(*b.Deadline)
		case by == "deadline" && a.Deadline != nil:
			return -1
		case by == "deadline" && b.Deadline != nil:
			return 1
		}
		return 0
	})
}
