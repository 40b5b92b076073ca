package sqlite

// Look does now what is done every five seconds while somebody waits for a change.
func Look(s *Store) { s.changes.look() }
