package rules

import "context"

// Server is a database on a server of its own.
type Server interface {
	// About says what people who operate it want to know, in a line.
	About(ctx context.Context) (string, error)
}

// About returns what a server says of itself that has the store, or nothing if there is none.
func (s *Store) About(ctx context.Context) (string, error) {
	server, ok := s.Database.(Server)
	if !ok {
		return "", nil
	}
	about, err := server.About(ctx)
	return about, s.describe(err, "look at the server")
}
