package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/stats"
	"github.com/evalrun/evalrun/internal/report"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/runner"
	"github.com/evalrun/evalrun/schemas"
)

// comparePages are the pages of comparisons.
type comparePages struct {
	*site
	// comparisons caches their documents, by the revisions of their runs.
	comparisons remembered[*compared]
}

func newComparePages(s *site) *comparePages {
	p := &comparePages{site: s}
	p.comparisons.most = maxRemembered
	return p
}

// newComparePage makes the page that a query asks for, still without its comparison.
func newComparePage(q url.Values) *comparePage {
	page := &comparePage{
		frame: frame{Title: "Compare", Section: "/compare"},
		A:     strings.TrimSpace(q.Get("a")), B: strings.TrimSpace(q.Get("b")),
		Margin: strings.TrimSpace(q.Get("margin")), By: strings.TrimSpace(strings.Join(q["by"], ",")),
		Different: q.Get("different") != "",
	}
	page.Parts = map[string]int{}
	for _, key := range []string{"worse", "better"} {
		page.Parts[key], _ = strconv.Atoi(q.Get(key)) // without a number it is the first part
	}
	return page
}

// page answers with the page of a comparison.
func (p *comparePages) page(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	page := newComparePage(q)
	if marked := q["run"]; len(marked) > 0 {
		return p.compareMarked(w, r, marked)
	}
	if page.A == "" || page.B == "" {
		if err := p.offerRuns(r.Context(), page); err != nil {
			return err
		}
		return p.o.present(w, r, http.StatusOK, "compare.html", page)
	}
	status := http.StatusOK
	if err := p.addComparison(r.Context(), page); err != nil {
		var wrong *runner.InputError
		var sets *compare.DifferentSetsError
		switch {
		case errors.As(err, &sets):
			page.Problem, page.Differences =
				"The eval sets differ, so that a difference is not the agents’ alone.", sets.Differences
			q.Set("different", "1")
			page.Allow = "?" + q.Encode()
		case errors.As(err, &wrong), errors.Is(err, compare.ErrNoPairs):
			page.Problem = p.withoutFolder(err.Error())
		default:
			return err
		}
		status = http.StatusUnprocessableEntity
	}
	if page.Doc != nil && !page.Same {
		for _, f := range comparisonFormats {
			page.Downloads = append(page.Downloads, download{f.Name, "/compare/download/" + f.ID + "?" + page.query().Encode()})
		}
	}
	return p.o.present(w, r, status, "compare.html", page)
}

// offerRuns offers the newest runs for the sides that are not chosen.
func (p *comparePages) offerRuns(ctx context.Context, page *comparePage) error {
	all, err := p.o.Service.Runner().Runs(ctx)
	if err != nil {
		return err
	}
	for _, r := range all {
		if r.ID == page.A || r.ID == page.B {
			continue
		}
		one := offeredRun{
			ID: r.ID, Name: setName(schemas.Head{
				RunID: r.ID, EvaluationSetID: r.EvaluationSetID, EvaluationSetName: r.EvaluationSetName,
			}), CreatedAt: r.CreatedAt,
		}
		q := page.query()
		if page.A == "" {
			q.Set("a", r.ID)
			one.A = "?" + q.Encode()
		}
		if q = page.query(); page.B == "" {
			q.Set("b", r.ID)
			one.B = "?" + q.Encode()
		}
		if page.Offers = append(page.Offers, one); len(page.Offers) == maxOffers {
			break
		}
	}
	return nil
}

// maxOffers is the most runs that the page offers.
const maxOffers = 20

// compareMarked redirects to the comparison of the runs that were marked in a list: of the newest
// two, the older one first. A single run leads to a page that asks for the other.
func (p *comparePages) compareMarked(w http.ResponseWriter, r *http.Request, ids []string) error {
	var runs []store.Run
	for _, id := range ids[:min(len(ids), pageRuns)] {
		run, err := p.o.Service.Head(r.Context(), id)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	slices.SortStableFunc(runs, func(a, b store.Run) int { return b.CreatedAt.Compare(a.CreatedAt) })
	q := url.Values{"a": {runs[min(1, len(runs)-1)].ID}}
	if len(runs) > 1 {
		q.Set("b", runs[0].ID)
	}
	http.Redirect(w, r, "/compare?"+q.Encode(), http.StatusFound)
	return nil
}

// compared is a comparison, with that of each agent if both sides have several.
type compared struct {
	doc            *compare.Document
	agentA, agentB string
	agents         []agentCompared
}

func (p *comparePages) addComparison(ctx context.Context, page *comparePage) error {
	o := compare.Options{AllowDifferentSets: page.Different, Settings: stats.DefaultSettings}
	for by := range strings.SplitSeq(page.By, ",") {
		if by = strings.TrimSpace(by); by != "" {
			o.By = append(o.By, by)
		}
	}
	if page.Margin != "" {
		margin, err := strconv.ParseFloat(page.Margin, 64)
		if err != nil || !(margin > 0 && margin <= 1) {
			page.Problem = "Margin: expected a number above 0, at most 1."
			return nil
		}
		o.Margin = &margin
	}
	key := fmt.Sprintf("%q %q %v", page.Margin, o.By, page.Different)
	for _, side := range []string{page.A, page.B} {
		id, agent, _ := strings.Cut(side, ":")
		found, err := p.o.Service.Runner().Find(ctx, id)
		if err != nil {
			return err
		}
		run, err := p.o.Service.Head(ctx, found.ID)
		if err != nil {
			return err
		}
		key += fmt.Sprintf(" %s %q %d", run.ID, agent, run.Revision)
	}
	made, err := p.comparisons.of(key, func() (*compared, error) { return p.newComparison(ctx, page, o) })
	if err != nil {
		return err
	}
	page.show(made.doc)
	page.Each = made.agents
	page.Commands = []string{page.command(made.agentA, made.agentB, o)}
	return nil
}

// newComparison compares two runs, and each agent of both.
func (p *comparePages) newComparison(ctx context.Context, page *comparePage, o compare.Options) (*compared, error) {
	a, err := p.side(ctx, page.A)
	if err != nil {
		return nil, err
	}
	b, err := p.side(ctx, page.B)
	if err != nil {
		return nil, err
	}
	doc, err := runner.Compare(a, b, o)
	if err != nil {
		return nil, err
	}
	out := &compared{doc: doc, agentA: a.Agent, agentB: b.Agent}
	if doc.A.RunID == doc.B.RunID || len(doc.A.Agents) < 2 || len(doc.A.Agents) > maxAgents ||
		!slices.Equal(doc.A.Agents, doc.B.Agents) {
		return out, nil
	}
	for _, agent := range doc.A.Agents {
		q := page.query()
		q.Set("a", doc.A.RunID+":"+agent)
		q.Set("b", doc.B.RunID+":"+agent)
		one := agentCompared{Agent: agent, URL: "?" + q.Encode()}
		if a, err = p.side(ctx, doc.A.RunID+":"+agent); err != nil {
			return nil, err
		}
		if b, err = p.side(ctx, doc.B.RunID+":"+agent); err != nil {
			return nil, err
		}
		// Some agents may have no pairs, although the runs have some.
		if doc, err := runner.Compare(a, b, o); err == nil && len(doc.Comparisons) > 0 {
			one.Row = &compareRow{Row: &doc.Comparisons[0]}
		}
		out.agents = append(out.agents, one)
	}
	return out, nil
}

// command returns the command that makes the same comparison at a terminal.
func (page *comparePage) command(agentA, agentB string, o compare.Options) string {
	a, b := page.Doc.A, page.Doc.B
	if page.Same {
		return report.ShellWords([]string{"evalrun", "compare", "--aa", a.RunID})
	}
	words := []string{"evalrun", "compare", a.RunID}
	if b.RunID != a.RunID {
		words = append(words, b.RunID)
	}
	if agentA != "" || agentB != "" { // the other side has a single agent
		words = append(words, "--agents", a.Agents[0]+","+b.Agents[0])
	}
	for _, by := range o.By {
		words = append(words, "--by", by)
	}
	if page.Margin != "" {
		words = append(words, "--margin", page.Margin)
	}
	if o.AllowDifferentSets {
		words = append(words, "--allow-different-sets")
	}
	return report.ShellWords(words)
}

// show shows a comparison on the page.
func (page *comparePage) show(doc *compare.Document) {
	page.Doc = doc
	page.Title = titleOf(doc.A, doc.B)
	if page.Same = doc.A.RunID == doc.B.RunID && slices.Equal(doc.A.Agents, doc.B.Agents); page.Same {
		return
	}
	page.Limits = report.ComparisonLimits(doc)
	for _, g := range doc.Gates {
		page.Gates = append(page.Gates, compareGate{string(g.Verdict), report.GateSentence(doc, g)})
	}
	scale := 0.05
	for i := range doc.Comparisons {
		if row := &doc.Comparisons[i]; !row.LowerIsBetter {
			for _, v := range []*float64{&row.Delta, row.Low, row.High} {
				if v != nil {
					scale = max(scale, math.Abs(*v))
				}
			}
		}
	}
	for i := range doc.Comparisons {
		page.Rows = append(page.Rows, compareRow{&doc.Comparisons[i], scale})
	}
	if len(page.Rows) > 0 {
		page.First = &page.Rows[0]
	}
	better := slices.IndexFunc(doc.Items, func(i compare.Item) bool { return i.D > 0 != page.First.LowerIsBetter })
	if better < 0 {
		better = len(doc.Items)
	}
	page.McNemar = mcNemar(page.Rows)
	page.Regressed, page.Improved = page.list(doc.Items[:better], "worse"), page.list(doc.Items[better:], "better")
}

// titleOf names both sides, with the agent of each that has one.
func titleOf(a, b compare.Source) string {
	from, to := shortID(a.RunID), shortID(b.RunID)
	switch {
	case len(a.Agents) != 1 || len(b.Agents) != 1:
		return from + " → " + to
	case a.Agents[0] == b.Agents[0]:
		return from + " → " + to + ", " + a.Agents[0]
	case a.RunID == b.RunID:
		return from + ": " + a.Agents[0] + " → " + b.Agents[0]
	}
	return from + ", " + a.Agents[0] + " → " + to + ", " + b.Agents[0]
}

// Unpaired counts the rollouts that are not compared.
func (page *comparePage) Unpaired() string {
	onlyA, onlyB, neither, open := 0, 0, 0, 0
	for _, m := range page.Doc.Missing {
		switch {
		case m.A != nil:
			onlyA++
		case m.B != nil:
			onlyB++
		default:
			neither++
		}
		if m.Open {
			open++
		}
	}
	if onlyA+onlyB+neither == 0 {
		return ""
	}
	return fmt.Sprintf("Not paired: %d scored in A only, %d in B only, %d in neither; %d of these open or cancelled.",
		onlyA, onlyB, neither, open)
}

// side reads RUN or RUN:AGENT as a side of a comparison.
func (p *comparePages) side(ctx context.Context, name string) (s compare.Side, err error) {
	id, agent, _ := strings.Cut(name, ":")
	run, err := p.o.Service.Runner().Find(ctx, id)
	if err != nil {
		return s, err
	}
	err = p.o.Service.Report(ctx, run.ID, func(r *runner.Report) (err error) {
		s, err = r.Side(agent)
		return err
	})
	return s, err
}

// mcNemar describes the result of McNemar's test for the rows in which every figure is 0 or 1. Rows
// of the same evaluations share a sentence.
func mcNemar(rows []compareRow) (out []string) {
	figures := map[string][]string{}
	for _, r := range rows {
		if r.McNemarExact == nil {
			continue
		}
		text := fmt.Sprintf("%d became worse and %d better, McNemar’s exact p %s",
			r.Regressions, r.Improvements, report.PValue(*r.McNemarExact))
		if r.McNemarMidP != nil {
			text += ", mid-p " + report.PValue(*r.McNemarMidP)
		}
		if figures[text] == nil {
			out = append(out, text)
		}
		figures[text] = append(figures[text], r.Figure())
	}
	for i, text := range out {
		out[i] = "By " + strings.Join(figures[text], ", ") + ": " + text + "."
	}
	return out
}
