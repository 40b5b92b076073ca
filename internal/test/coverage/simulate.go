package main

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"

	"github.com/evalrun/evalrun/eval/stats"
)

// result has the outcomes of the experiments of a cell, by the shipped method and by Student's t.
type result struct {
	cell
	shipped, student share
}

// share has shares of the experiments. In covered the truth is within the interval, and in
// falseGreen a gate is met whose minimum is the truth. width is the average width.
type share struct{ covered, falseGreen, width float64 }

// simulate runs all cells. Each has random numbers of its own.
func simulate(all []cell, seed uint64, experiments int) []result {
	out := make([]result, len(all))
	next := make(chan int)
	var done sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		done.Go(func() {
			for i := range next {
				out[i] = run(all[i], rand.New(rand.NewPCG(seed, uint64(i))), experiments) //nolint:gosec // experiments, no secrets
			}
		})
	}
	for i := range all {
		next <- i
	}
	close(next)
	done.Wait()
	return out
}

func run(c cell, r *rand.Rand, experiments int) result {
	out := result{cell: c}
	for range experiments {
		e := c.draw(r)
		out.shipped.add(e, stats.Bounded, c.truth, experiments)
		out.student.add(e, stats.Student, c.truth, experiments)
	}
	return out
}

func (s *share) add(e experiment, method stats.Method, truth float64, experiments int) {
	low, high := e.interval(method)
	if low == nil { // nothing is promised, and nothing is met
		low, high = new(float64), new(float64)
		*low, *high = -1, 1
	}
	one := 1 / float64(experiments)
	if *low <= truth+1e-9 && truth-1e-9 <= *high {
		s.covered += one
	}
	if *low >= truth-1e-9 {
		s.falseGreen += one
	}
	s.width += one * (*high - *low)
}

// tables returns the tables in Markdown: three for each group.
func tables(results []result) string {
	var out strings.Builder
	for _, group := range []string{"Scores", "Clusters", "Differences"} {
		for _, figure := range []struct {
			name string
			show func(share) string
		}{
			{"coverage", func(s share) string { return fmt.Sprintf("%.3f", s.covered) }},
			{"false green", func(s share) string { return fmt.Sprintf("%.1f %%", 100*s.falseGreen) }},
			{"width", func(s share) string { return fmt.Sprintf("%.2f", s.width) }},
		} {
			fmt.Fprintf(&out, "### %s: %s\n\n", group, figure.name)
			var columns []string
			rows, cells := []string{}, map[string]string{}
			for _, r := range results {
				if r.group != group {
					continue
				}
				columns, rows = once(columns, r.column), once(rows, r.row)
				cells[r.row+"|"+r.column] = figure.show(r.shipped) + " (" + figure.show(r.student) + ")"
			}
			fmt.Fprintf(&out, "| | %s |\n|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
			for _, row := range rows {
				fmt.Fprintf(&out, "| %s |", row)
				for _, column := range columns {
					fmt.Fprintf(&out, " %s |", cells[row+"|"+column])
				}
				out.WriteString("\n")
			}
			out.WriteString("\n")
		}
	}
	return out.String()
}

// once adds a name that is not there yet.
func once(names []string, name string) []string {
	for _, one := range names {
		if one == name {
			return names
		}
	}
	return append(names, name)
}
