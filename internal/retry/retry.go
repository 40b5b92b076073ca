// Package retry decides when a failed request is worth another try: which answers of a server may
// change, and how long to wait. It sends nothing and waits for nothing. Its callers have a clock, a
// timer or a store of their own.
package retry

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Temporary reports whether the same request may be answered otherwise later. It is for statuses
// other than success. A conflict is temporary because it may be one with an earlier try.
func Temporary(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return status >= 500
}

// Backoff is the pause after so many earlier failures. It doubles with each, up to the most.
func Backoff(first, most time.Duration, failures int) time.Duration {
	d := first
	for range failures {
		if d *= 2; d >= most {
			return most
		}
	}
	return min(d, most)
}

// longest is the most that After returns.
const longest = 365 * 24 * time.Hour

// After returns how long a server asks its clients to wait, if it does: Retry-After in seconds or
// as a date (RFC 9110, section 10.2.3), or OpenAI's retry-after-ms.
func After(header http.Header, now time.Time) (_ time.Duration, asked bool) {
	if after, ok := number(header.Get("retry-after-ms"), time.Millisecond); ok {
		return after, true
	}
	value := header.Get("Retry-After")
	if after, ok := number(value, time.Second); ok {
		return after, true
	}
	if at, err := http.ParseTime(value); err == nil {
		return min(max(0, at.Sub(now)), longest), true
	}
	return 0, false
}

// number reads a number of units that is not negative.
func number(s string, unit time.Duration) (time.Duration, bool) {
	n, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || !(n >= 0) {
		return 0, false
	}
	return time.Duration(min(n*float64(unit), float64(longest))), true
}
