package web

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/service"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// runsPage is the list of the runs of the store.
type runsPage struct {
	frame
	Q, Set, Status string
	// Sets are the eval sets of all runs.
	Sets, Statuses []choice
	part
	All  int
	Runs []runRow
}

// runRow is a run of the list.
type runRow struct {
	runner.Run
	Stands  standing
	Name    string
	Bar     []barPart
	BarText string
	// Counted has the statuses of its rollouts with their numbers.
	Counted []statusCount
	// Scores are the scores of its agents in its results document, nil if the document is of an
	// earlier revision.
	Scores []schemas.AgentScore
	// Trend has the scores of the first agent in the runs of the same set, nil if there is only one.
	Trend *trend
	// Took is zero while the run is open. Then Waits says what the run waits for, by type.
	Took  time.Duration
	Waits []string
	// Commit is the commit of the repository from which the run was started, CommandLine its command.
	Commit      string
	CommandLine string
	// Tags are the tags of the eval set.
	Tags []string
	// Damage says why the run cannot be read; empty if it can be.
	Damage string
}

// runsPages serve the list of runs.
type runsPages struct {
	*site
	tallies   tallies
	standings standings
}

func newRunsPages(s *site) *runsPages {
	return &runsPages{site: s, tallies: tallies{service: s.o.Service, runs: map[string]tallied{}},
		standings: standings{store: s.o.Service.Runner(), runs: map[string]ended{}}}
}

// list answers with the list of runs.
func (p *runsPages) list(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	page := &runsPage{
		frame: frame{Title: "Runs", Section: "/"}, Q: strings.TrimSpace(q.Get("q")), Set: q.Get("set"),
		Status: q.Get("status"), Statuses: []choice{{"", "all"}},
	}
	for _, s := range runStatuses {
		page.Statuses = append(page.Statuses, choice{s, s})
	}
	page.Commands, page.Live = []string{"evalrun list"}, "/live"
	if err := p.addRuns(r.Context(), page, q); err != nil {
		return err
	}
	return p.o.present(w, r, http.StatusOK, "runs.html", page)
}

func (p *runsPages) addRuns(ctx context.Context, page *runsPage, q url.Values) error {
	all, err := p.o.Service.Runner().Runs(ctx)
	if err != nil {
		return err
	}
	page.All = len(all)
	page.addSets(all)
	known := slices.Clone(all)
	all = slices.DeleteFunc(all, func(r runner.Run) bool { return !p.chooses(page, r) })
	at, _ := strconv.Atoi(q.Get("page")) // without a number it is the first page
	page.part = partOfList(len(all), pageRuns, at, func(n int) string {
		q := url.Values{}
		for key, value := range map[string]string{"q": page.Q, "set": page.Set, "status": page.Status} {
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

// chooses reports whether the page's filter chooses a run.
func (p *runsPages) chooses(page *runsPage, r runner.Run) bool {
	if page.Status != "" && !p.standings.chooses(r, page.Status) || page.Set != "" && page.Set != setOf(r) {
		return false
	}
	return mentions(page.Q, r.ID, r.EvaluationSetName, r.EvaluationSetID) || p.documentMentions(page.Q, r)
}

// documentMentions reports whether a search finds a run by texts that only its results document
// has.
func (p *runsPages) documentMentions(q string, r runner.Run) bool {
	head, ok := p.documentOf(r)
	if !ok {
		return false
	}
	said := append([]string{head.GitCommit, report.ShellWords(head.CommandLine)}, head.Tags...)
	for _, a := range head.Agents {
		said = append(said, a.Name)
	}
	return mentions(q, said...)
}

// mentions reports whether one of the texts contains q, in upper or lower case.
func mentions(q string, texts ...string) bool {
	q = strings.ToLower(q)
	return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(strings.ToLower(text), q) })
}

// setOf tells the eval sets of runs apart.
func setOf(r runner.Run) string { return plain(cmp.Or(r.EvaluationSetID, r.EvaluationSetName)) }

// addSets adds the eval sets of the runs, in the order of their names. Ids tell those of the same
// name apart.
func (page *runsPage) addSets(all []runner.Run) {
	names, known := map[string]string{}, map[string]int{}
	for _, r := range all {
		id := setOf(r)
		if _, ok := names[id]; id == "" || ok { // the newest name of a set counts
			continue
		}
		names[id] = cmp.Or(plain(r.EvaluationSetName), id)
		known[names[id]]++
	}
	for id, name := range names {
		if known[name] > 1 && name != id {
			name += " (" + id + ")"
		}
		page.Sets = append(page.Sets, choice{id, name})
	}
	slices.SortFunc(page.Sets, func(a, b choice) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Value, b.Value))
	})
}

// runRow makes a row of the list. A run that cannot be read spoils only its own row.
func (p *runsPages) runRow(ctx context.Context, r runner.Run, all []runner.Run) runRow {
	out := runRow{
		Run: r, Name: setName(schemas.Head{
			RunID: r.ID, EvaluationSetID: r.EvaluationSetID, EvaluationSetName: r.EvaluationSetName,
		}), Stands: p.standings.of(r),
	}
	tally, err := p.tallies.of(ctx, r)
	if err != nil && ctx.Err() == nil {
		out.Damage = p.withoutFolder(err.Error())
	}
	out.addBar(tally)
	if !r.FinishedAt.IsZero() {
		out.Took = r.FinishedAt.Sub(r.CreatedAt)
	} else if s, err := p.o.Service.Standing(ctx, r.ID); err == nil {
		for _, typ := range slices.Sorted(maps.Keys(s.Waiting)) {
			out.Waits = append(out.Waits, counted(s.Waiting[typ], kindOf(typ)))
		}
	}
	if head, ok := p.documentOf(r); ok {
		out.Name, out.Commit, out.Tags, out.CommandLine =
			setName(head), head.GitCommit, head.Tags, report.ShellWords(head.CommandLine)
		if head.Revision == r.Revision {
			out.Scores = scoresOf(head)
		}
	}
	out.Trend = p.trend(r, all, out.Scores)
	return out
}

// documentOf returns the head of a run's results document. It may be of an earlier revision: the
// start of the run is the same in all of them.
func (p *runsPages) documentOf(r runner.Run) (schemas.Head, bool) {
	head, err := p.o.Service.Runner().DocumentHead(r.ID)
	return head, err == nil && head.RunID == r.ID
}

// headOf returns the head of a run's results document, if that is of the run's revision.
func (p *runsPages) headOf(r runner.Run) (schemas.Head, bool) {
	head, ok := p.documentOf(r)
	return head, ok && head.Revision == r.Revision
}

// scoresOf returns the scores of a run by agent.
func scoresOf(head schemas.Head) []schemas.AgentScore {
	if len(head.Summary.Agents) > 0 {
		return head.Summary.Agents
	}
	return []schemas.AgentScore{{Score: head.Summary.Score, ScoreCompleted: head.Summary.ScoreCompleted}}
}

// addBar shows the rollouts by status.
func (row *runRow) addBar(t store.Tally) {
	var texts []string
	x := 0.0
	for _, one := range []statusCount{
		{Status: "passed", N: t.Passed}, {Status: "failed", N: t.Failed}, {Status: "faulted", N: t.Faulted},
		{Status: "suspended", N: t.Suspended}, {Status: "scoring", N: t.Scoring}, {Status: "running", N: t.Running},
		{Status: "evaluating", N: t.Evaluating}, {Status: "pending", N: t.Pending},
		{Status: "unscored", N: t.Unscored}, {Status: "cancelled", N: t.Cancelled},
	} {
		if one.N == 0 {
			continue
		}
		row.Counted = append(row.Counted, one)
		texts = append(texts, fmt.Sprintf("%d %s", one.N, one.Status))
		share := float64(one.N) / float64(t.Total)
		row.Bar = append(row.Bar, barPart{one.Status, percent(x), percent(share)})
		x += share
	}
	row.BarText = strings.Join(texts, ", ")
}

// maxTallies is the most runs whose tallies are cached.
const maxTallies = 2000

// tallies caches the rollouts of runs by state, each at one revision, so that a list of runs that
// have ended need not read their rollouts.
type tallies struct {
	service *service.Service
	mu      sync.Mutex
	runs    map[string]tallied
}

type tallied struct {
	revision int64
	store.Tally
}

func (q *tallies) of(ctx context.Context, r runner.Run) (store.Tally, error) {
	q.mu.Lock()
	known, ok := q.runs[r.ID]
	q.mu.Unlock()
	if ok && known.revision == r.Revision {
		return known.Tally, nil
	}
	t, err := q.service.Tally(ctx, r.ID)
	if err != nil {
		return t, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.runs) >= maxTallies {
		clear(q.runs)
	}
	q.runs[r.ID] = tallied{r.Revision, t}
	return t, nil
}

// trend makes a trend of the runs of the same set up to the newest, around the run of the row. It
// leaves out runs in which the agent has no score.
func (p *runsPages) trend(of runner.Run, all []runner.Run, scores []schemas.AgentScore) *trend {
	if len(scores) == 0 || of.EvaluationSetID == "" {
		return nil
	}
	agent := scores[0].Agent
	t, marked := &trend{}, -1
	for _, r := range slices.Backward(sameSet(of, all)) {
		head, ok := p.headOf(r)
		if !ok {
			continue
		}
		for _, s := range scoresOf(head) {
			if s.Agent != agent || s.Score == nil {
				continue
			}
			if r.ID == of.ID {
				marked = len(t.scores)
			}
			t.scores = append(t.scores, *s.Score)
		}
	}
	if len(t.scores) < 2 || marked < 0 {
		return nil
	}
	t.draw(marked)
	if agent == "" {
		agent = "the agent"
	}
	var texts []string
	for _, s := range t.scores {
		texts = append(texts, fmt.Sprintf("%.3f", s))
	}
	t.Label = fmt.Sprintf("score of %s in %d runs of the set, the oldest first: %s; this is number %d",
		agent, len(t.scores), strings.Join(texts, ", "), marked+1)
	return t
}
