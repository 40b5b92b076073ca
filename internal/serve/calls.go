package serve

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/access"
	"github.com/evalrun/evalrun/internal/store"
)

// recheck is how often the tokens of open calls are checked again.
const recheck = 2 * time.Second

// calls are the requests that may wait for long, by their tokens. A call whose token is revoked or
// expires meanwhile is ended. One timer checks all of them, and none runs when there are none.
type calls struct {
	tokens store.AccessTokens
	now    func() time.Time

	mu sync.Mutex
	// open has the calls that can be ended, by the id of their token.
	open map[string]map[*call]struct{}
	// armed says that check is going to be called.
	armed bool
}

// call is one such request.
type call struct{ end context.CancelCauseFunc }

func newCalls(tokens store.AccessTokens, now func() time.Time) *calls {
	return &calls{tokens: tokens, now: now, open: map[string]map[*call]struct{}{}}
}

// begin returns a context that ends, with access.ErrInvalid as cause, soon after the token is no
// longer valid. The caller calls done at the end of the request.
func (c *calls) begin(ctx context.Context, tokenID string) (_ context.Context, done func()) {
	ctx, end := context.WithCancelCause(ctx)
	one := &call{end}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[tokenID] == nil {
		c.open[tokenID] = map[*call]struct{}{}
	}
	c.open[tokenID][one] = struct{}{}
	c.arm()
	return ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if delete(c.open[tokenID], one); len(c.open[tokenID]) == 0 {
			delete(c.open, tokenID)
		}
		end(nil)
	}
}

// revoked reports whether the context of a call has ended because its token is not valid any more.
func revoked(ctx context.Context) bool { return errors.Is(context.Cause(ctx), access.ErrInvalid) }

// arm schedules check if there are calls. c.mu is held.
func (c *calls) arm() {
	if !c.armed && len(c.open) > 0 {
		c.armed = true
		time.AfterFunc(recheck, c.check)
	}
}

// check ends the calls whose token is not valid any more. If the store cannot be read they go on,
// and will notice that themselves.
func (c *calls) check() {
	c.mu.Lock()
	ids := make([]string, 0, len(c.open))
	for id := range c.open {
		ids = append(ids, id)
	}
	c.mu.Unlock()
	var invalid []string
	for _, id := range ids {
		if err := access.Recheck(context.Background(), c.tokens, id, c.now()); errors.Is(err, access.ErrInvalid) {
			invalid = append(invalid, id)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range invalid {
		for one := range c.open[id] {
			one.end(access.ErrInvalid)
		}
	}
	c.armed = false
	c.arm()
}
