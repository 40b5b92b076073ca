//go:build !linux

package snapshot

import "errors"

var errLinux = errors.New("snapshots of an overlay need Linux")

// Take needs Linux.
func (s *Store) Take(string, ...string) (*Report, error) { return nil, errLinux }

// Restore needs Linux.
func (s *Store) Restore(string) error { return errLinux }

// RemoveAll needs Linux.
func RemoveAll(string) error { return errLinux }

// lastBlocks and touch are for snapshots that were taken here.
func (s *Store) lastBlocks() []block { return nil }

func (s *Store) touch() error { return errLinux }
