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
)

// maxItems is how many evaluations of each kind a comparison shows.
const maxItems = 200

// comparePage is the comparison of two runs, or of two agents of one.
type comparePage struct {
	frame
	// A and B are RUN or RUN:AGENT, Margin and By as the query has them.
	A, B, Margin, By string
	Different        bool
	// Problem says why there is no comparison; Allow leads to one of different sets all the same.
	Problem, Allow string
	// Offline is set in a file, where nothing can be asked for and where all items have their place.
	Offline   bool
	Doc       *compare.Document
	Gates     []compareGate
	First     *compareRow
	Rows      []compareRow
	Regressed []compare.Item
	Improved  []compare.Item
	// More counts what is left out of these two lists.
	More int
}

// compareGate is a gate and how it was judged.
type compareGate struct{ Verdict, Sentence string }

// compareRow is one figure. Its interval is drawn on an axis that all rows share.
type compareRow struct {
	*compare.Row
	Scale float64
}

// At is the place of a difference in the drawing.
func (r compareRow) At(v float64) string { return percent(0.5 + 0.48*v/r.Scale) }

// Signed is a difference with its sign.
func (compareRow) Signed(v float64) string { return fmt.Sprintf("%+.3f", v) }

// Percent is the probability with which the least difference is found.
func (r compareRow) Percent() float64 { return 100 * r.Power }

// compare is the page of a comparison.
func (p *Pages) compare(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	page := &comparePage{frame: frame{Title: "Compare", Section: "/compare"}, A: strings.TrimSpace(q.Get("a")), B: strings.TrimSpace(q.Get("b")),
		Margin: strings.TrimSpace(q.Get("margin")), By: strings.TrimSpace(q.Get("by")), Different: q.Get("different") != ""}
	if marked := q["run"]; len(marked) > 0 {
		return p.compareMarked(w, r, marked)
	}
	if page.A == "" || page.B == "" {
		return p.o.present(w, r, http.StatusOK, "compare.html", page)
	}
	status := http.StatusOK
	if err := p.addComparison(r.Context(), page); err != nil {
		var wrong *runner.InputError
		switch {
		case errors.As(err, &wrong), errors.Is(err, compare.ErrNoPairs):
			page.Problem, status = err.Error(), http.StatusUnprocessableEntity
		default:
			return err
		}
		if wrong != nil && !page.Different {
			q.Set("different", "1")
			page.Allow = "?" + q.Encode()
		}
	}
	return p.o.present(w, r, status, "compare.html", page)
}

// compareMarked leads to the comparison of the runs that were marked in a list: of the newest two, the
// older one first. One alone leads to a page that asks for the other.
func (p *Pages) compareMarked(w http.ResponseWriter, r *http.Request, ids []string) error {
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

func (p *Pages) addComparison(ctx context.Context, page *comparePage) error {
	a, err := p.side(ctx, page.A)
	if err != nil {
		return err
	}
	b, err := p.side(ctx, page.B)
	if err != nil {
		return err
	}
	o := compare.Options{AllowDifferentSets: page.Different, Settings: stats.DefaultSettings}
	if page.By != "" {
		o.By = strings.Split(page.By, ",")
	}
	if page.Margin != "" {
		margin, err := strconv.ParseFloat(page.Margin, 64)
		if err != nil || !(margin > 0 && margin <= 1) {
			page.Problem = "Margin: expected a number above 0, at most 1."
			return nil
		}
		o.Margin = &margin
	}
	doc, err := runner.Compare(a, b, o)
	if err != nil {
		return err
	}
	page.show(doc)
	page.Commands = []string{"evalrun compare " + doc.A.RunID + " " + doc.B.RunID}
	return nil
}

// show shows a comparison on the page.
func (page *comparePage) show(doc *compare.Document) {
	page.Doc = doc
	for _, g := range doc.Gates {
		page.Gates = append(page.Gates, compareGate{string(g.Verdict), report.GateSentence(g)})
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
	for _, item := range doc.Items {
		list := &page.Regressed
		if item.D > 0 != page.First.LowerIsBetter {
			list = &page.Improved
		}
		if len(*list) == maxItems && !page.Offline {
			page.More++
			continue
		}
		*list = append(*list, item)
	}
}

// side reads RUN or RUN:AGENT as a side of a comparison.
func (p *Pages) side(ctx context.Context, name string) (s compare.Side, err error) {
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

// Same says that both sides are the same run and agents.
func (page *comparePage) Same() bool { return !page.Offline && page.A == page.B }

// McNemar says what McNemar's test finds, where every figure is 0 or 1; empty elsewhere.
func (r compareRow) McNemar() string {
	if r.McNemarExact == nil {
		return ""
	}
	text := fmt.Sprintf("McNemar: %d became worse and %d better, exact p %.4f", r.Regressions, r.Improvements, *r.McNemarExact)
	if r.McNemarMidP != nil {
		text += fmt.Sprintf(", mid-p %.4f", *r.McNemarMidP)
	}
	return text + "."
}

// comparedItem is an evaluation that differs, with what both sides have made of it.
type comparedItem struct {
	compare.Item
	// URL is empty in a file.
	URL string
}

// Changed says in a line what each evaluator says of A and of B, and what has faulted.
func (i comparedItem) Changed() string {
	var out []string
	for _, c := range i.Changes {
		out = append(out, c.Evaluator+" "+formatScore(c.A)+" → "+formatScore(c.B))
	}
	for _, side := range []struct {
		name   string
		faults []string
	}{{"A", i.FaultsA}, {"B", i.FaultsB}} {
		if n := len(side.faults); n > 0 {
			out = append(out, fmt.Sprintf("%s in %s: %s", counted(n, "fault"), side.name, strings.Join(slices.Compact(slices.Sorted(slices.Values(side.faults))), ", ")))
		}
	}
	return strings.Join(out, "; ")
}

// Items are evaluations with their links.
func (page *comparePage) Items(all []compare.Item) (out []comparedItem) {
	for _, one := range all {
		q := url.Values{"a": {page.A}, "b": {page.B}, "evaluation": {one.EvaluationID}}
		if one.Agent != "" {
			q.Set("agent", one.Agent)
		}
		if page.Different {
			q.Set("different", "1")
		}
		item := comparedItem{Item: one}
		if !page.Offline {
			item.URL = "/compare/outputs?" + q.Encode()
		}
		out = append(out, item)
	}
	return out
}
