package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// pageRuns is how many runs a page has.
const pageRuns = 50

// runsPage is the list of the runs of the store.
type runsPage struct {
	frame
	Q        string
	Status   string
	Statuses []choice
	part
	All  int
	Runs []runRow
}

// runRow is a run of the list.
type runRow struct {
	runner.Run
	Name, Status, Class string
	Bar                 []barPart
	BarText             string
	// Scores are those of its agents, as its results document has them; nil if that is of an earlier
	// revision.
	Scores []schemas.AgentScore
	// Trend has the scores of the first agent in the runs of the same set, nil if there is only one.
	Trend *trend
	// Took is zero while the run is open; then Waits says what is waited for, by type.
	Took  time.Duration
	Waits []string
	// Commit is that of the repository from which the run was started.
	Commit string
	// Damage says why the run cannot be read; empty if it can be.
	Damage string
}

var runStatuses = []choice{{"", "all"}, {"running", "running"}, {"interrupted", "interrupted"}, {"suspended", "suspended"}, {"faulted", "faulted"}, {"cancelled", "cancelled"}, {"successful", "successful"}}

// runs is the list of runs.
func (p *Pages) runs(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	page := &runsPage{frame: frame{Title: "Runs", Section: "/"}, Q: strings.TrimSpace(q.Get("q")), Status: q.Get("status"), Statuses: runStatuses}
	page.Commands, page.Live = []string{"evalrun list"}, "/live"
	if err := p.addRuns(r.Context(), page, q); err != nil {
		return err
	}
	return p.o.present(w, r, http.StatusOK, "runs.html", page)
}

func (p *Pages) addRuns(ctx context.Context, page *runsPage, q url.Values) error {
	all, err := p.o.Service.Runner().Runs(ctx)
	if err != nil {
		return err
	}
	page.All = len(all)
	known := slices.Clone(all)
	all = slices.DeleteFunc(all, func(r runner.Run) bool { return !page.chooses(r) })
	at, _ := strconv.Atoi(q.Get("page")) // what is no number is the first page
	page.part = partOfList(len(all), pageRuns, at, func(n int) string {
		q := url.Values{}
		for key, value := range map[string]string{"q": page.Q, "status": page.Status} {
			if value != "" {
				q.Set(key, value)
			}
		}
		if n > 1 {
			q.Set("page", strconv.Itoa(n))
		}
		return "?" + q.Encode()
	})
	for _, r := range all[page.From-1 : page.To] {
		page.Runs = append(page.Runs, p.runRow(ctx, r, known))
	}
	return nil
}

// chooses reports whether a run is one of those asked for.
func (page *runsPage) chooses(r runner.Run) bool {
	if page.Status != "" && page.Status != statusOf(r) {
		return false
	}
	text := strings.ToLower(r.ID + " " + r.EvaluationSetName + " " + r.EvaluationSetID)
	return strings.Contains(text, strings.ToLower(page.Q))
}

// statusOf is how a run stands, in a word.
func statusOf(r runner.Run) string {
	if r.Interrupted {
		return "interrupted"
	}
	return string(r.Status)
}

// runRow is a row of the list. With a run that cannot be read nothing is wrong but its own row.
func (p *Pages) runRow(ctx context.Context, r runner.Run, all []runner.Run) runRow {
	out := runRow{Run: r, Name: setName(schemas.Head{RunID: r.ID, EvaluationSetID: r.EvaluationSetID, EvaluationSetName: r.EvaluationSetName}), Status: statusOf(r)}
	out.Class = classOf(schemas.Status(out.Status))
	if _, err := p.o.Service.Redactor(ctx, r.ID); err != nil && ctx.Err() == nil {
		out.Damage = err.Error()
	}
	if !r.FinishedAt.IsZero() {
		out.Took = r.FinishedAt.Sub(r.CreatedAt)
	} else if s, err := p.o.Service.Store().Standing(ctx, r.ID); err == nil {
		for _, typ := range slices.Sorted(maps.Keys(s.Waiting)) {
			out.Waits = append(out.Waits, fmt.Sprintf("%d %s", s.Waiting[typ], typ))
		}
	}
	if head, ok := p.headOf(r); ok {
		out.Scores, out.Name, out.Commit = scoresOf(head), setName(head), head.GitCommit
	}
	out.Trend = p.trend(r, all, out.Scores)
	out.addBar()
	return out
}

// headOf is what the results document of a run says of it, if that is of the run's revision.
func (p *Pages) headOf(r runner.Run) (schemas.Head, bool) {
	head, err := p.o.Service.Runner().DocumentHead(r.ID)
	return head, err == nil && head.RunID == r.ID && head.Revision == r.Revision
}

// scoresOf are the scores of a run by agent.
func scoresOf(head schemas.Head) []schemas.AgentScore {
	if len(head.Summary.Agents) > 0 {
		return head.Summary.Agents
	}
	return []schemas.AgentScore{{Score: head.Summary.Score, ScoreCompleted: head.Summary.ScoreCompleted}}
}

// addBar counts the rollouts by status.
func (row *runRow) addBar() {
	c := row.Counts
	var texts []string
	x := 0.0
	for _, one := range []struct {
		status string
		n      int
	}{{"completed", c.Completed}, {"faulted", c.Faulted}, {"suspended", c.Suspended}, {"scoring", c.Scoring}, {"running", c.Running}, {"evaluating", c.Evaluating}, {"pending", c.Pending}, {"cancelled", c.Cancelled}} {
		if one.n == 0 {
			continue
		}
		texts = append(texts, strconv.Itoa(one.n)+" "+one.status)
		share := float64(one.n) / float64(c.Total)
		row.Bar = append(row.Bar, barPart{one.status, percent(x), percent(share)})
		x += share
	}
	row.BarText = strings.Join(texts, ", ")
}
