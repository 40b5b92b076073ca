package serve

import (
	"maps"
	"slices"
)

// Patterns are those of all routes.
func (s *Server) Patterns() []string { return slices.Sorted(maps.Keys(s.guard.routes)) }

// IsPage reports whether a pattern is that of a page.
func (s *Server) IsPage(pattern string) bool { return s.guard.routes[pattern].Page }

// ClosedPages are the patterns of the pages that need a token.
func (s *Server) ClosedPages() (out []string) {
	for _, p := range s.Patterns() {
		if r := s.guard.routes[p]; r.Page && !r.Open {
			out = append(out, p)
		}
	}
	return out
}

// EventTypes are those that may be asked for.
var EventTypes = eventTypes

// OpenCalls is the number of requests whose token is looked at again and again.
func (s *Server) OpenCalls() (n int) {
	c := s.guard.calls
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, open := range c.open {
		n += len(open)
	}
	return n
}
