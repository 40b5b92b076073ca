package durable

import "sync"

// batchSync is how many callers have to wait before one sync of the whole file system is cheaper
// than one of each file: a sync of a file ends with a flush of the disk, and of a file with its
// folders there are several.
const batchSync = 4

// Syncer makes files durable for many callers at once. Those that come while a sync goes on share
// the next one.
type Syncer struct {
	// Dir is a folder of the file system on which the files are.
	Dir string

	mu      sync.Mutex
	busy    bool
	waiting []*syncCall
}

type syncCall struct {
	paths []string
	// turn receives true if the caller is to sync everything that waits by then; otherwise err has
	// been set.
	turn chan bool
	err  error
}

// Sync makes files and folders durable.
func (s *Syncer) Sync(paths ...string) error {
	call := &syncCall{paths: paths, turn: make(chan bool, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, call)
	if s.busy {
		s.mu.Unlock()
		if !<-call.turn {
			return call.err
		}
		s.mu.Lock()
	}
	s.busy = true
	batch := s.waiting
	s.waiting = nil
	s.mu.Unlock()

	s.syncBatch(batch)
	for _, c := range batch {
		if c != call {
			c.turn <- false
		}
	}
	s.mu.Lock()
	if s.busy = len(s.waiting) > 0; s.busy {
		s.waiting[0].turn <- true
	}
	s.mu.Unlock()
	return call.err
}

func (s *Syncer) syncBatch(batch []*syncCall) {
	if len(batch) >= batchSync && syncFileSystem(s.Dir) == nil {
		return
	}
	for _, c := range batch {
		for _, path := range c.paths {
			if c.err = Sync(path); c.err != nil {
				break
			}
		}
	}
}
