package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/eval/summary"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/redact"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/internal/wait"
	"github.com/evalrun/evalrun/schemas"
)

// playedCount counts what is played in a run.
type playedCount struct {
	plan *plans.Plan
	out  schemas.Played
	// used holds the places of the answers that were played, seen the evaluations of the run.
	used, seen map[string]bool
	doubled    map[string]bool
	// calls counts the calls that each mock has played, by place, in the rollout that had the most.
	// unmatched counts the calls that no mock has matched, by server and tool.
	calls, unmatched map[string]int
	// written is what models have used that have written results.
	written []eval.Usage
}

// newPlayedCount returns nil if the run plays nobody.
func newPlayedCount(plan *plans.Plan) *playedCount {
	if plan.Answers == nil && plan.Mocks == nil && !plan.Jobs.Played() {
		return nil
	}
	return &playedCount{plan: plan, used: map[string]bool{}, seen: map[string]bool{}, doubled: map[string]bool{},
		calls: map[string]int{}, unmatched: map[string]int{}}
}

// add counts the triggers of a rollout.
func (c *playedCount) add(rv store.RolloutView) {
	if c == nil {
		return
	}
	c.seen[rv.EvaluationID] = true
	c.addCalls(rv)
	for _, t := range rv.Triggers {
		played := playedOf(t)
		if played == nil {
			continue
		}
		c.used[played.Place] = true
		for _, other := range played.Over {
			c.used[other] = true
		}
		for _, other := range played.Also {
			c.used[other] = true
			c.doubled[played.Place+" and "+other] = true
		}
		switch {
		case t.DeliveredBy != wait.SourceFixed:
		case played.Number > 0:
			c.out.Jobs++
		default:
			c.out.Answers++
		}
	}
}

// done returns the counts. As long as the run is not final an answer may still match.
func (c *playedCount) done(final bool, red *redact.Redactor) *schemas.Played {
	if c == nil {
		return nil
	}
	out := c.out
	out.Usage = eval.TotalUsage(c.written)
	for both := range c.doubled {
		out.Warnings = append(out.Warnings, red.String(both+" match the same question; the first one was played"))
	}
	slices.Sort(out.Warnings)
	if final {
		for _, place := range c.plan.Answers.Places(func(id string) bool { return c.seen[id] }) {
			if !c.used[place] {
				out.Warnings = append(out.Warnings, red.String(place+" has matched no question"))
			}
		}
	}
	for _, warning := range c.ofMocks(final) {
		out.Warnings = append(out.Warnings, red.String(warning))
	}
	return &out
}

// playedOf returns what is played for a trigger; nil if nothing is.
func playedOf(t store.Trigger) *wait.Played {
	if t.Source != wait.SourceFixed {
		return nil
	}
	var spec wait.Spec
	_ = json.Unmarshal(t.Spec, &spec) // the store keeps only marshalled specs
	return spec.Played
}

// playedPlace is where the answer to a trigger stands that has been played; empty if none was.
func playedPlace(t store.Trigger) string {
	if played := playedOf(t); played != nil && t.DeliveredBy == wait.SourceFixed {
		return played.Place
	}
	return ""
}

// PlayedSentences say how many outputs of a run are those of earlier runs, how many answers and jobs
// were played, and what is wrong with the answers.
func PlayedSentences(h *schemas.Head) []string { return overview{h}.playedSentences() }

func (h overview) playedSentences() (out []string) {
	if n := h.CachedOutputs; n > 0 {
		out = append(out, "from the cache: "+count(n, "output")+" of earlier runs, which have paid for the models")
	}
	if u := h.SimulatedUsers; u != nil {
		used := summary.UsageSummary{Total: u.Usage}
		out = append(out, fmt.Sprintf("users played by models: %s in %s; tokens: %s; cost: %s, which no agent has used",
			count(u.Messages, "message"), count(u.Rollouts, "rollout"), tokensSentence(&used, 0), costSentence(&used)))
	}
	p := h.Played
	if p == nil {
		return out
	}
	var what []string
	if p.Answers > 0 {
		what = append(what, count(p.Answers, "answer"))
	}
	if p.Jobs > 0 {
		what = append(what, count(p.Jobs, "job"))
	}
	if p.Calls > 0 {
		what = append(what, map[bool]string{true: "1 call of a tool", false: fmt.Sprintf("%d calls of tools", p.Calls)}[p.Calls == 1])
	}
	if len(what) > 0 {
		out = append(out, "played: "+strings.Join(what, ", "))
	}
	if p.Usage != nil {
		used := summary.UsageSummary{Total: *p.Usage}
		out = append(out, fmt.Sprintf("results of calls written by models; tokens: %s; cost: %s, which no agent has used",
			tokensSentence(&used, 0), costSentence(&used)))
	}
	const most = 10
	for i, warning := range p.Warnings {
		if i == most {
			return append(out, fmt.Sprintf("%d more warnings about what was played", len(p.Warnings)-most))
		}
		out = append(out, redact.Line(warning))
	}
	return out
}

// addCalls counts the calls of tools that were played in the attempts of a rollout that counted.
func (c *playedCount) addCalls(rv store.RolloutView) {
	calls := map[string]int{}
	for i, s := range rv.Segments {
		last := rv.State.IsTerminal() && i == len(rv.Segments)-1
		if s.Info == nil || s.Outcome != store.OutcomeCompleted && s.Outcome != store.OutcomeSuspended && !last {
			continue
		}
		var info record.Info
		if json.Unmarshal(s.Info, &info) != nil || info.Mocks == nil {
			continue // what is unreadable is said where the rollout is shown
		}
		for place, n := range info.Mocks.Calls {
			calls[place] += n
			c.out.Calls += n
		}
		c.written = append(c.written, c.plan.Set.Prices.PricedAll(info.Mocks.Usage)...)
		for tool, n := range info.Mocks.Unmatched {
			c.unmatched[tool] += n
		}
	}
	for place, n := range calls {
		c.used[place] = true
		c.calls[place] = max(c.calls[place], n)
	}
}

// ofMocks says what is wrong with the mocks. As long as the run is not final a call may still match.
func (c *playedCount) ofMocks(final bool) (warnings []string) {
	for _, key := range slices.Sorted(maps.Keys(c.unmatched)) {
		server, tool, _ := strings.Cut(key, " ")
		if server == "" {
			tool = "the function " + tool
		} else {
			tool += " of MCP server " + strconv.Quote(server)
		}
		warnings = append(warnings, fmt.Sprintf(
			"%s is mocked, and no mock matches the arguments of %s, which came to nothing",
			tool, count(c.unmatched[key], "call")))
	}
	for _, m := range c.plan.Mocks.All() {
		if n := c.calls[m.Place]; m.Sequence && n > len(m.Answers) {
			warnings = append(warnings, fmt.Sprintf("%s has %s, and a rollout made %s", m.Place,
				count(len(m.Answers), "answer"), count(n, "call")))
		}
	}
	if !final {
		return warnings
	}
	for _, place := range c.plan.Mocks.Places(func(id string) bool { return c.seen[id] }) {
		if !c.used[place] {
			warnings = append(warnings, place+" has matched no call")
		}
	}
	return warnings
}

// toldCount counts what segments tell of that marks a run: outputs of earlier runs, and users who were
// played by models.
type toldCount struct {
	plan   *plans.Plan
	cached int
	users  schemas.SimulatedUsers
	used   []eval.Usage
}

func (c *toldCount) add(rv store.RolloutView) {
	if !c.plan.Marked() {
		return
	}
	cached, messages := false, 0
	for _, s := range rv.Segments {
		var info record.Info
		if s.Info == nil || json.Unmarshal(s.Info, &info) != nil {
			continue // what is unreadable is said where the rollout is shown
		}
		cached = cached || info.Cached != nil
		if info.User == nil {
			continue
		}
		messages += info.User.Messages
		c.used = append(c.used, c.plan.Set.Prices.PricedAll(info.User.Usage)...)
	}
	if cached {
		c.cached++
	}
	if messages > 0 {
		c.users.Rollouts++
		c.users.Messages += messages
	}
}

// played returns what the users who were played have said; nil if there were none.
func (c *toldCount) played() *schemas.SimulatedUsers {
	total := eval.TotalUsage(c.used)
	if total == nil || c.users.Messages == 0 {
		return nil
	}
	c.users.Usage = *total
	return &c.users
}

// user adds what a segment tells of the user who was played.
func (o Options) user(sum *schemas.SimulatedUser, more *record.SimulatedUser) *schemas.SimulatedUser {
	if more == nil {
		return sum
	}
	if sum == nil {
		sum = &schemas.SimulatedUser{Usage: []eval.Usage{}}
	}
	sum.Messages += more.Messages
	sum.Ended = more.Ended
	sum.Usage = append(sum.Usage, o.Plan.Set.Prices.PricedAll(more.Usage)...)
	return sum
}
