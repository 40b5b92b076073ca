package report

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
)

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
