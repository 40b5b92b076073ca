package web

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/schemas"
)

// runPage is the page of a run.
type runPage struct {
	frame
	Head schemas.Head
	// Earlier is set if the run has changed since the revision that is shown.
	Earlier bool
	// SetChanged is set if the file of the eval set has changed since the run was planned.
	SetChanged bool
	// Extent says how many evaluations, epochs and agents the run has.
	Extent string
	// Status is the state of the run, in a word.
	Status, StatusClass string
	Selected            string
	// Rescored counts how often the run was scored again. LastRescoring is the end of the last time.
	Rescored      int
	LastRescoring time.Time
	Verdict       verdict
	Counts        []statusCount
	Bar           []barPart
	BarText       string
	// Causes are the reasons for which rollouts have not passed. MoreCauses counts those left out.
	Causes     []cause
	MoreCauses int
	Waits      []waitGroup
	// Waiting says what the run waits for in a file, in which nobody can answer.
	Waiting    []string
	Ends       ends
	Gates      []gateRow
	GatesMore  int
	Several    bool
	Agents     []string
	Evaluators []evaluatorRow
	Scores     []agentScore
	Intervals  bool
	// Tags has the scores by tag. TagsMore says that there are others.
	Tags     []tagRow
	TagsMore string
	// Usage says how much each agent has used of models, and at what cost. Used is set if one has
	// reported it.
	Usage              []string
	Used               bool
	Flaky              []flakyRow
	FlakyMore, FlakyOf int
	List               list
}

// Checked reports whether some source is asked for results.
func (page *runPage) Checked() bool {
	return slices.ContainsFunc(page.Waits, func(g waitGroup) bool { return !g.NextCheck.IsZero() })
}

// Limited reports whether any wait has a deadline.
func (page *runPage) Limited() bool {
	return slices.ContainsFunc(page.Waits, func(g waitGroup) bool { return !g.Deadline.IsZero() })
}

// runPages are the pages of runs.
type runPages struct {
	*site
	setFiles setFiles
}

// page answers with the page of a run.
func (p *runPages) page(w http.ResponseWriter, r *http.Request) error {
	run, found, err := p.named(w, r)
	if !found {
		return err
	}
	o, err := p.overviewOf(r.Context(), run)
	if err != nil {
		return err
	}
	page := newRunPage(o, readFilter(r.URL.Query()))
	page.Earlier = o.head.Revision < run.Revision
	page.SetChanged = p.setFiles.changed(p.o.Service.Runner().Dir(), o.head)
	page.Downloads, page.CompareWith = runDownloads(run.ID, o.agents), "/compare?b="+run.ID
	if page.Repeat, err = p.again(r.Context(), o, report.ShellWords(o.head.CommandLine)); err != nil {
		return err
	}
	return p.o.present(w, r, http.StatusOK, "run.html", page)
}

// newRunPage makes the page of a run.
func newRunPage(o *overview, f filter) *runPage {
	h := o.head
	page := &runPage{
		frame: frame{Title: setName(h), Section: "/"}, Head: h, Status: string(h.Status), Selected: report.Selected(h),
		Verdict: verdictOf(o), Causes: o.causes, MoreCauses: o.moreCauses, Waits: o.waits, Ends: o.ends,
		Several: o.several(), Agents: o.agents, List: newList(o, f),
	}
	page.StatusClass, page.Extent = classOf(h.Status), extent(o)
	page.Live = "/runs/" + h.RunID + "/live" // even after the end, since the run may be scored again
	page.Rescored = rescored(h)
	for _, one := range h.Rescorings {
		if one.EndedAt != nil {
			page.LastRescoring = *one.EndedAt
		}
	}
	page.Commands = []string{"evalrun show " + h.RunID, "evalrun report " + h.RunID + " --format json"}
	if !h.Final {
		page.Commands = append(page.Commands, "evalrun resume "+h.RunID)
	}
	if o.counts["faulted"] > 0 && len(h.CommandLine) > 0 {
		page.Commands = append(page.Commands, report.ShellWords(h.CommandLine)+" --retry-of "+h.RunID)
	}
	page.Usage = append(report.UsageSentences(&h), report.PlayedSentences(&h)...)
	page.count(o, f)
	page.addGates(o)
	page.addEvaluators(o)
	page.addTags(o)
	page.addFlaky(o)
	return page
}

// extent says how many evaluations, epochs and agents a run has.
func extent(o *overview) string {
	out := counted(len(o.evaluations), "evaluation")
	epochs := 0
	for i := range o.rows {
		epochs = max(epochs, o.rows[i].Epoch)
	}
	if epochs > 1 {
		out += " × " + counted(epochs, "epoch")
	}
	if o.several() {
		out += " × " + counted(len(o.agents), "agent")
	}
	return out
}

// classOf returns the mark of the status of a run.
func classOf(s schemas.Status) string {
	if s == schemas.Successful {
		return "passed"
	}
	return string(s)
}

// count counts the rollouts by status.
func (page *runPage) count(o *overview, f filter) {
	var texts []string
	at := 0.0
	for _, s := range statuses {
		n := o.counts[s]
		always := !o.head.Final && slices.Contains([]string{"passed", "failed", "faulted", "suspended", "running"}, s)
		pressed := slices.Contains(f.Statuses, s)
		page.Counts = append(page.Counts, statusCount{s, n, f.toggled(s), pressed, n == 0 && !always && !pressed})
		if n == 0 {
			continue
		}
		texts = append(texts, fmt.Sprintf("%d %s", n, s))
		width := float64(n) / float64(len(o.rows))
		page.Bar = append(page.Bar, barPart{s, percent(at), percent(width)})
		at += width
	}
	page.BarText = strings.Join(texts, ", ")
}

// gateRow is a threshold as it was judged.
type gateRow struct {
	summary.Gate
	Name     string
	Agent    string
	N        int
	Interval interval
}

func (page *runPage) addGates(o *overview) {
	s := o.head.Statistics
	for i, g := range s.Gates {
		if i == maxGates {
			page.GatesMore = len(s.Gates) - maxGates
			break
		}
		one := gateRow{Gate: g, Name: g.What, Agent: g.Agent}
		if id, ok := strings.CutPrefix(g.What, "evaluators."); ok {
			one.Name = id
			for _, e := range o.evaluators {
				if e.ID == id {
					one.Name = e.Name
				}
			}
		}
		if page.Several && g.Agent == "" {
			one.Agent = "all agents together"
		}
		var estimate *estimateOf
		for _, a := range o.agentSummaries() {
			if a.Agent == g.Agent || !page.Several {
				estimate = gateEstimate(a, g.What)
			}
		}
		one.Interval = interval{Class: string(g.Verdict), Value: g.Value, Min: &g.Min}
		if estimate != nil {
			one.N = estimate.N
			one.Interval.Low, one.Interval.High = estimate.Low, estimate.High
		}
		if g.Missing > 0 {
			one.Interval.OpenLow, one.Interval.OpenHigh = &g.Low, &g.High
		}
		page.Gates = append(page.Gates, one)
	}
}

// evaluatorRow is an evaluator with its results for each agent.
type evaluatorRow struct {
	evaluator
	URL   string
	Cells []evaluatorCell
}

type evaluatorCell struct {
	Mean           *float64
	Interval       interval
	Errors, NotRun int
}

// agentScore is the score of an agent over all evaluators.
type agentScore struct {
	Agent                string
	Score, PassRate      interval
	ScoreCompleted       *float64
	N                    int
	Passed, OfEvaluation int
	// Tokens, Cost and CostEach (of an evaluation) are the use of its models; empty if it is not
	// known.
	Tokens, Cost, CostEach string
}

func (page *runPage) addEvaluators(o *overview) {
	agents := o.agentSummaries()
	for i, a := range agents {
		name := a.Agent
		if name == "" && i < len(o.agents) {
			name = o.agents[i]
		}
		one := agentScore{
			Agent: name, Score: intervalOf(a.Score), PassRate: intervalOf(a.PassRate),
			ScoreCompleted: a.ScoreCompleted.Mean, N: a.Score.N, Passed: a.EvaluationsPassed,
			OfEvaluation: a.Coverage.Evaluations,
		}
		if one.Tokens, one.Cost, one.CostEach = report.UsageFigures(a.Usage); one.Tokens != "" {
			page.Used = true
		}
		page.Scores = append(page.Scores, one)
	}
	page.Intervals = len(o.evaluators)*len(agents) <= maxIntervals
	for i, e := range o.evaluators {
		if (i+1)*len(agents) > 5*maxIntervals {
			break
		}
		row := evaluatorRow{evaluator: e,
			URL: page.List.Filter.with(func(f *filter) { f.Evaluator, f.Page = plain(e.ID), 1 })}
		for _, a := range agents {
			var cell evaluatorCell
			if k := slices.IndexFunc(a.Evaluators, func(s summary.EvaluatorSummary) bool { return s.ID == e.ID }); k >= 0 {
				s := a.Evaluators[k]
				cell = evaluatorCell{s.Mean, intervalOf(s.Estimate), s.Errors, s.NotRun}
			}
			row.Cells = append(row.Cells, cell)
		}
		page.Evaluators = append(page.Evaluators, row)
	}
}

// tagRow is a tag with the scores of each agent in the evaluations that have it.
type tagRow struct {
	Tag   string
	Cells []tagCell
}

type tagCell struct {
	N               int
	Score, PassRate *float64
}

func (page *runPage) addTags(o *overview) {
	var tags []string
	tags, page.TagsMore = report.Tags(&o.head)
	for _, tag := range tags {
		row := tagRow{Tag: tag}
		for _, a := range o.agentSummaries() {
			var cell tagCell
			if i := slices.IndexFunc(a.Tags, func(t summary.TagSummary) bool { return t.Tag == tag }); i >= 0 {
				cell = tagCell{a.Tags[i].Score.N, a.Tags[i].Score.Mean, a.Tags[i].PassRate.Mean}
			}
			row.Cells = append(row.Cells, cell)
		}
		page.Tags = append(page.Tags, row)
	}
}

// flakyRow is an evaluation that passes in some epochs only.
type flakyRow struct {
	Name, ID, Agent string
	Passes, N       int
}

func (page *runPage) addFlaky(o *overview) {
	for i, a := range o.agentSummaries() {
		page.FlakyOf += a.Score.N
		for _, f := range a.Flaky {
			if len(page.Flaky) == maxFlaky {
				page.FlakyMore++
				continue
			}
			one := flakyRow{Name: f.EvaluationID, ID: f.EvaluationID, Passes: f.Passes, N: f.N, Agent: a.Agent}
			if one.Agent == "" && i < len(o.agents) {
				one.Agent = o.agents[i]
			}
			for k := range o.evaluations {
				if o.evaluations[k].ID == f.EvaluationID {
					one.Name = o.evaluations[k].Name
					break
				}
			}
			page.Flaky = append(page.Flaky, one)
		}
	}
}

// FlakyN counts the flaky evaluations.
func (page *runPage) FlakyN() int { return len(page.Flaky) + page.FlakyMore }
