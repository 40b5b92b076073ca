package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"strings"

	"github.com/evalrun/evalrun/internal/jsonobj"
	"github.com/evalrun/evalrun/internal/mcp"
	"github.com/evalrun/evalrun/internal/mcp/taskwire"
)

// Serve answers the requests of clients about tasks. It needs no connection to a server. ok is
// false for all other requests.
func (k *Manager) Serve(ctx context.Context, r *mcp.Request) (result json.RawMessage, ok bool, err error) {
	if r.Method == mcp.MethodListen {
		return k.listen(ctx, r)
	}
	return taskwire.Serve(ctx, requests{k}, r)
}

// sessionOf is the session to which the tasks of a request's client belong.
func sessionOf(r *mcp.Request) string {
	if r.Era == mcp.Modern {
		return ""
	}
	return r.Session.ID()
}

// requests is the taskwire.Backend of clients.
type requests struct{ k *Manager }

// Task implements taskwire.Backend.
func (q requests) Task(ctx context.Context, r *mcp.Request, id string) (taskwire.Task, error) {
	_, rec, err := q.k.find(ctx, sessionOf(r), id)
	return view(rec), err
}

// Cancel implements taskwire.Backend.
func (q requests) Cancel(ctx context.Context, r *mcp.Request, id string) (taskwire.Task, bool, error) {
	t, rec, err := q.k.find(ctx, sessionOf(r), id)
	if t != nil {
		t.stop("cancelled by its client")
		rec, _ = t.record()
	}
	return view(rec), t != nil, err
}

// cursor stands for the tasks of a session after one of them. It has a checksum, which shows
// whether the cursor is ours.
func (q requests) cursor(session string, seq int64) string {
	number := strconv.FormatInt(seq, 36)
	sum := sha256.Sum256([]byte(q.k.access + " " + session + " " + number))
	return number + "-" + hex.EncodeToString(sum[:4])
}

// Tasks implements taskwire.Backend.
func (q requests) Tasks(ctx context.Context, r *mcp.Request,
	cursor *string) (page []taskwire.Task, next string, err error) {
	var after int64
	session := sessionOf(r)
	if cursor != nil {
		number, _, _ := strings.Cut(*cursor, "-")
		n, err := strconv.ParseInt(number, 36, 64)
		if err != nil || *cursor != q.cursor(session, n) {
			return nil, "", mcp.Errorf(mcp.CodeInvalidParams, "Invalid cursor")
		}
		after = n
	}
	all, err := q.k.o.Store.MCPTasks(ctx, q.k.access, session, after, q.k.o.Page+1)
	if err != nil {
		return nil, "", err
	}
	if len(all) > q.k.o.Page {
		all = all[:q.k.o.Page]
		next = q.cursor(session, all[len(all)-1].Seq)
	}
	for _, rec := range all {
		page = append(page, view(rec))
	}
	return page, next, nil
}

// Await implements taskwire.Backend.
func (q requests) Await(ctx context.Context, r *mcp.Request, id string) (none taskwire.Task, err error) {
	t, rec, err := q.k.find(ctx, sessionOf(r), id)
	if err != nil {
		return none, err
	}
	for t != nil {
		var changed <-chan struct{}
		if rec, changed = t.record(); rec.Ended() {
			break
		}
		if one := t.questions.claim(); one != nil {
			if err := t.questions.askIn(ctx, r, one); err != nil {
				return none, err
			}
			if ctx.Err() != nil {
				return none, context.Cause(ctx)
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return none, context.Cause(ctx)
		case <-t.s.e.Context().Done():
			return none, mcp.Errorf(mcp.CodeInternal, "the gateway is being closed; ask again")
		}
	}
	return view(rec), nil
}

// Answer implements taskwire.Backend.
func (q requests) Answer(ctx context.Context, r *mcp.Request, id string, responses jsonobj.Object) error {
	t, _, err := q.k.find(ctx, sessionOf(r), id)
	if err != nil || t == nil { // if it has ended, answers do not matter
		return err
	}
	return t.questions.respond(ctx, responses)
}
