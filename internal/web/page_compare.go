package web

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval/compare"
	"github.com/evalrun/evalrun/eval/stats"
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
	Doc            *compare.Document
	First          *compareRow
	Rows           []compareRow
	Regressed      []compare.Item
	Improved       []compare.Item
	// More counts what is left out of these two lists.
	More int
}

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
	if page.Doc, err = runner.Compare(a, b, o); err != nil {
		page.Doc = nil
		return err
	}
	scale := 0.05
	for i := range page.Doc.Comparisons {
		if row := &page.Doc.Comparisons[i]; !row.LowerIsBetter {
			for _, v := range []*float64{&row.Delta, row.Low, row.High} {
				if v != nil {
					scale = max(scale, math.Abs(*v))
				}
			}
		}
	}
	for i := range page.Doc.Comparisons {
		page.Rows = append(page.Rows, compareRow{&page.Doc.Comparisons[i], scale})
	}
	if len(page.Rows) > 0 {
		page.First = &page.Rows[0]
	}
	for _, item := range page.Doc.Items {
		list := &page.Regressed
		if item.D > 0 != page.First.LowerIsBetter {
			list = &page.Improved
		}
		if len(*list) == maxItems {
			page.More++
			continue
		}
		*list = append(*list, item)
	}
	page.Commands = []string{"evalrun compare " + page.Doc.A.RunID + " " + page.Doc.B.RunID}
	return nil
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
func (page *comparePage) Same() bool { return page.A == page.B }
