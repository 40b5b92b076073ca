package web

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval/compare"
)

const (
	// maxMarks is the most epochs of a side that have a mark.
	maxMarks = 5
	// itemElements is about the most elements that each of the two lists of evaluations has, so that
	// the page has fewer than 5,000.
	itemElements = 2000
)

// list returns the part of a list of evaluations that the page shows. A file has all of it. key is
// the parameter of the query that has the number of the part.
func (page *comparePage) list(all []compare.Item, key string) (out itemList) {
	if len(all) == 0 {
		return out
	}
	out.Label = "Evaluations that became " + key
	marks := 0
	for _, item := range all {
		out.Agents = out.Agents || item.Agent != ""
		marks = max(marks, min(len(item.RolloutsA), maxMarks)+min(len(item.RolloutsB), maxMarks))
	}
	size := min(pageRows, itemElements/(14+3*marks))
	if page.Offline {
		size = len(all)
	}
	out.part = partOfList(len(all), size, page.Parts[key], func(n int) string {
		q := page.query()
		for other, at := range page.Parts {
			if at > 1 {
				q.Set(other, strconv.Itoa(at))
			}
		}
		q.Set(key, strconv.Itoa(n))
		return "?" + q.Encode() + "#" + key
	})
	for _, item := range all[out.From-1 : out.To] {
		out.Items = append(out.Items, page.item(item))
	}
	return out
}

// Class is improved or regressed, by the sign of the difference.
func (i comparedItem) Class() compare.Verdict {
	if i.D > 0 != i.row.LowerIsBetter {
		return compare.Improved
	}
	return compare.Regressed
}

// MoreA counts the epochs of A that are not marked.
func (i comparedItem) MoreA() int { return len(i.RolloutsA) - len(i.MarksA) }

// MoreB counts the epochs of B that are not marked.
func (i comparedItem) MoreB() int { return len(i.RolloutsB) - len(i.MarksB) }

// Value writes a score as the first figure is written.
func (i comparedItem) Value(v float64) string { return i.row.Value(v) }

// Signed writes a difference as the first figure is written, with its sign.
func (i comparedItem) Signed(v float64) string { return i.row.Signed(v) }

// Changed writes a line with the results of each evaluator for A and B, and the faults.
func (i comparedItem) Changed() string {
	var out []string
	for _, c := range i.Changes {
		out = append(out, cmp.Or(c.Name, c.Evaluator)+" "+formatScore(c.A)+" → "+formatScore(c.B))
	}
	for _, side := range []struct {
		name   string
		faults []string
	}{{"A", i.FaultsA}, {"B", i.FaultsB}} {
		if n := len(side.faults); n > 0 {
			out = append(out, fmt.Sprintf("%s in %s: %s", counted(n, "fault"), side.name,
				strings.Join(slices.Compact(slices.Sorted(slices.Values(side.faults))), ", ")))
		}
	}
	return strings.Join(out, "; ")
}

// item makes an evaluation with its links.
func (page *comparePage) item(one compare.Item) comparedItem {
	out := comparedItem{
		Item: one, row: page.First,
		MarksA: page.marks(page.Doc.A.RunID, one.RolloutsA), MarksB: page.marks(page.Doc.B.RunID, one.RolloutsB),
	}
	if !page.Offline {
		q := page.query()
		q.Set("evaluation", one.EvaluationID)
		if one.Agent != "" {
			q.Set("agent", one.Agent)
		}
		out.URL = "/compare/outputs?" + q.Encode()
	}
	return out
}

// marks returns the epochs of a side, at most maxMarks of them.
func (page *comparePage) marks(runID string, rollouts []compare.Rollout) (out []cell) {
	for _, r := range rollouts[:min(len(rollouts), maxMarks)] {
		one := cell{Status: r.Status, Label: fmt.Sprintf("epoch %d: %s", r.Epoch, r.Status)}
		if r.Score != nil {
			one.Label += ", score " + formatScore(r.Score)
		}
		if !page.Offline {
			one.URL = "/runs/" + runID + "/rollouts/" + r.RolloutID
		}
		out = append(out, one)
	}
	return out
}
