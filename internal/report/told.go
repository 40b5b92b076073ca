package report

import (
	"encoding/json"

	"github.com/evalrun/evalrun/eval"
	"github.com/evalrun/evalrun/internal/plans"
	"github.com/evalrun/evalrun/internal/record"
	"github.com/evalrun/evalrun/internal/store"
	"github.com/evalrun/evalrun/schemas"
)

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
