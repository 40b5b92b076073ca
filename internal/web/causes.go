package web

import (
	"cmp"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// maxCauses is the most reasons that a page shows, maxNamed the most evaluations that it names for
// one.
const (
	maxCauses = 8
	maxNamed  = 3
)

// scored matches the score between the name of an evaluator and its finding.
var scored = regexp.MustCompile(`^ -?[0-9][0-9.e+-]*( of [0-9.]+)?(: |$)`)

// addCauses groups the rollouts that somebody has to look at by the reason for which they have not
// passed, the most common first.
func (o *overview) addCauses() {
	o.causes, o.moreCauses = nil, 0
	at := map[[3]string]int{}
	var all []cause
	for i := range o.rows {
		r := &o.rows[i]
		if !r.bad() || r.Reason == "" {
			continue
		}
		c := o.causeOf(r)
		key := [3]string{c.Status, c.Name, c.Text}
		k, ok := at[key]
		if !ok {
			k = len(all)
			at[key], all = k, append(all, c)
		}
		all[k].count(o, i)
	}
	all = together(all)
	slices.SortStableFunc(all, func(a, b cause) int { return cmp.Compare(b.N, a.N) })
	if len(all) > maxCauses {
		o.moreCauses, all = len(all)-maxCauses, all[:maxCauses]
	}
	for i := range all {
		all[i].URL = all[i].link()
	}
	o.causes = all
}

func (o *overview) causeOf(r *row) cause {
	status := r.Status
	if r.Status != "failed" && r.Status != "faulted" {
		status = "unscored"
	}
	for _, e := range o.evaluators {
		rest, ok := strings.CutPrefix(r.Reason, e.Name)
		if !ok || r.Status == "faulted" {
			continue
		}
		if m := scored.FindString(rest); m != "" {
			return cause{Name: e.Name, Text: rest[len(m):], Status: status, evaluator: e.ID}
		}
		if said, ok := strings.CutPrefix(rest, " failed: "); ok {
			return cause{Name: e.Name, Text: said, Status: "unscored", evaluator: e.ID}
		}
	}
	return cause{Text: r.Reason, Status: status}
}

// count counts a rollout, by its place among the rows.
func (c *cause) count(o *overview, at int) {
	r := &o.rows[at]
	c.N++
	if o.several() {
		k := slices.IndexFunc(c.Agents, func(a asker) bool { return a.Agent == r.Agent })
		if k < 0 {
			k, c.Agents = len(c.Agents), append(c.Agents, asker{Agent: r.Agent})
		}
		c.Agents[k].N++
	}
	if c.evaluations == nil {
		c.evaluations = map[int]bool{}
	}
	switch {
	case c.evaluations[r.evaluation]:
	case len(c.Named) < maxNamed:
		c.Named = append(c.Named, namedRollout{r.EvaluationID, r.EvaluationName, o.url(at, "")})
	default:
		c.More++
	}
	c.evaluations[r.evaluation] = true
}

// together joins reasons of one evaluator that have one rollout each, if there are too many reasons
// in all: a judge never says the same twice.
func together(all []cause) (out []cause) {
	if len(all) <= maxCauses {
		return all
	}
	at := map[string]int{}
	for _, c := range all {
		key := c.Status + "\n" + c.Name
		k, ok := at[key]
		if c.N > 1 || c.Name == "" || !ok {
			if c.N == 1 && c.Name != "" {
				at[key] = len(out)
				c.Different = 1
			}
			out = append(out, c)
			continue
		}
		sum := &out[k]
		sum.N++
		sum.Different++
		sum.Text = ""
		for _, a := range c.Agents {
			i := slices.IndexFunc(sum.Agents, func(b asker) bool { return a.Agent == b.Agent })
			if i < 0 {
				i, sum.Agents = len(sum.Agents), append(sum.Agents, asker{Agent: a.Agent})
			}
			sum.Agents[i].N++
		}
		for _, n := range c.Named {
			if len(sum.Named) < maxNamed {
				sum.Named = append(sum.Named, n)
			} else {
				sum.More++
			}
		}
	}
	return out
}

// link returns a link to the rollouts in the list.
func (c *cause) link() string {
	q := url.Values{}
	if c.evaluator != "" {
		q.Set("evaluator", plain(c.evaluator))
	} else {
		q.Set("status", c.Status)
	}
	if text := strings.ToLower(strings.TrimSpace(plain(strings.TrimSuffix(c.Text, "…")))); text != "" &&
		!strings.Contains(text, "\uFFFD") {
		q.Set("q", text)
	}
	return "?" + q.Encode() + "#rl"
}

// Says returns the words before the number.
func (c cause) Says() string {
	switch {
	case c.Different > 1:
		return fmt.Sprintf("%s: %d different reasons", c.Name, c.Different)
	case c.Name == "":
		return c.Text
	case c.Text == "":
		return c.Name + ": less than the best score"
	}
	return c.Name + ": " + c.Text
}
