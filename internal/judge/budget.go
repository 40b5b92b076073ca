package judge

import (
	"context"
	"fmt"
	"sync"

	"github.com/evalrun/evalrun/eval"
)

// Spent adds up what calls of judges have cost.
type Spent struct {
	Calls  int
	Tokens int64
	Cost   float64
}

// Add adds the cost of a question.
func (s *Spent) Add(c eval.JudgeCall) {
	s.Calls += c.Attempts
	if c.Batch != "" {
		s.Calls++ // the call in a batch counts too
	}
	if c.Cached {
		return
	}
	if c.Usage != nil {
		s.add(*c.Usage)
	}
}

func (s *Spent) add(u eval.Usage) {
	s.Tokens += u.Tokens()
	if u.Cost != nil {
		s.Cost += *u.Cost
	}
}

// budget keeps a run from spending more than it may.
type budget struct {
	limit  Budget
	before func(ctx context.Context) (Spent, error)

	mu    sync.Mutex
	read  bool
	spent Spent
	// waiting holds the custom ids of the questions for which a call in a batch has been reserved.
	waiting map[string]bool
}

// take reserves one request, or says why there is none left. priced says that its cost will be
// known.
func (b *budget) take(ctx context.Context, priced bool) error {
	if b.limit == (Budget{}) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.takeLocked(ctx, priced)
}

// takeOnce reserves one request for all questions in batches that have a custom id.
func (b *budget) takeOnce(ctx context.Context, customID string, priced bool) error {
	if b.limit == (Budget{}) {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[customID] {
		return nil
	}
	if err := b.takeLocked(ctx, priced); err != nil {
		return err
	}
	if b.waiting == nil {
		b.waiting = map[string]bool{}
	}
	b.waiting[customID] = true
	return nil
}

func (b *budget) takeLocked(ctx context.Context, priced bool) error {
	if !b.read && b.before != nil {
		before, err := b.before(ctx)
		if err != nil {
			return &eval.JudgeError{Category: eval.JudgeBudget, Message: "what was spent before cannot be read: " + err.Error()}
		}
		b.spent = before
	}
	b.read = true
	over := func(format string, args ...any) error {
		return &eval.JudgeError{Category: eval.JudgeBudget,
			Message: fmt.Sprintf(format, args...) + "; judges.budget limits it"}
	}
	switch l := b.limit; {
	case l.Calls > 0 && b.spent.Calls >= l.Calls:
		return over("the run has made %d calls of judges", b.spent.Calls)
	case l.Tokens > 0 && b.spent.Tokens >= l.Tokens:
		return over("the run's judges have used %d tokens", b.spent.Tokens)
	case l.Cost > 0 && !priced:
		return over("the cost cannot be kept to, because judges.prices has no price for the model")
	case l.Cost > 0 && b.spent.Cost >= l.Cost:
		return over("the run's judges have cost %g", b.spent.Cost)
	}
	b.spent.Calls++
	return nil
}

// used adds the usage of a reserved request.
func (b *budget) used(u eval.Usage) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent.add(u)
}
