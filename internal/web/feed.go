package web

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/evalrun/evalrun/internal/service"
)

// feeds tell streams what changes of runs. However many look at a run, one goroutine reads what has
// changed of it, and makes what all of them are told.
type feeds struct {
	p *Pages

	mu   sync.Mutex
	runs map[string]*feed
}

// feed is a run that somebody looks at.
type feed struct {
	stop  context.CancelFunc
	ended chan struct{}

	// The following is guarded by feeds.mu.
	listeners map[*listener]bool
	newest    *moment
}

// listener is a stream that tells what a feed has.
type listener struct {
	// at is the moment that the stream tells or has told last. The stream alone changes it, under feeds.mu.
	at *moment
	// drop ends the stream.
	drop func()
}

// maxBehind is how many bytes a stream may be behind. One that is further behind is ended, so that no
// more has to be kept for it.
const maxBehind = 1 << 20

// moment is what streams tell of a run at one revision.
type moment struct {
	revision int64
	// data is the difference to the moment before, as JSON; nil if the run cannot be read.
	data []byte
	// sum counts the bytes of this one and of all before it.
	sum int64
	// last says that no other moment follows.
	last bool
	// followed is closed when then is there.
	followed chan struct{}
	then     *moment
}

// join returns a listener at the newest moment of a run, which others follow until leave is called. drop
// is called if the listener is too far behind; it must not wait.
func (q *feeds) join(runID string, drop func()) (l *listener, leave func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f, ok := q.runs[runID]
	if !ok {
		ctx, stop := context.WithCancel(context.Background()) // it is everybody's who looks at the run
		f = &feed{stop: stop, ended: make(chan struct{}), listeners: map[*listener]bool{}, newest: &moment{followed: make(chan struct{})}}
		q.runs[runID] = f
		go q.read(ctx, runID, f)
	}
	l = &listener{f.newest, drop}
	f.listeners[l] = true
	return l, func() { q.leave(runID, f, l) }
}

// next is the moment that follows the one at which a listener is, which must be there.
func (q *feeds) next(l *listener) *moment {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.at = l.at.then
	return l.at
}

// leave ends a feed to which nobody listens any more.
func (q *feeds) leave(runID string, f *feed, l *listener) {
	q.mu.Lock()
	delete(f.listeners, l)
	alone := len(f.listeners) == 0
	if alone && q.runs[runID] == f {
		delete(q.runs, runID)
	}
	q.mu.Unlock()
	if alone {
		f.stop()
		<-f.ended
	}
}

// read adds a moment whenever the run has changed, and a pause is over.
func (q *feeds) read(ctx context.Context, runID string, f *feed) {
	defer close(f.ended)
	var before *overview
	for {
		changed := q.p.o.Service.Store().Changed(runID)
		began := time.Now()
		now, err := q.p.overviews.now(ctx, runID)
		switch {
		case errors.Is(err, service.ErrNotFound):
			q.add(runID, f, 0, &patch{Text: map[string]string{"newer": "This run was removed from the store."}, Set: [][3]any{}, Final: true, Gone: true})
			return
		case err != nil:
			q.add(runID, f, 0, nil)
			return
		}
		took := time.Since(began)
		if before == nil || before.head.Revision != now.head.Revision {
			since := int64(-1)
			if before != nil {
				since = before.head.Revision
			}
			p := patchOf(since, now)
			q.p.addQuestions(ctx, p.Text)
			q.add(runID, f, now.head.Revision, &p)
			before = now
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
		select {
		case <-time.After(max(livePause, 10*took)):
		case <-ctx.Done():
			return
		}
	}
}

// add adds a moment. After the last one whoever joins begins another feed.
func (q *feeds) add(runID string, f *feed, revision int64, p *patch) {
	m := &moment{revision: revision, last: p == nil || p.Gone, followed: make(chan struct{})}
	if p != nil {
		m.data, _ = json.Marshal(p) // texts, numbers and truths
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if m.last && q.runs[runID] == f {
		delete(q.runs, runID)
	}
	m.sum = f.newest.sum + int64(len(m.data))
	for l := range f.listeners {
		if m.sum-l.at.sum > maxBehind && l.at != f.newest {
			l.drop()
		}
	}
	f.newest.then = m
	close(f.newest.followed)
	f.newest = m
}
