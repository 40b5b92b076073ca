package serve

import (
	"cmp"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// DefaultRate is how many requests a second a token may send.
const DefaultRate = 5000

// Limits on requests without a valid token: so many a second from one address, and so many at once.
const (
	failedRate  = 10
	failedBurst = 50
)

// maxBuckets bounds the number of remembered addresses.
const maxBuckets = 10_000

// rates limits how often somebody may call.
type rates struct {
	now   func() time.Time
	limit float64

	mu sync.Mutex
	// tokens has a bucket for each token, failures one for each address.
	tokens, failures map[string]*rate.Limiter
	// log gets a line for each failure.
	log *failures
}

func newRates(o *Options) *rates {
	return &rates{now: o.Now, limit: cmp.Or(o.Rate, DefaultRate), tokens: map[string]*rate.Limiter{},
		failures: map[string]*rate.Limiter{}, log: newFailures(o)}
}

// allow counts a request of a token.
func (q *rates) allow(token string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return take(q.tokens, token, q.limit, 2*int(q.limit)+1, q.now())
}

// failed counts a request without a valid token, and returns the problem that answers it. A valid
// token from the same address is still admitted.
func (q *rates) failed(r *http.Request, p *Problem) *Problem {
	if q.fail(r, p.Type[len(problemPrefix):]) {
		return p
	}
	return problem(http.StatusTooManyRequests, "too-many-requests", tooManyFailures)
}

const tooManyFailures = "too many requests without a valid token come from this address; try again in a second"

// guess counts a request with an invalid token, for handlers that check tokens themselves. It
// reports whether the address may go on.
func (q *rates) guess(r *http.Request) bool { return q.fail(r, "invalid-token") }

func (q *rates) fail(r *http.Request, reason string) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	q.log.note(r, host, reason)
	q.mu.Lock()
	defer q.mu.Unlock()
	return take(q.failures, host, failedRate, failedBurst, q.now())
}

func take(buckets map[string]*rate.Limiter, key string, limit float64, burst int, now time.Time) bool {
	b, ok := buckets[key]
	if !ok {
		if len(buckets) >= maxBuckets {
			clear(buckets)
		}
		b = rate.NewLimiter(rate.Limit(limit), burst)
		buckets[key] = b
	}
	return b.AllowN(now, 1)
}
