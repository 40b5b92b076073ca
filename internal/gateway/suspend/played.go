package suspend

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/evalrun/evalrun/internal/gateway"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mock"
)

// play gives the client the answer of a mock.
func (s *policy) play(ctx context.Context, r *mcp.Request, a mock.Answer) (json.RawMessage, error) {
	if a.After > 0 {
		later := time.NewTimer(time.Duration(a.After))
		defer later.Stop()
		select {
		case <-later.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if a.Error != nil {
		return nil, mcp.ParseError(a.Error)
	}
	return s.shown(r, a.Result), nil
}

// CheckMocks says which mock is of a tool that its server does not have. It is called when the
// servers have listed their tools.
func CheckMocks(a *gateway.Access, p *mock.Player) error {
	for _, e := range a.Endpoints() {
		tools := slices.Sorted(maps.Keys(e.Tools().Shown()))
		if missing := p.Missing(e.Server().Name, tools); missing != "" {
			return fmt.Errorf("%s", missing)
		}
	}
	return nil
}
